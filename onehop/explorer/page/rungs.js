// The ladder: which figures stand on which rung, which claims are held against it, and the facts that the essay is told.

import { html } from "onehop/vendor/lit-html.js";
import * as arcs from "onehop/figures/arcs.js";
import * as beam from "onehop/figures/beam.js";
import * as blend from "onehop/figures/blend.js";
import * as breaking from "onehop/figures/breaking.js";
import * as complexity from "onehop/figures/complexity.js";
import * as coreference from "onehop/figures/coreference.js";
import * as decides from "onehop/figures/decides.js";
import * as dimension from "onehop/figures/dimension.js";
import * as divisor from "onehop/figures/divisor.js";
import * as embeddings from "onehop/figures/embeddings.js";
import * as family from "onehop/figures/family.js";
import * as heads from "onehop/figures/heads.js";
import * as lengths from "onehop/figures/lengths.js";
import * as lens from "onehop/figures/lens.js";
import * as lookup from "onehop/figures/lookup.js";
import * as machine from "onehop/figures/machine.js";
import * as mask from "onehop/figures/mask.js";
import * as matrix from "onehop/figures/matrix.js";
import * as neurons from "onehop/figures/neurons.js";
import * as patches from "onehop/figures/patches.js";
import * as paths from "onehop/figures/paths.js";
import * as patterns from "onehop/figures/patterns.js";
import * as positions from "onehop/figures/positions.js";
import * as projections from "onehop/figures/projections.js";
import * as pruning from "onehop/figures/pruning.js";
import * as refresher from "onehop/figures/refresher.js";
import * as residual from "onehop/figures/residual.js";
import * as results from "onehop/figures/results.js";
import * as scores from "onehop/figures/scores.js";
import * as warmup from "onehop/figures/warmup.js";
import * as worked from "onehop/figures/worked.js";
import { sinusoids } from "onehop/formulas.js";
import { finding } from "onehop/findings.js";
import { glossNote } from "onehop/gloss.js";
import { called } from "onehop/headgrid.js";
import { doubt, mystery, verdict } from "onehop/story.js";
import { count, number, percent, piece } from "onehop/text.js";
import { TEXTS } from "onehop/texts.js";
import { wordAt, written } from "onehop/words.js";

const rung = (id, figures, claims = []) => ({ id, figures, claims, ...TEXTS.chapters[id] });

export const RUNGS = [
  rung("case", [paths], ["distance"]),
  rung("tools", [refresher]),
  rung("rung-1", [embeddings]),
  rung("rung-2", [lookup, projections]),
  rung("rung-3", [scores], ["alike"]),
  rung("rung-4", [divisor, dimension], ["root"]),
  rung("rung-5", [blend, worked], ["blend"]),
  rung("rung-6", [matrix, arcs, mask, complexity], ["meaning", "cost"]),
  rung(
    "rung-7",
    [heads, decides, patterns, coreference, pruning],
    ["looks", "one", "jobs", "coreference", "spare"],
  ),
  rung("rung-8", [positions, lengths], ["order", "lengths"]),
  rung(
    "rung-9",
    [machine, residual, neurons, lens, beam, breaking, family, warmup, results],
    ["correction", "late", "greedy", "warmup"],
  ),
];
export const ASIDE = patches;
export const FIGURES = [...RUNGS.flatMap(({ figures }) => figures), ASIDE];

/** Figure numbers: the two chapters before the first rung share the nought; beside the ladder there is no rung's number. */
export const LABELS = new Map([[ASIDE.id, "A.1"]]);
for (const { id, figures } of RUNGS) {
  const n = Number(id.match(/^rung-(\d)$/)?.[1] ?? 0);
  const before = [...LABELS.values()].filter((label) => label.startsWith(`${n}.`)).length;
  figures.forEach((figure, i) => LABELS.set(figure.id, `${n}.${before + i + 1}`));
}

/** How many times smaller the undivided softmax's gradient is, at this width and at the largest one measured. */
export function shrunk(data, d_k) {
  const here = data?.rows.find((row) => row.d === d_k);
  if (!here) return "";
  const last = data.rows.at(-1);
  const times = ({ scaled, unscaled }) => number(scaled.gradient / unscaled.gradient, 1);
  return html`: for random vectors at d = ${d_k} it is ${number(here.unscaled.gradient, 3)} against
  ${number(here.scaled.gradient, 3)} with the root, ${times(here)} times smaller. At d = ${last.d}
  it is ${times(last)} times smaller`;
}

/** The sweep's answer about the word in question, as the essay says it; null before its end. */
function foundOf(view, step) {
  const found = finding(view, step);
  if (!found) return null;
  const [token, p] = found.worst.instead[0];
  const { answer, text, worst } = found;
  return { answer, text, head: called(worst), instead: piece(token), chance: percent(p, 0) };
}

const facts = new WeakMap(); // by trace: the facts, and the state of the sweep that they were made in

/** What the essay is told about the sentence and the model on show. */
export function factsOf(view) {
  const { trace, sweep } = view;
  if (facts.get(trace)?.state !== sweep.state)
    facts.set(trace, { state: sweep.state, facts: collectFacts(view) });
  return facts.get(trace).facts;
}

function collectFacts(view) {
  const { trace, measured } = view;
  const { settings: s, source, target } = trace;
  const step = mystery(trace, measured);
  const open = doubt(trace);
  const known = measured.coreference;
  const list = known?.model && known.sentences;
  const layers = s.n_encoder_layers + 2 * s.n_decoder_layers;
  return {
    s,
    pair: `${trace.model.source}-${trace.model.target}`,
    pronoun: TEXTS.pronouns[trace.model.source] ?? TEXTS.pronouns.en,
    source: source.text,
    n: source.tokens.length,
    judged: verdict(trace, measured),
    word: target.text.trim()
      ? written(target.output_tokens, wordAt(target.output_tokens, step))
      : null,
    chance: open && percent(open.first.p, 0),
    second: open && piece(open.second.token),
    secondChance: open && percent(open.second.p, 0),
    numbers: count(trace.model.parameters),
    heads: layers * s.n_heads,
    aligner: called(trace.aligner),
    found: foundOf(view, step),
    record: list && TEXTS.record(known.model.name, list.filter((x) => x.right).length, list.length),
    shrunk: shrunk(measured.dimension, s.d_k),
    note: glossNote(trace),
    sinusoids: sinusoids(s),
    label: (id) => LABELS.get(id),
  };
}
