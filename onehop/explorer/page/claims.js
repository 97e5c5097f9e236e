// What explainers say, held against this model: live where its trace can tell, else by what was recorded.

import { lastCheapCut } from "onehop/figures/pruning.js";
import { called } from "onehop/headgrid.js";
import { COMPARED, finding } from "onehop/findings.js";
import { argmax, dot, largest, mean, norm, range, softmax } from "onehop/maths.js";
import { linked, mystery, nounOf } from "onehop/story.js";
import { number, percent, piece, power } from "onehop/text.js";
import { wordAt, written } from "onehop/words.js";
import { CLAIMS } from "onehop/texts/claims.js";

const roles = ["encoder", "decoder", "cross"];
const kept = new WeakMap();

/** A measurement over the whole trace, made once. */
function once(trace, name, make) {
  if (!kept.has(trace)) kept.set(trace, new Map());
  const known = kept.get(trace);
  if (!known.has(name)) known.set(name, make());
  return known.get(name);
}

const cosine = (a, b) => dot(a, b) / (norm(a) * norm(b) || 1);

/** Every row of every head, `{ role, layer, head, query }`. */
const rowsOf = (trace, of = roles) =>
  of.flatMap((role) =>
    range(trace.layers(role)).flatMap((layer) =>
      range(trace.heads).flatMap((head) =>
        trace.queries(role).map((_, query) => ({ role, layer, head, query })),
      ),
    ),
  );

const yesIf = (yes, partly = false) => (yes ? "yes" : partly ? "partly" : "no");

/** A word at the far end of a chain, and at the far end of one hop. */
function distance({ measured }) {
  const row = measured.paths?.rows.at(-1);
  if (!row) return null;
  const shown = (x) => (x < 0.01 ? power(x) : number(x, 2));
  return {
    answer: yesIf(row.attention > 0.5 && row.lstm < 0.1),
    said: CLAIMS.distance.said(
      row.distance,
      shown(row.attention),
      shown(row.lstm),
      shown(row.recurrent),
    ),
  };
}

/** Whether the vector of “it” ends up nearest to that of its noun. */
function meaning(view) {
  const { trace, measured } = view;
  const name = trace.json.inputs[trace.path("cross", 0)]?.memory;
  if (!name || !trace.has(name)) return null;
  const { tokens } = trace.source;
  const asks = linked(trace, mystery(trace, measured));
  const vectors = trace.tensor(name).rows();
  const words = tokens
    .map((_, i) => i)
    .filter((i) => i !== asks && /\p{L}/u.test(tokens[i]) && !/^<.*>$/.test(tokens[i]));
  if (!words.length) return null;
  const nearest = words[argmax(words.map((i) => cosine(vectors[asks], vectors[i])))];
  const noun = nounOf(trace, measured);
  const shown = (i) => written(tokens, wordAt(tokens, i));
  return {
    answer: noun === null ? "open" : yesIf(wordAt(tokens, noun).includes(nearest)),
    said: CLAIMS.meaning.said({
      asks: shown(asks),
      nearest: shown(nearest),
      near: number(cosine(vectors[asks], vectors[nearest]), 2),
      noun: noun === null ? null : shown(noun),
      far: noun === null ? null : number(cosine(vectors[asks], vectors[noun]), 2),
    }),
  };
}

/** How often an encoder row looks most at itself or at the word that is most like it. */
function alike({ trace }) {
  const { hits, rows } = once(trace, "alike", () => {
    const likest = range(trace.layers("encoder")).map((layer) => {
      const name = trace.json.inputs[trace.path("encoder", layer)].query;
      const x = trace.tensor(name).rows();
      return x.map((a, i) => argmax(x.map((b, j) => (i === j ? -2 : cosine(a, b)))));
    });
    const rows = rowsOf(trace, ["encoder"]);
    const hit = ({ layer, head, query }) => {
      const row = trace.tensor(`${trace.path("encoder", layer)}.weights`).at({ head, query });
      return [query, likest[layer][query]].includes(argmax(Array.from(row)));
    };
    return { hits: rows.filter(hit).length, rows: rows.length };
  });
  const [share, chance] = [hits / rows, 2 / trace.source.tokens.length];
  return {
    answer: yesIf(share > 0.5, share > 2 * chance),
    said: CLAIMS.alike.said(percent(share, 0), percent(chance, 0)),
  };
}

