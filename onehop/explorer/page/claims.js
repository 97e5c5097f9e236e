// Popular claims about Transformers, tested on this model: on the current trace where possible, else on recorded
// measurements.

import { lastCheapCut } from "onehop/figures/pruning.js";
import { warmupPenalty } from "onehop/figures/warmup.js";
import { headName } from "onehop/headgrid.js";
import { TOP_HEADS, sweepResult } from "onehop/ablation.js";
import { argmax, dot, maxOf, mean, norm, range, softmax } from "onehop/maths.js";
import { openingStep, pronounAndNoun } from "onehop/verdict.js";
import { number, percent, piece, power } from "onehop/format.js";
import { joinPieces, wordAt } from "onehop/words.js";
import { CLAIMS } from "onehop/texts/claims.js";

const roles = ["encoder", "decoder", "cross"];
const cache = new WeakMap();

/** A value computed once per trace and name. */
function memoized(trace, name, compute) {
  if (!cache.has(trace)) cache.set(trace, new Map());
  const results = cache.get(trace);
  if (!results.has(name)) results.set(name, compute());
  return results.get(name);
}

const cosine = (a, b) => dot(a, b) / (norm(a) * norm(b) || 1);

const rowsOf = (trace, of = roles) =>
  of.flatMap((role) =>
    range(trace.layers(role)).flatMap((layer) =>
      range(trace.heads).flatMap((head) =>
        trace.queries(role).map((_, query) => ({ role, layer, head, query })),
      ),
    ),
  );

const yesIf = (yes, partly = false) => (yes ? "yes" : partly ? "partly" : "no");

/** How much gradient crosses a long distance, in attention and in recurrent layers. */
function distance({ measured }) {
  const row = measured.paths?.rows.at(-1);
  if (!row) return null;
  const shown = (x) => (x < 0.01 ? power(x) : number(x, 2));
  return {
    answer: yesIf(row.attention > 0.5 && row.lstm < 0.1),
    evidence: CLAIMS.distance.evidence(
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
  const known = pronounAndNoun(trace, measured);
  if (!known) return { answer: "open", evidence: CLAIMS.meaning.unknown };
  const { tokens } = trace.source;
  const { noun } = known;
  const [pronoun] = known.pronoun;
  const vectors = trace.tensor(name).rows();
  const words = tokens
    .map((_, i) => i)
    .filter((i) => i !== pronoun && /\p{L}/u.test(tokens[i]) && !/^<.*>$/.test(tokens[i]));
  if (!words.length) return null;
  const nearest = words[argmax(words.map((i) => cosine(vectors[pronoun], vectors[i])))];
  const shown = (i) => joinPieces(tokens, wordAt(tokens, i));
  return {
    answer: yesIf(noun.includes(nearest)),
    evidence: CLAIMS.meaning.evidence({
      pronoun: shown(pronoun),
      nearest: shown(nearest),
      near: number(cosine(vectors[pronoun], vectors[nearest]), 2),
      noun: shown(noun[0]),
      far: number(maxOf(noun.map((i) => cosine(vectors[pronoun], vectors[i]))), 2),
    }),
  };
}

/** How often an encoder row attends most to itself or to the most similar word. */
function alike({ trace }) {
  const { hits, rows } = memoized(trace, "alike", () => {
    const mostSimilar = range(trace.layers("encoder")).map((layer) => {
      const name = trace.json.inputs[trace.path("encoder", layer)].query;
      const x = trace.tensor(name).rows();
      return x.map((a, i) => argmax(x.map((b, j) => (i === j ? -2 : cosine(a, b)))));
    });
    const rows = rowsOf(trace, ["encoder"]);
    const hit = ({ layer, head, query }) => {
      const row = trace.tensor(`${trace.path("encoder", layer)}.weights`).at({ head, query });
      return [query, mostSimilar[layer][query]].includes(argmax(Array.from(row)));
    };
    return { hits: rows.filter(hit).length, rows: rows.length };
  });
  const [share, chance] = [hits / rows, 2 / trace.source.tokens.length];
  return {
    answer: yesIf(share > 0.5, share > 2 * chance),
    evidence: CLAIMS.alike.evidence(percent(share, 0), percent(chance, 0)),
  };
}

/** The largest weight of a row, with and without the scaling. */
function root({ trace }) {
  const tops = memoized(trace, "root", () =>
    rowsOf(trace).map(({ role, layer, head, query }) => {
      const path = trace.path(role, layer);
      const scores = Array.from(trace.tensor(`${path}.scores`).at({ head, query }));
      const seen = role === "decoder" ? scores.slice(0, query + 1) : scores;
      return [maxOf(trace.tensor(`${path}.weights`).at({ head, query })), maxOf(softmax(seen))];
    }),
  );
  const [scaled, unscaled] = [0, 1].map((i) => mean(tops.map((t) => t[i])));
  return {
    answer: yesIf(unscaled > 0.9, unscaled > scaled + 0.1),
    evidence: CLAIMS.root.evidence(percent(scaled, 0), percent(unscaled, 0)),
  };
}

/** How similar a head's output is to the value of the word with the largest weight. */
function blend({ trace }) {
  const all = memoized(trace, "blend", () =>
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
    evidence: CLAIMS.blend.evidence(percent(share, 0), number(mean(all), 2)),
  };
}

/** From which length attention is slower than recurrence, at the measured width nearest to this model's. */
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
    evidence: CLAIMS.cost.evidence({ d, n: slower?.n ?? null, longest: rows.at(-1).n, words }),
  };
}

const RESTS = ["first token", "end mark"]; // places without a word of their own, where many heads look

