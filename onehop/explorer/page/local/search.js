// Beam search over a step function, as onehop.decoding.search does it, with every step's choices kept.

import { BOS, EOS } from "./tokenizer.js";
import { Trouble } from "./trouble.js";

const LONGEST_LOOP = 6;
const LOOP_SPAN = 12;

/** Places of the largest numbers, largest first; of equals the lowest place. */
export function largest(numbers, count) {
  const best = [];
  for (let i = 0; i < numbers.length; i++) {
    if (best.length === count && !(numbers[i] > numbers[best[count - 1]])) continue;
    let at = best.length;
    while (at > 0 && numbers[i] > numbers[best[at - 1]]) at--;
    best.splice(at, 0, i);
    if (best.length > count) best.pop();
  }
  return best;
}

/** The largest number of a row, NaN if there is one, and the logarithm of the sum of exp(x - largest). */
export function logSumOf(logits) {
  let most = -Infinity;
  for (let i = 0; i < logits.length; i++)
    if (logits[i] > most || logits[i] !== logits[i]) most = logits[i];
  let sum = 0;
  for (let i = 0; i < logits.length; i++) sum += Math.exp(logits[i] - most);
  return { most, log: Math.log(sum) };
}

/** Log-probabilities of a row of logits, in float32 as torch gives them. */
export function logSoftmax(logits) {
  const { most, log } = logSumOf(logits);
  const out = new Float32Array(logits.length);
  for (let i = 0; i < logits.length; i++) out[i] = logits[i] - most - log;
  return out;
}

/** How often in a row an n-gram stands, of those that count as loops; at least once. */
function mostRepeats(ids) {
  let most = 1;
  for (let n = 1; n <= LONGEST_LOOP; n++) {
    let same = n;
    for (let i = n; i < ids.length; i++) {
      same = ids[i] === ids[i - n] ? same + 1 : n;
      most = Math.max(most, Math.floor(same / n));
    }
  }
  return most;
}

/** Options for a source that may itself say a thing over and over: twice as often is no loop then. */
export function allowing(options, source) {
  const times = mostRepeats(source);
  const repeats = options.loop_repeats > 0 && options.loop_repeats <= times;
  return repeats ? { ...options, loop_repeats: 2 * times } : options;
}

function endsInLoop(ids, repeats) {
  for (let n = 1; repeats && n <= LONGEST_LOOP; n++) {
    const span = n * Math.max(repeats, Math.ceil(LOOP_SPAN / n));
    const tail = ids.slice(-span);
    if (span <= ids.length && tail.every((id, i) => i < n || id === tail[i - n])) return true;
  }
  return false;
}

/** Log-probability over length penalty; the length counts the end mark. */
function score({ penalty, alpha }, logProb, length) {
  return logProb / (penalty === "paper" ? (5 + length) / 6 : length) ** alpha;
}

/** Continuations of all rows, best first; of equals the better parent's, the lower id. */
function candidates(rows, soFar, beam) {
  const found = rows.flatMap((row, parent) =>
    largest(row, Math.min(beam + 2, row.length)).map((token) => ({
      parent,
      token,
      total: soFar[parent] + row[token],
    })),
  );
  if (found.some(({ total }) => Number.isNaN(total)))
    throw new Trouble("The model's log-probabilities are not numbers. Leave out an edit.");
  return found.sort(
    (a, b) =>
      (a.total === b.total ? 0 : b.total - a.total) || a.parent - b.parent || a.token - b.token,
  );
}

/**
 * The best hypothesis, with what each step of the beam kept. `step(tokens, parents)` gives a row of log-probabilities for
 * each token that continues a row of the step before; `each` is awaited before every step and may end the search.
 */
export async function search(step, longest, options, each) {
  const { beam } = options;
  const [found, costs, steps] = [[], [], []];
  let [ids, logProbs, parents] = [[[]], [0], null];
  const aside = (own, logProb, finished, looped) => {
    const value = score(options, logProb, own.length + finished);
    found.push({ ids: own, log_prob: logProb, score: value, finished, looped });
    if (!looped) costs.push(-value);
  };
  for (;;) {
    await each(ids[0]);
    const place = ids[0].length;
    const rows = step(place ? ids.map((own) => own.at(-1)) : [BOS], parents);
    if (place < options.min_length) for (const row of rows) row[EOS] = -Infinity;
    const ranked = candidates(rows, logProbs, beam);
    const ended = ranked.slice(0, beam).filter((c) => c.token === EOS && c.total > -Infinity);
    for (const { parent, total } of ended) aside(ids[parent], total, true, false);
    const open = ranked.filter((c) => c.token !== EOS);
    const shut = ranked.filter((c) => c.token === EOS).map((c) => ({ ...c, total: -Infinity }));
    const kept = [...open, ...shut].slice(0, beam);
    ids = kept.map(({ parent, token }) => [...ids[parent], token]);
    parents = kept.map((c) => c.parent);
    logProbs = kept.map(({ total }, i) => {
      const looped = endsInLoop(ids[i], options.loop_repeats);
      const stopped = looped || ids[i].length === longest;
      if (stopped && total > -Infinity) aside(ids[i], total, false, looped);
      return stopped ? -Infinity : total;
    });
    const length = ids[0].length;
    const entry = ({ token, parent, total }, state) => ({
      token,
      parent,
      log_prob: total,
      score: score(options, total, length),
      state,
    });
    steps.push([
      ...kept
        .map((c, i) => entry(c, logProbs[i] > -Infinity ? "live" : "stopped"))
        .filter((kept) => kept.log_prob > -Infinity),
      ...ended.map((c) => entry(c, "finished")),
    ]);
    const hope = score(options, Math.max(...logProbs), longest);
    const best = costs.length ? -Math.min(...costs) : -Infinity;
    if (costs.length >= options.patience * beam || hope === -Infinity || hope <= best) break;
  }
  const order = [...found].sort((a, b) => a.looped - b.looped || b.score - a.score);
  if (!order.length)
    throw new Trouble("No translation has a probability above zero. Leave out an edit.");
  return { best: order[0], steps, path: pathTo(order[0], steps) };
}

/** The ids from the beginning up to one kept candidate. */
function replay(steps, step, place) {
  const ids = [];
  for (; step >= 0; step--) {
    ids.unshift(steps[step][place].token);
    place = steps[step][place].parent;
  }
  return ids;
}

/** What was written, with the end mark where there is one. */
export const outputsOf = ({ ids, finished }) => (finished ? [...ids, EOS] : ids);

/** The place of a hypothesis in each step of the beam. */
function pathTo(best, steps) {
  const outputs = outputsOf(best).join();
  const last = outputsOf(best).length - 1;
  const path = [
    steps[last].findIndex(
      (kept, i) => kept.state !== "live" && replay(steps, last, i).join() === outputs,
    ),
  ];
  for (let i = last; i > 0; i--) path.unshift(steps[i][path[0]].parent);
  return path;
}
