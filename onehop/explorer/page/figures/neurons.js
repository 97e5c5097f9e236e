import { html, nothing } from "onehop/vendor/lit-html.js";
import { pixelPicture } from "onehop/colour.js";
import { picker, tokenPicker } from "onehop/controls.js";
import { opening } from "onehop/frame.js";
import { largest, range } from "onehop/maths.js";
import { count, number, percent, piece } from "onehop/text.js";
import { shareOf } from "onehop/tips.js";

export const id = "neurons";
export const item = 13;
export const title = "Which neurons fire, and what they write";
export const needs = ["{feed_forward}.hidden"];

const STRONGEST = 8;
const WIDE = 128;

const stackOf = (view) => (view.selection.role === "encoder" ? "encoder" : "decoder");
const pathOf = (view) => `${stackOf(view)}.layers.${view.selection.layer}.feed_forward.hidden`;
const hiddenOf = (view) => Array.from(view.trace.tensor(pathOf(view)).at({ token: view.token }));

/** The places of the neurons with the largest output, the strongest first. */
const strongest = (hidden) => [...hidden.keys()].sort((a, b) => Math.abs(hidden[b]) - Math.abs(hidden[a])).slice(0, STRONGEST);

/** All neurons of the position as a field of cells, row after row. */
function field(view, hidden) {
  const top = Math.max(1e-9, largest(hidden.map(Math.abs)));
  const across = view.narrow ? WIDE / 4 : WIDE;
  const rows = range(Math.ceil(hidden.length / across)).map((r) => range(across).map((c) => Math.sqrt(Math.abs(hidden[r * across + c] ?? 0) / top)));
  const tip = (event) => {
    const [x, y] = shareOf(event, event.target);
    const i = Math.floor(y * rows.length) * across + Math.floor(x * across);
    return i in hidden ? `neuron ${i + 1}: ${number(hidden[i], 3)}` : null;
  };
  return html`<img class="pixels" style="--ratio:${across} / ${rows.length}" .tip=${tip} alt="${count(hidden.length)} neurons, darker fires more"
    src=${pixelPicture(`${view.stamp} ${pathOf(view)} ${view.token} ${across}`, rows, view.rgb("value"))} />`;
}

const words = (found) => html`${found.map((t, i) => html`${i ? ", " : ""}<bdi>${piece(t.token)}</bdi>`)}`;

function writes(view, hidden, places) {
  const { layer } = view.selection;
  const stack = stackOf(view);
  const found = view.resource(`neurons ${view.trace.model.hash} ${stack} ${layer} ${places.join()}`, () => view.home.neurons(stack, layer, places));
  if (found.error) return html`<p class="reading">${found.error}</p>`;
  if (!found.value) return html`<p class="reading" role="status">Reading what they write …</p>`;
  return html`<div class="scroll" tabindex="0" role="region" aria-label="What the strongest neurons write"><table>
      <thead><tr><th scope="col">neuron</th><th scope="col">fires</th><th scope="col">adds a vector of length</th>${stack === "decoder" ? html`<th scope="col" class="words">towards</th><th scope="col" class="words">away from</th>` : nothing}</tr></thead>
      <tbody>${found.value.map((n) => html`<tr data-neuron=${n.neuron}><th scope="row">${n.neuron + 1}</th><td data-value=${hidden[n.neuron]}>${number(hidden[n.neuron], 2)}</td><td>${number(Math.abs(hidden[n.neuron]) * n.norm, 2)}</td>
        ${n.towards ? html`<td class="words">${words(n.towards)}</td><td class="words">${words(n.away)}</td>` : nothing}</tr>`)}</tbody>
    </table></div>
    ${stack === "encoder" ? html`<p class="reading">No output matrix reads the encoder's vectors, so what its neurons write has no words.</p>` : nothing}`;
}

export function draw(view) {
  const { trace, selection } = view;
  const hidden = hiddenOf(view);
  const places = strongest(hidden);
  const fires = hidden.filter((h) => h > 0).length;
  const tokens = trace.queries(selection.role);
  return html`
    ${tokenPicker({ label: "Token", tokens, value: selection.token, previewed: view.previewed, choose: view.chooseToken, preview: view.preview })}
    <div class="controls" style="margin-top:.9rem">${picker({ label: "Layer", options: range(trace.layers(stackOf(view))).map((l) => [l, l + 1]), value: selection.layer, choose: (l) => view.choose({ layer: Number(l) }) })}
      <span>of the ${stackOf(view)}</span></div>
    <p class="reading" style="margin:0 0 .8rem" data-fires=${fires}>At “<strong><bdi>${piece(tokens[view.token])}</bdi></strong>”, <strong>${count(fires)}</strong> of ${count(hidden.length)} neurons are above zero, ${percent(fires / hidden.length)}.</p>
    ${field(view, hidden)}
    <h4 style="margin-top:1.3rem">The ${places.length} that fire most</h4>
    ${writes(view, hidden, places)}`;
}

export const caption = (view) => html`Each position on its own: ${count(view.trace.settings.d_model)} numbers become ${count(view.trace.settings.d_ff)}, ${view.trace.settings.activation === "relu" ? "those below zero are set to zero" : `bent by ${view.trace.settings.activation}`}, and each one left adds its own
  vector to the stream. What it writes towards is read directly through the output matrix, past the layers above; many neurons mean nothing that one can name.`;

export const table = (view) => {
  const hidden = hiddenOf(view);
  return { columns: ["neuron", "fires"], rows: strongest(hidden).map((i) => [i + 1, hidden[i]]) };
};

export const python = (view) => `import numpy as np

${opening(view)}hidden = trace["${pathOf(view)}"][${view.token}].astype(float)
order = np.argsort(-np.abs(hidden), kind="stable")[:${STRONGEST}].tolist()
rows = [[i + 1, float(hidden[i])] for i in order]`;