/** Heads that follow one named pattern in at least four sentences of five. To look at no word is not a job. */
function jobs({ measured, trace }) {
  const data = measured.patterns;
  if (!data) return null;
  const following = (patterns) =>
    new Set(
      patterns.flatMap((p) =>
        p.all.flatMap((heads, layer) =>
          heads.flatMap((share, head) => (share >= 0.8 ? [`${p.role} ${layer} ${head}`] : [])),
        ),
      ),
    );
  const named = following(data.patterns.filter((p) => !RESTS.includes(p.name))).size;
  const resting = following(data.patterns).size - named;
  const countedRoles = [...new Set(data.patterns.map((p) => p.role))];
  const all = countedRoles.reduce((sum, role) => sum + trace.layers(role) * trace.heads, 0);
  return {
    answer: yesIf(named > all / 2, named > all / 4),
    evidence: CLAIMS.jobs.evidence(named, all, resting),
  };
}

function coreference({ measured }) {
  const data = measured.coreference;
  if (!data?.best.length) return null;
  const [best] = data.best;
  return {
    answer: yesIf(!data.none),
    evidence: CLAIMS.coreference.evidence(
      `layer ${best.layer + 1}, head ${best.head + 1}`,
      percent(best.share, 0),
      data.sentences.length,
    ),
  };
}

/** Whether the heads with the sharpest attention are those with the largest effect. */
function looks(view) {
  const result = sweepResult(view, openingStep(view.trace, view.measured));
  if (!result) return null;
  return {
    answer: yesIf(result.overlap >= TOP_HEADS / 2, result.overlap > TOP_HEADS / 5),
    evidence: CLAIMS.looks.evidence(TOP_HEADS, result.overlap, result.text),
  };
}

function one(view) {
  const result = sweepResult(view, openingStep(view.trace, view.measured));
  if (!result) return null;
  const [token, p] = result.strongest.topWithout[0];
  return {
    answer: { one: "yes", several: "partly", none: "no" }[result.answer],
    evidence: CLAIMS.one.evidence({
      ...result,
      head: headName(result.strongest),
      before: percent(result.before, 0),
      after: percent(result.after, 0),
      instead: piece(token),
      chance: percent(p, 0),
      flipping: result.flipping.length,
      all: result.heads.length,
    }),
  };
}

/** How many heads can be removed before a twentieth of the score is lost. */
function spare({ measured }) {
  const data = measured.pruning;
  if (!data) return null;
  const key = data.metric === "chrF" ? "chrf" : "bleu";
  const cut = data.rows[lastCheapCut(data)];
  return {
    answer: yesIf(cut.removed > data.order.length / 2, cut.removed > data.order.length / 10),
    evidence: CLAIMS.spare.evidence({
      removed: cut.removed,
      all: data.order.length,
      metric: data.metric,
      before: number(data.rows[0][key], 1),
      after: number(cut[key], 1),
    }),
  };
}

const withoutPositions = (view) => [
  "bag of words",
  () => view.backend.variant(view.base.source.text, ["positions=off"]),
];

/** The translation without positions. A server computes it on request; a file holds it. */
function order(view) {
  if (view.backend.kind === "live" && view.dial("order.asked", "") !== "yes") return null;
  const [key, load] = withoutPositions(view);
  const response = view.resource(`${key} ${view.base.source.text}`, load);
  if (response.error ?? response.value?.error)
    return { answer: "open", evidence: response.error ?? response.value.error };
  if (!response.value) return { answer: "open", evidence: CLAIMS.waiting };
  return {
    answer: yesIf(!response.value.same),
    evidence: CLAIMS.order.evidence(response.value.target.text.trim(), response.value.same),
  };
}

/** The score of texts longer than any in training, compared with the longest ones within it. */
function lengths({ measured }) {
  const data = measured.lengths;
  const beyond = data?.buckets.filter((b) => b.from > data.trained_to) ?? [];
  const within = data?.buckets.filter((b) => b.to <= data.trained_to) ?? [];
  if (!beyond.length || !within.length) return null;
  const [last, first] = [beyond.at(-1), within.at(-1)];
  const share = last.bleu / first.bleu;
  return {
    answer: yesIf(share > 0.9, share > 0.7),
    evidence: CLAIMS.lengths.evidence({
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
    evidence: CLAIMS.correction.evidence(percent(share, 0), all.length),
  };
}

/** The first layer from which on the written piece stays the first choice. */
function late({ trace, measured }) {
  const { lens } = trace.json;
  const step = openingStep(trace, measured);
  const chosen = trace.steps[step]?.chosen;
  if (!lens?.length || !chosen) return null;
  const firsts = lens.map((layer) => layer[step].top[0]);
  let from = firsts.length;
  while (from > 0 && firsts[from - 1].id === chosen.id) from--;
  const before = from > 0 && from < firsts.length ? firsts[from - 1] : null;
  return {
    answer: yesIf(from >= firsts.length - 1, from >= firsts.length / 2),
    evidence: CLAIMS.late.evidence({
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
    evidence: CLAIMS.greedy.evidence(against.length, trace.steps.length, trace.json.options.beam),
  };
}

function warmup({ measured }) {
  if (!measured.warmup) return null;
  const [post, pre] = warmupPenalty(measured.warmup);
  return {
    answer: yesIf(post > 0.3 && post > 2 * pre, post > pre),
    evidence: CLAIMS.warmup.evidence(number(post, 2), number(pre, 2)),
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

export const CLAIM_NAMES = Object.keys(JUDGES);

/**
 * A claim's `{ answer, evidence }`, or null while it is not measured. The trace of a long sentence may lack tensors.
 */
export function judgeClaim(view, name) {
  try {
    return JUDGES[name](view);
  } catch (error) {
    if (!(error instanceof RangeError)) throw error;
    return { answer: "open", evidence: error.message };
  }
}
