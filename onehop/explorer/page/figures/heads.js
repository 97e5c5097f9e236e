import { html } from "onehop/vendor/lit-html.js";
import { pixelPicture } from "onehop/colour.js";
import { bars, roving, segments } from "onehop/controls.js";
import { opening } from "onehop/frame.js";
import { shade } from "onehop/heatmap.js";
import { entropy, mean, range, sum } from "onehop/maths.js";
import { ROLES } from "onehop/state.js";
import { ROLE_NAMES } from "onehop/tensors.js";
import { number, piece } from "onehop/text.js";

export const id = "heads";
export const item = 8;
export const title = "Heads side by side, and their average";
export const needs = ["{attention}.weights"];

const tensor = (view, role, layer) => view.trace.tensor(`${view.trace.path(role, layer)}.weights`);
const averaged = (rows) => rows[0].map((_, j) => mean(rows.map((row) => row[j])));

/** The chosen token's row in every head of the chosen layer. */
function headRows(view) {
  const { role, layer } = view.selection;
  return range(view.trace.heads).map((head) => Array.from(tensor(view, role, layer).at({ head, query: view.token })));
}

/** Half the summed difference: 0 for the same distribution, 1 for none in common. */
const distance = (a, b) => sum(a.map((x, j) => Math.abs(x - b[j]))) / 2;

function small(view, role, layer, head, place, places) {
  const { selection, trace } = view;
  const on = selection.role === role && selection.layer === layer && selection.head === head;
  const rows = tensor(view, role, layer).rows({ head }).map((row) => Array.from(row, shade));
  const choose = (p) => view.choose(places[p]);
  return html`<button type="button" class="small" data-place=${place} aria-pressed=${on} tabindex=${on || (place === 0 && !places.some((p) => isOn(selection, p))) ? 0 : -1}
    aria-label="${ROLE_NAMES[role]}, layer ${layer + 1}, head ${head + 1}" title="${ROLE_NAMES[role]}, layer ${layer + 1}, head ${head + 1}"
    @click=${() => choose(place)} @keydown=${roving(place, places.length, choose)}
    ><img alt="" style="--ratio:${rows[0].length} / ${rows.length}" src=${pixelPicture(`${view.stamp} ${role} ${layer} ${head}`, rows, view.rgb("weight"))}
  /></button>`;
}

const isOn = (selection, p) => selection.role === p.role && selection.layer === p.layer && selection.head === p.head;

function grid(view, show) {
  const { role, layer } = view.selection;
  const roles = show === "all" ? ROLES : [role];
  const layers = (r) => (show === "layer" ? [layer] : range(view.trace.layers(r)));
  const places = roles.flatMap((r) => layers(r).flatMap((l) => range(view.trace.heads).map((h) => ({ role: r, layer: l, head: h }))));
  let place = 0;
  return html`<div data-roving role="group" aria-label="All heads shown; arrow keys move between them">
    ${roles.map((r) => html`${show === "all" ? html`<h4 style="margin:.9rem 0 .3rem">${ROLE_NAMES[r]}</h4>` : ""}
      <div class="smalls" style="gap:${show === "layer" ? ".5rem" : ".2rem"};grid-template-columns:${show === "layer" ? `repeat(${view.narrow ? Math.min(4, view.trace.heads) : view.trace.heads}, 1fr)` : `1.4rem repeat(${view.trace.heads}, minmax(0, 1fr))`}">
        ${layers(r).map((l) => html`${show === "layer" ? "" : html`<span class="numbers" style="align-self:center;color:var(--soft)">${l + 1}</span>`}${range(view.trace.heads).map((h) => small(view, r, l, h, place++, places))}`)}
      </div>`)}
  </div>`;
}

export function draw(view) {
  const show = view.dial("heads.show", "layer");
  const { role, layer, head } = view.selection;
  const rows = headRows(view);
  const average = averaged(rows);
  const keys = view.trace.keys(role);
  const pairs = rows.flatMap((a, i) => rows.slice(i + 1).map((b) => distance(a, b)));
  const total = ROLES.reduce((n, r) => n + view.trace.layers(r) * view.trace.heads, 0);
  const options = [["layer", `layer ${layer + 1}`], ["role", `all layers`], ["all", `all ${total} heads`]];
  const column = (heading, weights, concept) => html`<div><h4>${heading}</h4>
    ${bars({ rows: keys.map((k, j) => ({ name: piece(k), value: weights[j] })), concept, number, from: 0, to: 1, most: 20 })}
    <p class="reading numbers">entropy ${number(entropy(weights), 2)} bits</p></div>`;
  return html`
    <div class="controls">${segments({ name: "heads-show", label: "Which heads", options, value: show, choose: (s) => view.turn("heads.show", s) })}
      <button type="button" @click=${() => view.choose({ head: (head + view.trace.heads - 1) % view.trace.heads })}>previous head</button>
      <button type="button" @click=${() => view.choose({ head: (head + 1) % view.trace.heads })}>next head</button></div>
    ${grid(view, show)}
    <div class="columns" style="margin-top:1.4rem">
      ${column(html`Head ${head + 1}, from “<bdi>${piece(view.trace.queries(role)[view.token])}</bdi>”`, rows[head], "weight")}
      ${column(`The average of all ${view.trace.heads} heads`, average, "neutral")}
    </div>
    <p class="reading">Two heads of this layer share on average <strong>${number(100 * (1 - mean(pairs.length ? pairs : [0])), 0)} %</strong> of their weight from this token.
      A head has ${number(mean(rows.map(entropy)), 2)} bits of entropy on average, their average ${number(entropy(average), 2)}: averaging blurs.</p>`;
}

export const caption = (view) => html`Each small picture is one head's matrix, rows ask and columns are asked, shaded by the root of the weight${view.dial("heads.show", "layer") === "layer" ? "" : "; a line of pictures is a layer"}. Click one and the whole page follows.`;

export const table = (view) => {
  const rows = headRows(view);
  const keys = view.trace.keys(view.selection.role);
  const average = averaged(rows);
  return { columns: ["key", ...rows.map((_, h) => `head ${h + 1}`), "average"], rows: keys.map((k, j) => [k, ...rows.map((row) => row[j]), average[j]]) };
};

export const python = (view) => {
  const { role, layer } = view.selection;
  const keys = role === "decoder" ? 'trace.header["target"]["input_tokens"]' : 'trace.header["source"]["tokens"]';
  return `${opening(view)}weights = trace["${view.trace.path(role, layer)}.weights"][:, ${view.token}].astype(float)
rows = [[key, *map(float, weights[:, j]), float(weights[:, j].mean())] for j, key in enumerate(${keys})]`;
};
