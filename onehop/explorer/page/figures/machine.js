import { html, nothing } from "onehop/vendor/lit-html.js";
import { segments } from "onehop/controls.js";
import { traceCode } from "onehop/frame.js";
import { headName } from "onehop/headgrid.js";
import { dotScene, headScene, keyOf } from "onehop/machine/head.js";
import { layerScene, stackOf } from "onehop/machine/layer.js";
import { LEVELS, breadcrumbs, currentLevel, parameterCount, zoom } from "onehop/machine/parts.js";
import { FAMILY, machineScene } from "onehop/machine/whole.js";
import { count, number, piece, short } from "onehop/format.js";
import { TEXTS } from "onehop/texts.js";

export const id = "machine";
export const item = 13;
export const { title } = TEXTS.machine;
export const needs = [
  "{attention}.q",
  "{attention}.k",
  "{attention}.scores",
  "{attention}.weights",
  "{attention}.head_outputs",
  "{feed_forward}.hidden",
];

const T = TEXTS.machine;
const SCENES = { whole: machineScene, layer: layerScene, head: headScene, dot: dotScene };

/** The levels from the whole machine down to the current one. */
function levelPath(view) {
  const { role, layer } = view.selection;
  const [queries, keys] = [view.trace.queries(role), view.trace.keys(role)];
  const names = {
    whole: () => T.whole,
    layer: () => T.layer(stackOf(view), layer + 1),
    head: () => headName(view.selection),
    dot: () => `${piece(queries[view.token])} · ${piece(keys[keyOf(view)])}`,
  };
  return LEVELS.slice(0, LEVELS.indexOf(currentLevel(view)) + 1).map((level) => [
    level,
    names[level](),
  ]);
}

function ratio(view, stack) {
  const path = `${stack}.layers.0`;
  const attention =
    parameterCount(view, `${path}.self_attention`) +
    parameterCount(view, `${path}.cross_attention`);
  return parameterCount(view, `${path}.feed_forward`) / attention;
}

/** The numbers below the whole machine. */
function facts(view) {
  const chosen = view.dial("machine.family", "transformer");
  const family = chosen in FAMILY ? chosen : "transformer";
  const options = Object.entries(FAMILY).map(([key, { name }]) => [key, name]);
  const choose = (key) => view.setDial("machine.family", key);
  const [encoder, decoder] = ["encoder", "decoder"].map((stack) => number(ratio(view, stack), 2));
  return html`<div class="controls" style="margin:1rem 0 0">
      ${segments({ name: "machine-family", label: T.family.label, options, value: family, choose })}
      <span>${T.family[family]}</span>
    </div>
    <p class="reading">
      ${T.ratio(encoder, decoder)}
      ${T.tied(view.trace.settings.tied ? short(parameterCount(view, "embedding")) : null)}
      ${T.inAll(count(view.trace.model.parameters))}
    </p>`;
}

const step = (view) => (event) => {
  const at = LEVELS.indexOf(currentLevel(view));
  if (event.key === "Escape" && at > 0) zoom(view, event, LEVELS[at - 1]);
};

export function draw(view) {
  const level = currentLevel(view);
  return html`<div class="machine" data-level=${level} tabindex="-1" @keydown=${step(view)}>
      ${breadcrumbs(view, levelPath(view))}
      <div class="scene">${SCENES[level](view)}</div>
    </div>
    ${level === "whole" ? facts(view) : nothing}`;
}

export const caption = (view) =>
  ({
    whole: () => T.captions.whole(view.sweep.state === "done"),
    layer: () => T.captions.layer(view.trace.settings.norm === "pre"),
    head: () => T.captions.head,
    dot: () => T.captions.dot,
  })[currentLevel(view)]();

export const table = (view) => ({
  columns: ["box", "parameters"],
  rows: Object.entries(view.trace.model.boxes).filter(([name]) => !/\.(weight|bias)$/.test(name)),
});

export const python = (view) => `${traceCode(view)}boxes = trace.header["model"]["boxes"]
rows = [[name, count] for name, count in boxes.items() if not name.endswith((".weight", ".bias"))]`;
