import { html, nothing } from "onehop/vendor/lit-html.js";
import { cachedImage } from "onehop/colour.js";
import { picker, tokenPicker } from "onehop/controls.js";
import { traceCode } from "onehop/frame.js";
import { maxOf, range } from "onehop/maths.js";
import { count, number, percent, piece } from "onehop/format.js";
import { TEXTS } from "onehop/texts.js";
import { relativePosition } from "onehop/tips.js";

export const id = "neurons";
export const item = 13;
export const { title } = TEXTS.neurons;
export const needs = ["{feed_forward}.hidden"];

const T = TEXTS.neurons;
const STRONGEST = 8;
const WIDE = 128;

const stackOf = (view) => (view.selection.role === "encoder" ? "encoder" : "decoder");
const pathOf = (view) => `${stackOf(view)}.layers.${view.selection.layer}.feed_forward.hidden`;
const hiddenOf = (view) => Array.from(view.trace.tensor(pathOf(view)).at({ token: view.token }));

/** The indices of the neurons with the largest outputs, in descending order. */
const strongest = (hidden) =>
  [...hidden.keys()].sort((a, b) => Math.abs(hidden[b]) - Math.abs(hidden[a])).slice(0, STRONGEST);

/** All neurons of the position as a field of cells. */
function field(view, hidden) {
  const top = Math.max(1e-9, maxOf(hidden.map(Math.abs)));
  const across = view.narrow ? WIDE / 2 : WIDE;
  const down = Math.ceil(hidden.length / across);
  const strengths = () =>
    range(down).map((r) =>
      range(across).map((c) => Math.sqrt(Math.abs(hidden[r * across + c] ?? 0) / top)),
    );
  const tip = (event) => {
    const [x, y] = relativePosition(event, event.target);
    const i = Math.floor(y * down) * across + Math.floor(x * across);
    return i in hidden ? T.neuron(i + 1, number(hidden[i], 3)) : null;
  };
  return html`<img
    class="pixels"
    style="--ratio:${across} / ${down}"
    .tip=${tip}
    alt=${T.field(count(hidden.length))}
    src=${cachedImage(`${view.traceKey} ${pathOf(view)} ${view.token} ${across}`, strengths, view.rgb("value"))}
  />`;
}

const words = (tokens) =>
  html`${tokens.map((t, i) => html`${i ? " · " : ""}<bdi>${piece(t.token)}</bdi>`)}`;

function writtenTokens(view, hidden, indices) {
  const { layer } = view.selection;
  const stack = stackOf(view);
  const response = view.resource(
    `neurons ${view.trace.model.hash} ${stack} ${layer} ${indices.join()}`,
    () => view.backend.neurons(stack, layer, indices),
  );
  if (response.error) return html`<p class="reading">${response.error}</p>`;
  if (!response.value) return html`<p class="reading" role="status">${T.reading}</p>`;
  return html`<div
      class="scroll"
      tabindex="0"
      role="region"
      aria-label="What the strongest neurons write"
    >
      <table>
        <thead>
          <tr>
            ${T.columns.slice(0, view.narrow ? 2 : 3).map((name) => html`<th scope="col">${name}</th>`)}${stack === "decoder" ? T.columns.slice(3, view.narrow ? 4 : 5).map((name) => html`<th scope="col" class="words">${name}</th>`) : nothing}
          </tr>
        </thead>
        <tbody>
          ${response.value.map(
            (n) =>
              html`<tr data-neuron=${n.neuron}>
                <th scope="row">${n.neuron + 1}</th>
                <td data-value=${hidden[n.neuron]}>${number(hidden[n.neuron], 2)}</td>
                ${view.narrow ? nothing : html`<td>${number(Math.abs(hidden[n.neuron]) * n.norm, 2)}</td>`}
                ${
                  n.towards
                    ? html`<td class="words">${words(n.towards)}</td>
                        ${view.narrow ? nothing : html`<td class="words">${words(n.away)}</td>`}`
                    : nothing
                }
              </tr>`,
          )}
        </tbody>
      </table>
    </div>
    ${stack === "encoder" ? html`<p class="reading">${T.encoder}</p>` : nothing}`;
}

export function draw(view) {
  const { trace, selection } = view;
  const hidden = hiddenOf(view);
  const indices = strongest(hidden);
  const fires = hidden.filter((h) => h > 0).length;
  const tokens = trace.queries(selection.role);
  return html` ${tokenPicker({ label: T.picker, tokens, value: selection.token, previewed: view.previewed, choose: view.chooseToken, preview: view.preview })}
    <div class="controls" style="margin-top:.9rem">
      ${picker({ label: T.layer, options: range(trace.layers(stackOf(view))).map((l) => [l, l + 1]), value: selection.layer, choose: (l) => view.choose({ layer: Number(l) }) })}
      <span>${T.of(stackOf(view))}</span>
    </div>
    <p class="reading" style="margin:0 0 .8rem" data-fires=${fires}>
      ${T.fires(piece(tokens[view.token]), count(fires), count(hidden.length), percent(fires / hidden.length))}
    </p>
    ${field(view, hidden)}
    <h4 style="margin-top:1.3rem">${T.strongest(view.narrow ? 4 : indices.length)}</h4>
    ${writtenTokens(view, hidden, view.narrow ? indices.slice(0, 4) : indices)}`;
}

export const caption = (view) => {
  const { d_model, d_ff, activation } = view.trace.settings;
  return T.caption({ d_model: count(d_model), d_ff: count(d_ff), activation });
};

export const table = (view) => {
  const hidden = hiddenOf(view);
  return { columns: ["neuron", "fires"], rows: strongest(hidden).map((i) => [i + 1, hidden[i]]) };
};

export const python = (view) => `import numpy as np

${traceCode(view)}hidden = trace["${pathOf(view)}"][${view.token}].astype(float)
order = np.argsort(-np.abs(hidden), kind="stable")[:${STRONGEST}].tolist()
rows = [[i + 1, float(hidden[i])] for i in order]`;
