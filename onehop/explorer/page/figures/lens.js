import { html, svg } from "onehop/vendor/lit-html.js";
import { scale, spreadLabels } from "onehop/chart.js";
import { wordPicker } from "onehop/controls.js";
import { traceCode } from "onehop/frame.js";
import { argmax, range } from "onehop/maths.js";
import { clipped, percent, piece } from "onehop/format.js";
import { TEXTS } from "onehop/texts.js";

export const id = "lens";
export const item = 15;
export const { title } = TEXTS.lens;
export const needs = [];
export const compares = true;

const T = TEXTS.lens;
const CANDIDATES = 3;
const CONCEPTS = ["output", "query", "value"];
const DASHES = ["none", "6 4", "2 3"];

const stepOf = (view) => (view.cursor.side === "target" ? view.cursor.index : view.selection.step);

/** The final top candidates with their probabilities after every layer. */
function curves(view) {
  const step = stepOf(view);
  const { top } = view.trace.steps[step];
  return top.slice(0, CANDIDATES).map((c, i) => ({
    token: c.token,
    chosen: c.id === view.trace.steps[step].chosen.id,
    points: view.trace.json.lens.map((layer) => layer[step].candidates[i]),
  }));
}

/** The layer that most changes the top candidate's lead over its best rival. */
function decidingLayer(view) {
  const all = curves(view);
  const lead = view.trace.json.lens.map(
    (_, l) => all[0].points[l] - Math.max(...all.slice(1).map((c) => c.points[l])),
  );
  const steps = lead.map((x, l) => Math.abs(x - (l ? lead[l - 1] : 0)));
  return argmax(steps);
}

function picture(view) {
  const all = curves(view);
  const layers = view.trace.json.lens.length;
  const step = stepOf(view);
  const [width, height] = view.narrow ? [340, 300] : [680, 300];
  const [left, right, top, bottom] = [46, width - (view.narrow ? 78 : 120), 14, height - 78];
  const x = (l) => left + ((right - left) * l) / Math.max(1, layers - 1);
  const y = scale({ min: 0, max: 1 }, bottom, top);
  const labels = spreadLabels(
    all.map((c) => y(c.points.at(-1))),
    top,
    bottom,
  );
  const winner = (l) => view.trace.json.lens[l][step].top[0];
  return html`<svg
    viewBox="0 0 ${width} ${height}"
    style="width:100%;max-width:${width}px"
    role="img"
    aria-label="Probability of ${all.map((c) => piece(c.token)).join(", ")} after each of ${layers} decoder layers"
  >
    ${[0, 0.25, 0.5, 0.75, 1].map((t) => svg`<line class="grid" x1=${left} x2=${right} y1=${y(t)} y2=${y(t)} /><text class="soft" x=${left - 7} y=${y(t) + 4} text-anchor="end">${percent(t, 0)}</text>`)}
    <line class="axis" x1=${left} x2=${right} y1=${bottom} y2=${bottom} />
    ${range(layers).map(
      (l) => svg`<text class="soft" x=${x(l)} y=${bottom + 18} text-anchor="middle">${l + 1}</text>
      <text x=${x(l)} y=${bottom + 40} text-anchor="middle" style="font-size:${view.narrow ? 11.5 : 12.5}px" font-weight="600" data-winner=${winner(l).token}>${clipped(winner(l).token, view.narrow ? 5 : 11)}</text>
      <text class="soft number" x=${x(l)} y=${bottom + 55} text-anchor="middle">${percent(winner(l).p, 0)}</text>`,
    )}
    <text class="soft" x=${(left + right) / 2} y=${height - 4} text-anchor="middle">${T.axis}</text>
    ${all.map(
      (
        c,
        i,
      ) => svg`<path d=${c.points.map((p, l) => `${l ? "L" : "M"}${x(l).toFixed(1)} ${y(p).toFixed(1)}`).join("")} fill="none" stroke="var(--${CONCEPTS[i]})"
      stroke-width=${c.chosen ? 3 : 2} stroke-dasharray=${DASHES[i]} stroke-linejoin="round" />`,
    )}
    ${all.map((c, i) => c.points.map((p, l) => svg`<circle cx=${x(l)} cy=${y(p)} r="4" fill="var(--${CONCEPTS[i]})" data-candidate=${i} data-p=${p} .tip=${`${piece(c.token)} after layer ${l + 1}: ${percent(p, 2)}`} />`))}
    ${all.map((c, i) => svg`<text x=${right + 10} y=${labels[i] + 4} style="fill:var(--${CONCEPTS[i]}-ink)" font-weight=${c.chosen ? 700 : 400}>${clipped(c.token, view.narrow ? 5 : 10)} ${percent(c.points.at(-1), 0)}</text>`)}
  </svg>`;
}

export function draw(view) {
  const { lens } = view.trace.json;
  const [step, at, tokens] = [stepOf(view), decidingLayer(view), view.trace.target.output_tokens];
  const first = (layer) => [piece(layer[step].top[0].token), percent(layer[step].top[0].p)];
  const [before, after] = [at ? first(lens[at - 1]) : null, first(lens[at])];
  const overruled = before && before[0] !== after[0] && at === lens.length - 1;
  const chance =
    curves(view)
      .find((c) => c.chosen)
      ?.points.at(-1) ?? view.trace.steps[step].chosen.p;
  return html` ${wordPicker(view, T.picker)}
    <div style="height:1rem"></div>
    ${picture(view)}
    <p class="reading" data-turn=${at}>
      ${T.most(at + 1, lens.length)}${before ? T.changes(before, after) : T.becomes(after)}
      ${overruled ? T.overrules : ""} ${T.written(piece(tokens[step]), percent(chance))}
    </p>`;
}

export const caption = (view) => T.caption(view.trace.settings.tied);

export const table = (view) => ({
  columns: ["layer", "first choice", "its probability", ...curves(view).map((c) => piece(c.token))],
  rows: view.trace.json.lens.map((layer, l) => [
    l + 1,
    layer[stepOf(view)].top[0].token,
    layer[stepOf(view)].top[0].p,
    ...curves(view).map((c) => c.points[l]),
  ]),
});

export const python = (view) => `${traceCode(view)}rows = []
for layer, steps in enumerate(trace.header["lens"]):
    first = steps[${stepOf(view)}]["top"][0]
    rows.append([layer + 1, first["token"], first["p"], *steps[${stepOf(view)}]["candidates"][:${Math.min(CANDIDATES, view.trace.steps[stepOf(view)].top.length)}]])`;
