import { html } from "onehop/vendor/lit-html.js";
import { comb, tokenPicker } from "onehop/controls.js";
import { opening } from "onehop/frame.js";
import { dot, largest, norm, sum, weightedSum } from "onehop/maths.js";
import { frameOf, player } from "onehop/player.js";
import { number, percent, piece } from "onehop/text.js";
import { TEXTS } from "onehop/texts.js";

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
  return { weights, values, output, order, made: weightedSum(weights, values) };
}

export function draw(view) {
  const { weights, values, output, order, made } = parts(view);
  const keys = view.trace.keys(view.selection.role);
  const tokens = view.trace.queries(view.selection.role);
  const shown = order.slice(0, SHOWN);
  const scale = largest([
    ...shown.map((j) => largest(Array.from(values[j], Math.abs))),
    largest(Array.from(output, Math.abs)),
  ]);
  const rest = sum(order.slice(SHOWN).map((j) => weights[j]));
  const alike = dot(output, values[order[0]]) / (norm(output) * norm(values[order[0]]) || 1);
  const off =
    largest(Array.from(output, (x, i) => Math.abs(x - made[i]))) /
    (largest(Array.from(output, Math.abs)) || 1);
  const frame = frameOf(view, id, shown.length + 1);
  const whole = frame > shown.length;
  const partial = weightedSum(
    weights.map((w, j) => (whole || order.indexOf(j) < frame ? w : 0)),
    values,
  );
  const last = order[Math.min(frame, order.length) - 1];
  const says = frame ? T.added(piece(keys[last]), number(weights[last], 3)) : T.none;
  return html` ${tokenPicker({ label: "Token", tokens, value: view.selection.token, previewed: view.previewed, choose: view.chooseToken, preview: view.preview })}
    ${player(view, { id, frames: shown.length + 1, label: T.player, says })}
    <div class="lanes" style="margin-top:1.1rem">
      ${shown.map(
        (j, n) =>
          html`<span class="name"
              ><span class="numbers c-weight">${number(weights[j], 3)}</span> ×
              <b class="c-value"><bdi>${piece(keys[j])}</bdi></b></span
            >
            <div
              style="opacity:${n >= frame ? 0.1 : (0.25 + 0.75 * Math.sqrt(weights[j] / (weights[order[0]] || 1))).toFixed(2)}"
              data-added=${n < frame}
            >
              ${comb({ values: values[j], concept: "value", label: `Value of ${piece(keys[j])}, weight ${number(weights[j], 3)}`, scale })}
            </div>`,
      )}
      ${order.length > SHOWN ? html`<span class="name numbers">${number(rest, 3)}</span><span class="reading" style="margin:0">for the other ${order.length - SHOWN} together</span>` : ""}
      <span class="name"
        ><b class="c-output">output</b> of “<bdi>${piece(tokens[view.token])}</bdi>”</span
      >
      ${comb({ values: whole ? output : partial, concept: "output", label: "The output: the weighted sum of the values", scale, height: 56 })}
    </div>
    <p class="reading">
      The two most attended words give
      <strong>${percent(sum(order.slice(0, 2).map((j) => weights[j])))}</strong> of the blend; its
      cosine with the first one's value is <strong>${number(alike, 2)}</strong>. Added up in this
      page, the sum differs from the recorded output by
      <span class="numbers">${number(off, 5)}</span> of its largest number.
    </p>`;
}

export const caption = () =>
  html`All combs share one scale, so a value counts by its weight and by its own length.`;

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

${opening(view)}weights = trace["${at}.weights"][${head}, ${view.token}].astype(float)
values = trace["${at}.v"][${head}].astype(float)
output = weights @ values  # trace["${at}.head_outputs"][${head}, ${view.token}]
lengths = np.linalg.norm(values, axis=1)
order = np.argsort(-weights, kind="stable")
rows = [[${keys}[j], float(weights[j]), float(lengths[j]), float(weights[j] * lengths[j])] for j in order]`;
};
