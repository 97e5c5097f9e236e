import { html, nothing } from "onehop/vendor/lit-html.js";
import { segments } from "onehop/controls.js";
import { opening } from "onehop/frame.js";
import { called } from "onehop/headgrid.js";
import { dotScene, headScene, keyOf } from "onehop/machine/head.js";
import { layerScene, stackOf } from "onehop/machine/layer.js";
import { LEVELS, crumbs, levelOf, size, zoom } from "onehop/machine/parts.js";
import { FAMILY, whole } from "onehop/machine/whole.js";
import { count, number, piece, short } from "onehop/text.js";

export const id = "machine";
export const item = 13;
export const title = "The whole machine, at work";
export const needs = ["{attention}.q", "{attention}.k", "{attention}.scores", "{attention}.weights", "{attention}.head_outputs", "{feed_forward}.hidden"];

const SCENES = { whole, layer: layerScene, head: headScene, dot: dotScene };

/** The way down to the level on show. */
function way(view) {
  const { role, layer } = view.selection;
  const [queries, keys] = [view.trace.queries(role), view.trace.keys(role)];
  const names = {
    whole: () => "whole machine",
    layer: () => `${stackOf(view)}, layer ${layer + 1}`,
    head: () => called(view.selection),
    dot: () => `${piece(queries[view.token])} · ${piece(keys[keyOf(view)])}`,
  };
  return LEVELS.slice(0, LEVELS.indexOf(levelOf(view)) + 1).map((level) => [level, names[level]()]);
}

function ratio(view, stack) {
  const path = `${stack}.layers.0`;
  const attention = size(view, `${path}.self_attention`) + size(view, `${path}.cross_attention`);
  return size(view, `${path}.feed_forward`) / attention;
}

/** What the whole picture says in numbers. */
function facts(view) {
  const tied = view.trace.settings.tied;
  const family = FAMILY[view.dial("machine.family", "transformer")] ?? FAMILY.transformer;
  return html`<div class="controls" style="margin:1rem 0 0">${segments({ name: "machine-family", label: "The same parts in", options: Object.entries(FAMILY).map(([key, { name }]) => [key, name]), value: view.dial("machine.family", "transformer"), choose: (key) => view.turn("machine.family", key) })}
      <span>${family.says}</span></div>
    <p class="reading">Feed-forward against attention in one layer: <strong data-ratio="encoder">${number(ratio(view, "encoder"), 2)}</strong> times the parameters in the
      encoder, <strong data-ratio="decoder">${number(ratio(view, "decoder"), 2)}</strong> in the decoder, which has two attentions.
      ${tied ? html`The matrix of ${short(size(view, "embedding"))} stands in three places (both embeddings and the linear layer) and is counted once: to read a piece and to write one are mirror images.` : nothing}
      In all: <strong>${count(view.trace.model.parameters)}</strong> parameters.</p>`;
}

const step = (view) => (event) => {
  const at = LEVELS.indexOf(levelOf(view));
  if (event.key === "Escape" && at > 0) zoom(view, event, LEVELS[at - 1]);
};

export function draw(view) {
  const level = levelOf(view);
  return html`<div class="machine" data-level=${level} tabindex="-1" @keydown=${step(view)}>
      ${crumbs(view, way(view))}
      <div class="scene">${SCENES[level](view)}</div>
    </div>
    ${level === "whole" ? facts(view) : nothing}`;
}

export const caption = (view) => {
  const coloured = view.sweep.state === "done" ? "by what the word under the cursor loses without it (figure “Which head decides?”)" : "by how sharply it looks from the word under the cursor";
  return {
    whole: html`Read from the bottom. A cell is a head, coloured ${coloured}; the green bar is the share of neurons that fire, beside the fullest layer’s. Beside the decoder stands what each layer would write. Dashed: the residual path. A layer opens; every other box leads to its figure.`,
    layer: html`Solid beside each box: the residual path, which adds what came in to what the sub-layer made. Numbers are lengths of the vectors at the cursor's word. ${view.trace.settings.norm === "pre" ? "This model normalises before each sub-layer." : "This model normalises after each addition, as the paper does."} Escape goes back.`,
    head: html`One row of the attention matrix, as it is computed: the query meets each key, the softmax makes shares, the shares weigh the values. Escape goes back.`,
    dot: html`A dot product, component by component. The three combs have scales of their own. Escape goes back.`,
  }[levelOf(view)];
};

export const table = (view) => ({ columns: ["box", "parameters"], rows: Object.entries(view.trace.model.boxes).filter(([name]) => !/\.(weight|bias)$/.test(name)) });

export const python = (view) => `${opening(view)}boxes = trace.header["model"]["boxes"]
rows = [[name, count] for name, count in boxes.items() if not name.endswith((".weight", ".bias"))]`;
