import { html, nothing } from "onehop/vendor/lit-html.js";
import { toggle } from "onehop/controls.js";
import { finding, offEdit } from "onehop/findings.js";
import { opening } from "onehop/frame.js";
import { glossed, glossedSide, glossedText, glossesOf, looked } from "onehop/gloss.js";
import { called } from "onehop/headgrid.js";
import { heatmap } from "onehop/heatmap.js";
import { mean, range } from "onehop/maths.js";
import { mystery } from "onehop/story.js";
import { Tensor, bytesOf, numbersOf } from "onehop/tensors.js";
import { number, shownTokens } from "onehop/text.js";
import { TEXTS } from "onehop/texts.js";

export const id = "breaking";
export const item = 18;
export const title = "Break it, and read what comes out";
export const needs = ["{attention}.weights"];
export const compares = false;

const T = TEXTS.breaking;
const PRESET = "positions=off";
const joined = (edits) => edits.join(" ");
const has = (view, edits) => edits.every((e) => view.selection.edits.includes(e));

/** The offered edits; live, also those of the head on show. */
function offers(view) {
  if (view.home.kind !== "live") return view.about.edits;
  const { role, layer, head } = view.selection;
  const at = `${role}.${layer}.${head}`;
  const own = [
    { edits: [`head=off@${at}`], label: T.headOnShow },
    { edits: [`head=only@${at}`], label: T.onlyHeadOnShow },
  ];
  const found = finding(view, mystery(view.trace, view.measured));
  const strongest = found
    ? [{ edits: [offEdit(found.worst)], label: T.strongest(called(found.worst)) }]
    : [];
  const offered = [...strongest, ...view.about.edits, ...own];
  const first = (offer, i) =>
    offered.findIndex((o) => joined(o.edits) === joined(offer.edits)) === i;
  return offered.filter(first);
}

/** An edit that is not offered: a head by its name, anything else as it is written. */
function labelOf(edit) {
  const [, role, layer, head] = edit.match(/^head=off@(\w+)\.(\d+)\.(\d+)$/) ?? [];
  return role ? T.off(called({ role, layer: Number(layer), head: Number(head) })) : edit;
}

/** A file may have been made of a model that was already edited. */
const untouched = (view) =>
  view.base.edits.length
    ? `As this file was made, edited: ${view.base.edits.join(", ")}`
    : "As trained";

/** Live, edits add up; a file knows them one at a time. */
function turn(view, offer, on) {
  view.edit((edits) => {
    const others = edits.filter((e) => !offer.edits.includes(e));
    return on ? [...(view.home.kind === "live" ? others : []), ...offer.edits] : others;
  });
}

function switches(view) {
  const offered = offers(view);
  const known = new Set(offered.flatMap((o) => o.edits));
  const foreign = view.selection.edits
    .filter((e) => !known.has(e))
    .map((e) => ({ edits: [e], label: labelOf(e) }));
  return html`<div
    class="columns"
    style="gap:.35rem 1.6rem;grid-template-columns:repeat(auto-fit,minmax(min(100%,16rem),1fr));font:.95rem var(--sans)"
  >
    ${[...offered, ...foreign].map((offer) => toggle({ label: offer.label, on: has(view, offer.edits), choose: (on) => turn(view, offer, on) }))}
  </div>`;
}

const words = (text) => text.split(/\s+/).filter(Boolean);

