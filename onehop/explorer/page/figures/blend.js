import { html, nothing, svg } from "onehop/vendor/lit-html.js";
import { comb, tokenPicker } from "onehop/controls.js";
import { traceCode } from "onehop/frame.js";
import { dot, maxOf, norm, sum, weightedSum } from "onehop/maths.js";
import { frameOf, player } from "onehop/player.js";
import { clipped, number, percent, piece } from "onehop/format.js";
import { TEXTS } from "onehop/texts.js";
import { relativePosition } from "onehop/tips.js";

export const id = "blend";
export const item = 6;
export const title = "Values, their weights, and the blend";
export const needs = ["{attention}.weights", "{attention}.v", "{attention}.head_outputs"];

const T = TEXTS.blend;
const SHOWN = 6;

function parts(view) {
  const { head } = view.selection;
  const weights = Array.from(
    view.trace.part(view.selection, "weights").at({ head, query: view.token }),
  );
  const values = view.trace.part(view.selection, "v").rows({ head });
  const output = view.trace.part(view.selection, "head_outputs").at({ head, query: view.token });
  const order = [...weights.keys()].sort((a, b) => weights[b] - weights[a]);
  return { weights, values, output, order, weighted: weightedSum(weights, values) };
}

/** Colours of the words by rank of their weights; the rest is grey. */
const shadeOf = (n) =>
  n < SHOWN
    ? `color-mix(in srgb, var(--value) ${100 - 15 * n}%, var(--panel))`
    : "color-mix(in srgb, var(--neutral) 45%, var(--panel))";

/**
 * The weighted values stacked for each component: positive parts upwards, negative parts downwards, and a line at
 * their sum.
 */
function stacked({ layers, total, label }) {
  const height = 150;
  const reach = (sign) =>
    maxOf(Array.from(total, (_, c) => sum(layers.map((l) => Math.max(0, sign * l.values[c])))));
  const [up, down] = [reach(1), reach(-1)];
  const y = (v) => 4 + ((up - v) / (up + down || 1)) * (height - 8);
  const ends = { 1: Array.from(total, () => 0), [-1]: Array.from(total, () => 0) };
  const teeth = ({ values }) =>
    Array.from(values, (v, c) => {
      const side = ends[v < 0 ? -1 : 1];
      const from = side[c];
      side[c] += v;
      return v ? `M${c + 0.06} ${y(from).toFixed(2)}h.88V${y(side[c]).toFixed(2)}h-.88z` : "";
    }).join("");
  const line = Array.from(total, (v, c) => `M${c + 0.06} ${y(v).toFixed(2)}h.88`).join("");
  const tip = (event) => {
    const [across] = relativePosition(event, event.target.closest("svg"));
    const c = Math.max(0, Math.min(total.length - 1, Math.floor(across * total.length)));
    const parts = layers.map((l) => `${l.name} ${number(l.values[c], 3)}`).join(", ");
    return `component ${c + 1}: ${parts}; sum ${number(total[c], 3)}`;
  };
  return html`<svg
    viewBox="0 0 ${total.length} ${height}"
    preserveAspectRatio="none"
    style="width:100%;height:${height}px"
    role="img"
    aria-label=${label}
    data-stack
    .tip=${tip}
  >
    ${layers.map((l, n) => svg`<path data-layer=${l.name} data-values=${Array.from(l.values).join(" ")} d=${teeth(l)} fill=${shadeOf(l.rest ? SHOWN : n)} />`)}
    <line
      class="axis"
      x1="0"
      x2=${total.length}
      y1=${y(0)}
      y2=${y(0)}
      vector-effect="non-scaling-stroke"
    />
    <path
      data-sum=${Array.from(total).join(" ")}
      d=${line}
      fill="none"
      stroke="var(--output)"
      stroke-width="3.5"
      vector-effect="non-scaling-stroke"
    />
  </svg>`;
}