/** The largest weight of a row, as it is and as it would be undivided. */
function root({ trace }) {
  const tops = once(trace, "root", () =>
    rowsOf(trace).map(({ role, layer, head, query }) => {
      const path = trace.path(role, layer);
      const scores = Array.from(trace.tensor(`${path}.scores`).at({ head, query }));
      const seen = role === "decoder" ? scores.slice(0, query + 1) : scores;
      return [largest(trace.tensor(`${path}.weights`).at({ head, query })), largest(softmax(seen))];
    }),
  );
  const [scaled, unscaled] = [0, 1].map((i) => mean(tops.map((t) => t[i])));
  return {
    answer: yesIf(unscaled > 0.9, unscaled > scaled + 0.1),
    said: CLAIMS.root.said(percent(scaled, 0), percent(unscaled, 0)),
  };
}

/** How like a head's output is to the value of the word it looks at most. */
function blend({ trace }) {
  const all = once(trace, "blend", () =>
    rowsOf(trace).map(({ role, layer, head, query }) => {
      const path = trace.path(role, layer);
      const weights = Array.from(trace.tensor(`${path}.weights`).at({ head, query }));
      const value = trace.tensor(`${path}.v`).at({ head, key: argmax(weights) });
      return cosine(trace.tensor(`${path}.head_outputs`).at({ head, query }), value);
    }),
  );
  const share = all.filter((c) => c > 0.9).length / all.length;
  return {
    answer: yesIf(share > 0.8, share > 0.4),
    said: CLAIMS.blend.said(percent(share, 0), number(mean(all), 2)),
  };
}

/** From which length on a layer of attention is slower than a recurrent one, at the width measured nearest to this model's. */
function cost({ measured, trace }) {
  const data = measured.complexity;
  if (!data) return null;
  const near = (d) => Math.abs(Math.log(d / trace.settings.d_model));
  const d = [...data.d].sort((a, b) => near(a) - near(b))[0];
  const rows = data.rows.filter((r) => r.d === d);
  const slower = rows.find((r) => r.self_attention > r.recurrence);
  const words = trace.source.tokens.length;
  return {
    answer: yesIf(slower !== undefined),
    said: CLAIMS.cost.said({ d, n: slower?.n ?? null, longest: rows.at(-1).n, words }),
  };
}

/** Heads that follow one nameable pattern in at least four sentences of five. */
function jobs({ measured, trace }) {
  const data = measured.patterns;
  if (!data) return null;
  const known = new Set(
    data.patterns.flatMap((p) =>
      p.all.flatMap((heads, layer) =>
        heads.flatMap((share, head) => (share >= 0.8 ? [`${p.role} ${layer} ${head}`] : [])),
      ),
    ),
  );
  const looked = [...new Set(data.patterns.map((p) => p.role))];
  const all = looked.reduce((sum, role) => sum + trace.layers(role) * trace.heads, 0);
  return {
    answer: yesIf(known.size > all / 2, known.size > all / 10),
    said: CLAIMS.jobs.said(known.size, all, data.patterns.length),
  };
}

function coreference({ measured }) {
  const data = measured.coreference;
  if (!data?.best.length) return null;
  const [best] = data.best;
  return {
    answer: yesIf(!data.none),
    said: CLAIMS.coreference.said(
      `layer ${best.layer + 1}, head ${best.head + 1}`,
      percent(best.share, 0),
      data.sentences.length,
    ),
  };
}

/** Whether attention shows the cause: of the word in question. */
function looks(view) {
  const found = finding(view, mystery(view.trace, view.measured));
  if (!found) return null;
  return {
    answer: yesIf(found.shared >= COMPARED / 2, found.shared > COMPARED / 5),
    said: CLAIMS.looks.said(COMPARED, found.shared, found.text),
  };
}

function one(view) {
  const found = finding(view, mystery(view.trace, view.measured));
  if (!found) return null;
  const [token, p] = found.worst.instead[0];
  return {
    answer: { one: "yes", several: "partly", none: "no" }[found.answer],
    said: CLAIMS.one.said({
      ...found,
      head: called(found.worst),
      before: percent(found.before, 0),
      after: percent(found.after, 0),
      instead: piece(token),
      chance: percent(p, 0),
      turning: found.turning.length,
      all: found.heads.length,
    }),
  };
}

/** How many heads go before a twentieth of the score is lost. */
function spare({ measured }) {
  const data = measured.pruning;
  if (!data) return null;
  const key = data.metric === "chrF" ? "chrf" : "bleu";
  const free = data.rows[lastCheapCut(data)];
  return {
    answer: yesIf(free.removed > data.order.length / 2, free.removed > data.order.length / 10),
    said: CLAIMS.spare.said({
      removed: free.removed,
      all: data.order.length,
      metric: data.metric,
      before: number(data.rows[0][key], 1),
      after: number(free[key], 1),
    }),
  };
}

