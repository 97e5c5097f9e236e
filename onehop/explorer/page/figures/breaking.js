import { html, nothing } from "onehop/vendor/lit-html.js";
import { toggle } from "onehop/controls.js";
import { canMake, editLabel, headOffEdit, sweepResult } from "onehop/ablation.js";
import { traceCode } from "onehop/frame.js";
import {
  alignedGlosses,
  combinedAttention,
  glossedSide,
  glossedText,
  traceGlosses,
} from "onehop/gloss.js";
import { headName } from "onehop/headgrid.js";
import { heatmap } from "onehop/heatmap.js";
import { mean, range } from "onehop/maths.js";
import { openingStep } from "onehop/verdict.js";
import { Tensor, bytesOf, numbersOf } from "onehop/tensors.js";
import { joinByteTokens, number } from "onehop/format.js";
import { TEXTS } from "onehop/texts.js";

export const id = "breaking";
export const item = 18;
export const title = "Break it, and read what comes out";
export const needs = ["{attention}.weights"];
export const compares = false;

const T = TEXTS.breaking;
const PRESET = "positions=off";
const editKey = (edits) => edits.join(" ");
const has = (view, edits) => edits.every((e) => view.selection.edits.includes(e));

/** The edits with a switch. */
function availableEdits(view) {
  const strongest = strongestOff(view);
  const offered = [...(strongest ? [strongest] : []), ...view.about.edits, ...selectedHead(view)];
  const first = (offer, i) =>
    offered.findIndex((o) => editKey(o.edits) === editKey(offer.edits)) === i;
  return offered.filter(first);
}

/** The switch of the head that the sweep has named, if the page can translate without it. */
function strongestOff(view) {
  const sweep = sweepResult(view, openingStep(view.trace, view.measured));
  if (!sweep || !canMake(view, headOffEdit(sweep.strongest))) return null;
  return {
    edits: [headOffEdit(sweep.strongest)],
    label: T.strongest(headName(sweep.strongest)),
  };
}

/** The switches of the selected head, which need a server. */
function selectedHead(view) {
  if (view.backend.kind !== "live") return [];
  const { role, layer, head } = view.selection;
  const at = `${role}.${layer}.${head}`;
  return [
    { edits: [`head=off@${at}`], label: T.headOnShow },
    { edits: [`head=only@${at}`], label: T.onlyHeadOnShow },
  ];
}

/** The model of an exported file may have been edited. */
const originalLabel = (view) =>
  view.base.edits.length
    ? `As this file was made, edited: ${view.base.edits.map((edit) => editLabel(view, edit)).join(", ")}`
    : "As trained";

/** With a server, edits add up; an exported file holds them one at a time. */
function toggleEdit(view, offer, on) {
  view.changeEdits((edits) => {
    const others = edits.filter((e) => !offer.edits.includes(e));
    return on ? [...(view.backend.kind === "live" ? others : []), ...offer.edits] : others;
  });
}

function switches(view) {
  const offered = availableEdits(view);
  const known = new Set(offered.flatMap((o) => o.edits));
  const foreign = view.selection.edits
    .filter((e) => !known.has(e))
    .map((e) => ({ edits: [e], label: editLabel(view, e) }));
  return html`<div
    class="columns"
    style="gap:.35rem 1.6rem;grid-template-columns:repeat(auto-fit,minmax(min(100%,16rem),1fr));font:.95rem var(--sans)"
  >
    ${[...offered, ...foreign].map((offer) => toggle({ label: offer.label, on: has(view, offer.edits), choose: (on) => toggleEdit(view, offer, on) }))}
  </div>`;
}

const words = (text) => text.split(/\s+/).filter(Boolean);

/** Marks the words of `b` that are not in the longest common subsequence with `a`. */
export function changedWords(a, b) {
  const table = range(a.length + 1).map(() => new Uint16Array(b.length + 1));
  for (let i = a.length - 1; i >= 0; i--)
    for (let j = b.length - 1; j >= 0; j--)
      table[i][j] =
        a[i] === b[j] ? table[i + 1][j + 1] + 1 : Math.max(table[i + 1][j], table[i][j + 1]);
  const marks = b.map(() => true);
  for (let i = 0, j = 0; i < a.length && j < b.length;) {
    if (a[i] === b[j]) [marks[j], i, j] = [false, i + 1, j + 1];
    else if (table[i + 1][j] >= table[i][j + 1]) i++;
    else j++;
  }
  return marks;
}

/** The edited model's glosses. They use the heads that align best in the unedited model. */
function variantGlosses(view, variant) {
  const { model, source, aligner } = view.base;
  const tokens = joinByteTokens(variant.target.output_tokens);
  if (model.target === "en") return alignedGlosses(tokens, [], () => 0);
  const cross = crossOf(variant);
  const rows = combinedAttention(aligner, range(view.base.layers("cross")), (layer, head) =>
    cross.rows({ layer, head }),
  );
  return alignedGlosses(tokens, source.tokens, (i, j) => rows[i][j], model.target);
}

/** Why an edit has its effect, in one sentence. */
const why = (view) =>
  view.selection.edits.map((edit) => {
    const reason = T.why[edit.split("@")[0]] ?? T.why[edit.split("=")[0]];
    return reason ? html`<p class="reading" data-why=${edit}>${reason}</p>` : nothing;
  });

const originalText = (view) =>
  glossedText(
    view.base.target.output_tokens,
    glossedSide(view.base) === "target"
      ? traceGlosses(view.base)
      : alignedGlosses(view.base.target.output_tokens, [], () => 0),
  );