export function draw(view) {
  const { weights, values, output, order, weighted } = parts(view);
  const keys = view.trace.keys(view.selection.role);
  const tokens = view.trace.queries(view.selection.role);
  const shown = order.slice(0, SHOWN);
  const scale = maxOf(shown.map((j) => maxOf(Array.from(values[j], Math.abs))));
  const others = order.slice(SHOWN);
  const similarity = dot(output, values[order[0]]) / (norm(output) * norm(values[order[0]]) || 1);
  const error =
    maxOf(Array.from(output, (x, i) => Math.abs(x - weighted[i]))) /
    (maxOf(Array.from(output, Math.abs)) || 1);
  const frame = frameOf(view, id, shown.length + 1);
  const isLastFrame = frame > shown.length;
  const only = (kept) => weights.map((w, j) => (kept.includes(j) ? w : 0));
  const layers = shown
    .slice(0, frame)
    .map((j) => ({ name: piece(keys[j]), values: weightedSum(only([j]), values) }));
  const rest = {
    name: T.rest(others.length),
    values: weightedSum(only(others), values),
    rest: true,
  };
  const last = order[Math.min(frame, order.length) - 1];
  const status = frame ? T.added(piece(keys[last]), number(weights[last], 3)) : T.none;
  return html` ${tokenPicker({ label: "Token", tokens, value: view.selection.token, previewed: view.previewed, choose: view.chooseToken, preview: view.preview })}
    ${player(view, { id, frames: shown.length + 1, label: T.player, status })}
    <div class="lanes tight">
      ${shown.map(
        (j, n) =>
          html`<span class="name"
              ><i class="swatch" style="background:${shadeOf(n)}"></i>
              <b class="c-value"><bdi>${clipped(keys[j])}</bdi></b> ×
              <span class="numbers c-weight">${number(weights[j], 3)}</span></span
            >
            <div style="opacity:${n >= frame ? 0.25 : 1}" data-added=${n < frame}>
              ${comb({ values: values[j], concept: "value", label: `Value of ${piece(keys[j])}, weight ${number(weights[j], 3)}`, scale })}
            </div>`,
      )}
    </div>
    <h4 style="margin-top:1.2rem">
      ${T.stack} <b class="c-output">${T.sum}</b> “<bdi>${piece(tokens[view.token])}</bdi>”
    </h4>
    ${stacked({ layers: isLastFrame && others.length ? [...layers, rest] : layers, total: isLastFrame ? output : weightedSum(only(shown.slice(0, frame)), values), label: T.stackLabel })}
    ${
      others.length
        ? html`<ul class="legend">
            <li>
              <i style="background:${shadeOf(SHOWN)}"></i>${T.rest(others.length)}:
              <span class="numbers">${number(sum(others.map((j) => weights[j])), 3)}</span>
            </li>
          </ul>`
        : nothing
    }
    <p class="reading">
      The two most attended words give
      <strong>${percent(sum(order.slice(0, 2).map((j) => weights[j])))}</strong> of the blend; its
      cosine with the first one's value is <strong>${number(similarity, 2)}</strong>. Added up in
      this page, the sum differs from the recorded output by
      <span class="numbers">${number(error, 5)}</span> of its largest number.
    </p>`;
}

export const caption = () =>
  html`Above, the values as they are, on one scale. Below, each times its weight, stacked for every
  component: parts that point apart cancel, and the gold line is what is left.`;

export const table = (view) => {
  const { weights, values, order } = parts(view);
  const keys = view.trace.keyPieces(view.selection.role);
  return {
    columns: ["key", "weight", "length of value", "weight × length"],
    rows: order.map((j) => [keys[j], weights[j], norm(values[j]), weights[j] * norm(values[j])]),
  };
};

export const python = (view) => {
  const { role, layer, head } = view.selection;
  const at = view.trace.path(role, layer);
  const keys =
    role === "decoder"
      ? 'trace.header["target"]["input_tokens"]'
      : 'trace.header["source"]["tokens"]';
  return `import numpy as np

${traceCode(view)}weights = trace["${at}.weights"][${head}, ${view.token}].astype(float)
values = trace["${at}.v"][${head}].astype(float)
output = weights @ values  # trace["${at}.head_outputs"][${head}, ${view.token}]
lengths = np.linalg.norm(values, axis=1)
order = np.argsort(-weights, kind="stable")
rows = [[${keys}[j], float(weights[j]), float(lengths[j]), float(weights[j] * lengths[j])] for j in order]`;
};