/** The words of b that are not in a's longest common subsequence with it. */
export function changed(a, b) {
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

/** The broken model's own look, by the heads that align in the model as trained. */
function variantGlosses(view, variant) {
  const { model, source, aligner } = view.base;
  const written = shownTokens(variant.target.output_tokens);
  if (model.target === "en") return glossesOf(written, [], () => 0);
  const cross = crossOf(variant);
  const rows = looked(aligner, range(view.base.layers("cross")), (layer, head) =>
    cross.rows({ layer, head }),
  );
  return glossesOf(written, source.tokens, (i, j) => rows[i][j], model.target);
}

/** Why a breakage does what it does, in one sentence. */
const why = (view) =>
  view.selection.edits.map((edit) => {
    const reason = T.why[edit.split("@")[0]] ?? T.why[edit.split("=")[0]];
    return reason ? html`<p class="reading" data-why=${edit}>${reason}</p>` : nothing;
  });

const untouchedText = (view) =>
  glossedText(
    view.base.target.output_tokens,
    glossedSide(view.base) === "target"
      ? glossed(view.base)
      : glossesOf(view.base.target.output_tokens, [], () => 0),
  );

const crossOf = (variant) =>
  new Tensor(variant.tensors.cross, numbersOf(bytesOf(variant.blob), variant.tensors.cross));

/** The variant's cross-attention, heads averaged in the chosen layer. */
function crossRows(variant, layer, heads) {
  const cross = crossOf(variant);
  return averaged(range(heads).map((head) => cross.rows({ layer, head })));
}

const averaged = (all) =>
  all[0].map((row, i) => Array.from(row, (_, j) => mean(all.map((rows) => rows[i][j]))));

/** The edited translation: null while none is chosen, a resource otherwise. */
export const variantOf = (view) =>
  view.selection.edits.length
    ? view.resource(`variant ${view.base.source.text} ${joined(view.selection.edits)}`, () =>
        view.home.variant(view.base.source.text, view.selection.edits),
      )
    : null;

const sureness = (steps) =>
  html`<p class="reading numbers" style="margin:.4rem 0 0">
    average probability of a written piece: ${number(mean(steps.map((s) => s.chosen.p)), 3)}
  </p>`;

/** A first switch to throw: what every reader can see in the translation. */
function nothingBroken(view) {
  const offer = view.about.edits.find((o) => joined(o.edits) === PRESET);
  return html`<p class="reading">
    ${T.nothing}
    ${offer ? html`<button type="button" data-preset @click=${() => turn(view, offer, true)}>${T.preset}</button>` : nothing}
  </p>`;
}

/** The edited translation, and the two pictures of where both looked. */
function result(view) {
  const found = variantOf(view);
  if (!found) return { translation: nothingBroken(view) };
  const trouble = found.error ?? found.value?.error;
  if (trouble) return { translation: html`<div class="trouble"><p>${trouble}</p></div>` };
  if (!found.value)
    return {
      translation: html`<p class="reading" role="status">The edited model is translating …</p>`,
    };
  const variant = found.value;
  const layer = Math.min(view.selection.layer, view.trace.layers("cross") - 1);
  const marks = changed(words(view.base.target.text), words(variant.target.text));
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
      ${glossedText(shownTokens(variant.target.output_tokens), variantGlosses(view, variant), marks)}
    </div>
    ${same ? nothing : why(view)} ${sureness(variant.steps)}`;
  const pictures = html`<div class="columns" style="margin-top:1.3rem">
    ${picture(untouched(view), trueRows, view.base.target.output_tokens)}
    ${picture("Edited", crossRows(variant, layer, view.base.heads), shownTokens(variant.target.output_tokens))}
  </div>`;
  return { translation, pictures };
}

/** On a phone the translations stand above the switches, so that both fit on the screen. */
export function draw(view) {
  const { translation, pictures = nothing } = result(view);
  const texts = html`<h4>${untouched(view)}</h4>
    <div style="font:1.25rem/1.45 var(--serif)">${untouchedText(view)}</div>
    ${sureness(view.base.steps)}
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
  ${view.home.kind === "live" ? "Every other figure shows the edited model too while a switch is on." : `This file holds these ${view.about.edits.length} edits, one at a time; the other figures stay with the model as trained.`}`;

export const table = (view) => {
  const found = variantOf(view)?.value;
  const steps = found?.steps ?? view.base.steps;
  return {
    columns: ["step", "written", "probability"],
    rows: steps.map((s, i) => [i + 1, s.chosen.token, s.chosen.p]),
  };
};

export const python = (view) => {
  const lines = opening({ trace: view.base });
  if (!view.selection.edits.length)
    return `${lines}rows = [[i + 1, s["chosen"]["token"], s["chosen"]["p"]] for i, s in enumerate(trace.header["steps"])]`;
  return `${opening({ trace: { ...traceLike(view.base), edits: view.selection.edits } })}rows = [[i + 1, s["chosen"]["token"], s["chosen"]["p"]] for i, s in enumerate(trace.header["steps"])]`;
};

const traceLike = (trace) => ({ model: trace.model, source: trace.source });
