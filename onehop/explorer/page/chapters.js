// The chapters with their figures and claims, and the facts that the essay's texts are filled with.

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
import { sweepResult } from "onehop/ablation.js";
import { glossNote } from "onehop/gloss.js";
import { headName } from "onehop/headgrid.js";
import { leastCertain, openingStep, pronounVerdict } from "onehop/verdict.js";
import { count, number, percent, piece } from "onehop/format.js";
import { TEXTS } from "onehop/texts.js";
import { joinPieces, wordAt } from "onehop/words.js";

const chapter = (id, figures, claims = []) => ({ id, figures, claims, ...TEXTS.chapters[id] });

export const CHAPTERS = [
  chapter("introduction", [paths], ["distance"]),
  chapter("tools", [refresher]),
  chapter("chapter-1", [embeddings]),
  chapter("chapter-2", [lookup, projections]),
  chapter("chapter-3", [scores], ["alike"]),
  chapter("chapter-4", [divisor, dimension], ["root"]),
  chapter("chapter-5", [blend, worked], ["blend"]),
  chapter("chapter-6", [matrix, arcs, mask, complexity], ["meaning", "cost"]),
  chapter(
    "chapter-7",
    [heads, decides, patterns, coreference, pruning],
    ["looks", "one", "jobs", "coreference", "spare"],
  ),
  chapter("chapter-8", [positions, lengths], ["order", "lengths"]),
  chapter(
    "chapter-9",
    [machine, residual, neurons, lens, beam, breaking, family, warmup, results],
    ["correction", "late", "greedy", "warmup"],
  ),
];
export const EXTRA_FIGURE = patches;
export const FIGURES = [...CHAPTERS.flatMap(({ figures }) => figures), EXTRA_FIGURE];

/** Figure numbers. The two chapters before chapter 1 share the number 0; the appendix is A. */
export const FIGURE_LABELS = new Map([[EXTRA_FIGURE.id, "A.1"]]);
for (const { id, figures } of CHAPTERS) {
  const n = Number(id.match(/^chapter-(\d)$/)?.[1] ?? 0);
  const before = [...FIGURE_LABELS.values()].filter((label) => label.startsWith(`${n}.`)).length;
  figures.forEach((figure, i) => FIGURE_LABELS.set(figure.id, `${n}.${before + i + 1}`));
}

/** How much smaller the unscaled softmax's gradient is, at this width and at the largest measured one. */
export function gradientShrinkage(data, d_k) {
  const row = data?.rows.find((row) => row.d === d_k);
  if (!row) return "";
  const last = data.rows.at(-1);
  const shrinkage = ({ scaled, unscaled }) => number(scaled.gradient / unscaled.gradient, 1);
  return html`: for random vectors at d = ${d_k} it is ${number(row.unscaled.gradient, 3)} against
  ${number(row.scaled.gradient, 3)} with the root, ${shrinkage(row)} times smaller. At d = ${last.d}
  it is ${shrinkage(last)} times smaller`;
}

/** The sweep's result for the word in question, as the essay uses it; null before the end of the sweep. */
function sweepFacts(view, step) {
  const result = sweepResult(view, step);
  if (!result) return null;
  const [token, p] = result.strongest.topWithout[0];
  const { answer, text, strongest } = result;
  return { answer, text, head: headName(strongest), instead: piece(token), chance: percent(p, 0) };
}

const factsCache = new WeakMap(); // by trace: the facts, and the sweep's state at that time

/** The facts about the current sentence and model that the texts use. */
export function factsOf(view) {
  const { trace, sweep } = view;
  if (factsCache.get(trace)?.state !== sweep.state)
    factsCache.set(trace, { state: sweep.state, facts: collectFacts(view) });
  return factsCache.get(trace).facts;
}

function collectFacts(view) {
  const { trace, measured } = view;
  const { settings, source, target } = trace;
  const step = openingStep(trace, measured);
  const uncertain = leastCertain(trace);
  const recorded = measured.coreference;
  const sentences = recorded?.model && recorded.sentences;
  const layers = settings.n_encoder_layers + 2 * settings.n_decoder_layers;
  return {
    settings,
    pair: `${trace.model.source}-${trace.model.target}`,
    pronoun: TEXTS.pronouns[trace.model.source] ?? TEXTS.pronouns.en,
    source: source.text,
    sourceLength: source.tokens.length,
    verdict: pronounVerdict(trace, measured),
    word: target.text.trim()
      ? joinPieces(target.output_tokens, wordAt(target.output_tokens, step))
      : null,
    chance: uncertain && percent(uncertain.written.p, 0),
    second: uncertain && piece(uncertain.rival.token),
    secondChance: uncertain && percent(uncertain.rival.p, 0),
    parameters: count(trace.model.parameters),
    heads: layers * settings.n_heads,
    aligner: headName(trace.aligner),
    finding: sweepFacts(view, step),
    recordedScore:
      sentences &&
      TEXTS.recordedScore(
        recorded.model.name,
        sentences.filter((x) => x.right).length,
        sentences.length,
      ),
    gradientShrinkage: gradientShrinkage(measured.dimension, settings.d_k),
    grammarNote: glossNote(trace),
    sinusoids: sinusoids(settings),
    label: (id) => FIGURE_LABELS.get(id),
  };
}