const bag = (view) => [
  "bag of words",
  () => view.home.variant(view.base.source.text, ["positions=off"]),
];

/** The sentence without positions, translated anew; asked for by the reader, or known to the file. */
function order(view) {
  if (view.home.kind === "live" && view.dial("order.asked", "") !== "yes") return null;
  const [key, load] = bag(view);
  const found = view.resource(`${key} ${view.base.source.text}`, load);
  if (found.error ?? found.value?.error)
    return { answer: "open", said: found.error ?? found.value.error };
  if (!found.value) return { answer: "open", said: CLAIMS.waiting };
  return {
    answer: yesIf(!found.value.same),
    said: CLAIMS.order.said(found.value.target.text.trim(), found.value.same),
  };
}

/** The score of texts longer than any in training, beside that of the longest ones in it. */
function lengths({ measured }) {
  const data = measured.lengths;
  const beyond = data?.buckets.filter((b) => b.from > data.trained_to) ?? [];
  const within = data?.buckets.filter((b) => b.to <= data.trained_to) ?? [];
  if (!beyond.length || !within.length) return null;
  const [last, first] = [beyond.at(-1), within.at(-1)];
  const share = last.bleu / first.bleu;
  return {
    answer: yesIf(share > 0.9, share > 0.7),
    said: CLAIMS.lengths.said({
      trained: data.trained_to,
      within: number(first.bleu, 1),
      beyond: number(last.bleu, 1),
      from: last.from,
    }),
  };
}

function correction({ trace }) {
  const all = trace.json.residual.flatMap((r) => r.stream.map((s, i) => r.added[i] < s));
  const share = all.filter(Boolean).length / all.length;
  return {
    answer: yesIf(share > 0.9, share > 0.5),
    said: CLAIMS.correction.said(percent(share, 0), all.length),
  };
}

/** The first layer from which on the written piece stays the first choice. */
function late({ trace, measured }) {
  const { lens } = trace.json;
  const step = mystery(trace, measured);
  const chosen = trace.steps[step]?.chosen;
  if (!lens?.length || !chosen) return null;
  const firsts = lens.map((layer) => layer[step].top[0]);
  let from = firsts.length;
  while (from > 0 && firsts[from - 1].id === chosen.id) from--;
  const before = from > 0 && from < firsts.length ? firsts[from - 1] : null;
  return {
    answer: yesIf(from >= firsts.length - 1, from >= firsts.length / 2),
    said: CLAIMS.late.said({
      word: piece(chosen.token),
      from: from < firsts.length ? from + 1 : null,
      layers: firsts.length,
      before: before && piece(before.token),
      chance: before && percent(before.p, 0),
    }),
  };
}

function greedy({ trace }) {
  const against = trace.steps.filter((s) => s.rank > 0);
  return {
    answer: yesIf(against.length > 0),
    said: CLAIMS.greedy.said(against.length, trace.steps.length, trace.json.options.beam),
  };
}

const TAIL = 10; // points of a curve: one alone is noise

function warmup({ measured }) {
  const data = measured.warmup;
  if (!data) return null;
  const end = (norm, warm) =>
    mean(
      data.runs
        .find((run) => run.norm === norm && run.warmup > 1 === warm)
        .curve.slice(-TAIL)
        .map(([, loss]) => loss),
    );
  const lost = Object.fromEntries(
    ["post", "pre"].map((norm) => [norm, end(norm, false) - end(norm, true)]),
  );
  return {
    answer: yesIf(lost.post > 0.3 && lost.post > 2 * lost.pre, lost.post > lost.pre),
    said: CLAIMS.warmup.said(number(lost.post, 2), number(lost.pre, 2)),
  };
}

const JUDGES = {
  distance,
  alike,
  root,
  blend,
  cost,
  meaning,
  jobs,
  coreference,
  looks,
  one,
  spare,
  order,
  lengths,
  correction,
  late,
  greedy,
  warmup,
};

export const NAMES = Object.keys(JUDGES);

/** Of a claim: `says`, and `{ answer, said }` or null while nobody has measured it. A long sentence's trace may lack the tensors. */
export function judged(view, name) {
  try {
    return JUDGES[name](view);
  } catch (error) {
    if (!(error instanceof RangeError)) throw error;
    return { answer: "open", said: error.message };
  }
}