const crossOf = (variant) =>
  new Tensor(variant.tensors.cross, numbersOf(bytesOf(variant.blob), variant.tensors.cross));

/** The variant's cross-attention in the selected layer, averaged over heads. */
function crossRows(variant, layer, heads) {
  const cross = crossOf(variant);
  return averaged(range(heads).map((head) => cross.rows({ layer, head })));
}

const averaged = (all) =>
  all[0].map((row, i) => Array.from(row, (_, j) => mean(all.map((rows) => rows[i][j]))));

/** The edited translation as a resource; null if no edit is selected. */
const variantOf = (view) =>
  view.selection.edits.length
    ? view.resource(`variant ${view.base.source.text} ${editKey(view.selection.edits)}`, () =>
        view.backend.variant(view.base.source.text, view.selection.edits),
      )
    : null;

const meanProbability = (steps) =>
  html`<p class="reading numbers" style="margin:.4rem 0 0">
    average probability of a written piece: ${number(mean(steps.map((s) => s.chosen.p)), 3)}
  </p>`;

/** First edits to try: the strongest head, and one with an effect that needs no knowledge of the language. */
function nothingBroken(view) {
  const preset = (offer, text, name) =>
    offer
      ? html`<button
          type="button"
          data-preset=${name}
          @click=${() => toggleEdit(view, offer, true)}
        >
          ${text}
        </button>`
      : nothing;
  const positions = view.about.edits.find((o) => editKey(o.edits) === PRESET);
  return html`<p class="reading">
    ${T.nothing} ${preset(strongestOff(view), T.presetHead, "head")}
    ${preset(positions, T.preset, "positions")}
  </p>`;
}

/** The edited translation, and the attention of both models. */
function result(view) {
  const response = variantOf(view);
  if (!response) return { translation: nothingBroken(view) };
  const error = response.error ?? response.value?.error;
  if (error) return { translation: html`<div class="error"><p>${error}</p></div>` };
  if (!response.value)
    return {
      translation: html`<p class="reading" role="status">The edited model is translating …</p>`,
    };
  const variant = response.value;
  const layer = Math.min(view.selection.layer, view.trace.layers("cross") - 1);
  const marks = changedWords(words(view.base.target.text), words(variant.target.text));
  const same = variant.target.text === view.base.target.text;
  const trueRows = averaged(
    range(view.base.heads).map((head) =>
      view.base.tensor(`decoder.layers.${layer}.cross_attention.weights`).rows({ head }),
    ),
  );
  const picture = (heading, rows, tokens) =>
    html`<div>
      <h4>${heading}</h4>
      ${heatmap({ view: { ...view, narrow: true }, label: `${heading}: cross-attention of layer ${layer + 1}, heads averaged`, rows, queries: tokens, keys: view.base.source.tokens })}
    </div>`;
  const translation = html`<div
      data-variant
      style="font:1.25rem/1.45 var(--serif);margin-top:.4rem"
    >
      <span class="verdict ${same ? "yes" : "no"}">${same ? "the same" : "changed"}</span>
      ${glossedText(joinByteTokens(variant.target.output_tokens), variantGlosses(view, variant), marks)}
    </div>
    ${same ? nothing : why(view)} ${meanProbability(variant.steps)}`;
  const pictures = html`<div class="columns" style="margin-top:1.3rem">
    ${picture(originalLabel(view), trueRows, view.base.target.output_tokens)}
    ${picture("Edited", crossRows(variant, layer, view.base.heads), joinByteTokens(variant.target.output_tokens))}
  </div>`;
  return { translation, pictures };
}

/** On a phone the translations are above the switches, so that both fit on the screen. */
export function draw(view) {
  const { translation, pictures = nothing } = result(view);
  const texts = html`<h4>${originalLabel(view)}</h4>
    <div style="font:1.25rem/1.45 var(--serif)">${originalText(view)}</div>
    ${meanProbability(view.base.steps)}
    <h4 style="margin-top:1.2rem">With the edit</h4>
    ${translation}`;
  const gap = html`<div style="height:1.5rem"></div>`;
  return view.narrow
    ? html`${texts}${gap}${switches(view)}${pictures}`
    : html`${switches(view)}${gap}${texts}${pictures}`;
}

export const caption = (view) =>
  html`The edit acts on the real model for this one run; the sentence is decoded anew, piece by
  piece.
  ${
    variantOf(view)?.value?.target
      ? html`The two pictures: where both looked, cross-attention of layer
        ${Math.min(view.selection.layer, view.trace.layers("cross") - 1) + 1} with its heads
        averaged.`
      : "With a switch on, two pictures show where both looked."
  }
  ${view.backend.kind === "live" ? "Every other figure shows the edited model too while a switch is on." : `This file holds these ${view.about.edits.length} edits, one at a time; the other figures stay with the model as trained.`}`;

export const table = (view) => {
  const variant = variantOf(view)?.value;
  const steps = variant?.steps ?? view.base.steps;
  return {
    columns: ["step", "written", "probability"],
    rows: steps.map((s, i) => [i + 1, s.chosen.token, s.chosen.p]),
  };
};

export const python = (view) => {
  const lines = traceCode({ trace: view.base });
  if (!view.selection.edits.length)
    return `${lines}rows = [[i + 1, s["chosen"]["token"], s["chosen"]["p"]] for i, s in enumerate(trace.header["steps"])]`;
  return `${traceCode({ trace: { ...withoutEdits(view.base), edits: view.selection.edits } })}rows = [[i + 1, s["chosen"]["token"], s["chosen"]["p"]] for i, s in enumerate(trace.header["steps"])]`;
};

const withoutEdits = (trace) => ({ model: trace.model, source: trace.source });
