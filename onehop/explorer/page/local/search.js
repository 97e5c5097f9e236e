// Beam search over a step function, as in onehop.decoding.search, with every step's candidates recorded.

import { BOS, EOS } from "./tokenizer.js";
import { UserError } from "./errors.js";

const LONGEST_LOOP = 6;
const LOOP_SPAN = 12;

/** The indices of the `count` largest numbers in descending order; ties go to the lower index. */
export function topK(numbers, count) {
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

/** The maximum of a row (NaN if it has one), and log(sum(exp(x - maximum))). */
export function logSumOf(logits) {
  let maximum = -Infinity;
  for (let i = 0; i < logits.length; i++)
    if (logits[i] > maximum || logits[i] !== logits[i]) maximum = logits[i];
  let sum = 0;
  for (let i = 0; i < logits.length; i++) sum += Math.exp(logits[i] - maximum);
  return { maximum, log: Math.log(sum) };
}

/** Log-softmax in float32, as torch computes it. */
export function logSoftmax(logits) {
  const { maximum, log } = logSumOf(logits);
  const out = new Float32Array(logits.length);
  for (let i = 0; i < logits.length; i++) out[i] = logits[i] - maximum - log;
  return out;
}

/** The most consecutive repetitions of an n-gram that could count as a loop; at least 1. */
function mostRepeats(ids) {
  let maximum = 1;
  for (let n = 1; n <= LONGEST_LOOP; n++) {
    let same = n;
    for (let i = n; i < ids.length; i++) {
      same = ids[i] === ids[i - n] ? same + 1 : n;
      maximum = Math.max(maximum, Math.floor(same / n));
    }
  }
  return maximum;
}

/** The source may itself repeat something: then only twice as many repetitions count as a loop. */
export function withLoopAllowance(options, source) {
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

/** Log-probability over length penalty; the length counts the end-of-sentence token. */
function score({ penalty, alpha }, logProb, length) {
  return logProb / (penalty === "paper" ? (5 + length) / 6 : length) ** alpha;
}

/** Continuations of all rows in descending order; ties go to the earlier parent, then to the lower id. */
function candidates(rows, parentScores, beam) {
  const all = rows.flatMap((row, parent) =>
    topK(row, Math.min(beam + 2, row.length)).map((token) => ({
      parent,
      token,
      total: parentScores[parent] + row[token],
    })),
  );
  if (all.some(({ total }) => Number.isNaN(total)))
    throw new UserError("The model's log-probabilities contain NaN. Leave out an edit.");
  return all.sort(
    (a, b) =>
      (a.total === b.total ? 0 : b.total - a.total) || a.parent - b.parent || a.token - b.token,
  );
}

/**
 * The best hypothesis, and every step's beam. `step(tokens, parents)` returns log-probabilities for each row.
 * `onStep` is awaited before every step and may end the search.
 */
export async function search(step, longest, options, onStep) {
  const { beam } = options;
  const [hypotheses, costs, steps] = [[], [], []];
  let [ids, logProbs, parents] = [[[]], [0], null];
  const finish = (hypothesis, logProb, finished, looped) => {
    const value = score(options, logProb, hypothesis.length + finished);
    hypotheses.push({ ids: hypothesis, log_prob: logProb, score: value, finished, looped });
    if (!looped) costs.push(-value);
  };
  for (;;) {
    await onStep(ids[0]);
    const position = ids[0].length;
    const rows = step(position ? ids.map((hypothesis) => hypothesis.at(-1)) : [BOS], parents);
    if (position < options.min_length) for (const row of rows) row[EOS] = -Infinity;
    const ranked = candidates(rows, logProbs, beam);
    const ended = ranked.slice(0, beam).filter((c) => c.token === EOS && c.total > -Infinity);
    for (const { parent, total } of ended) finish(ids[parent], total, true, false);
    const open = ranked.filter((c) => c.token !== EOS);
    const closed = ranked.filter((c) => c.token === EOS).map((c) => ({ ...c, total: -Infinity }));
    const kept = [...open, ...closed].slice(0, beam);
    ids = kept.map(({ parent, token }) => [...ids[parent], token]);
    parents = kept.map((c) => c.parent);
    logProbs = kept.map(({ total }, i) => {
      const looped = endsInLoop(ids[i], options.loop_repeats);
      const stopped = looped || ids[i].length === longest;
      if (stopped && total > -Infinity) finish(ids[i], total, false, looped);
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
    const bestPossible = score(options, Math.max(...logProbs), longest);
    const best = costs.length ? -Math.min(...costs) : -Infinity;
    if (
      costs.length >= options.patience * beam ||
      bestPossible === -Infinity ||
      bestPossible <= best
    )
      break;
  }
  const order = [...hypotheses].sort((a, b) => a.looped - b.looped || b.score - a.score);
  if (!order.length)
    throw new UserError("No translation has a probability above zero. Leave out an edit.");
  return { best: order[0], steps, path: pathTo(order[0], steps) };
}

/** The ids up to one candidate. */
function replay(steps, step, slot) {
  const ids = [];
  for (; step >= 0; step--) {
    ids.unshift(steps[step][slot].token);
    slot = steps[step][slot].parent;
  }
  return ids;
}

/** The written ids, with the end-of-sentence token if there is one. */
export const outputsOf = ({ ids, finished }) => (finished ? [...ids, EOS] : ids);

/** The slot of a hypothesis in each step of the beam. */
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
