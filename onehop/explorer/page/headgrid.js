// Every head of the model in three panels, one cell a head: the line-up that several figures share.

import { html } from "onehop/vendor/lit-html.js";
import { roving } from "onehop/controls.js";
import { range } from "onehop/maths.js";
import { ROLES } from "onehop/state.js";
import { ROLE_NAMES } from "onehop/tensors.js";

export const called = ({ role, layer, head }) =>
  `${ROLE_NAMES[role]}, layer ${layer + 1}, head ${head + 1}`;

export const allHeads = (trace) =>
  ROLES.flatMap((role) =>
    range(trace.layers(role)).flatMap((layer) =>
      range(trace.heads).map((head) => ({ role, layer, head })),
    ),
  );

const isAt = (selection, { role, layer, head }) =>
  selection.role === role && selection.layer === layer && selection.head === head;

/**
 * The grid. `cell(place)` gives what stands in a head's cell: `content`, `tip`, and `label`, its value in words. A click
 * chooses the head for the whole page. `marked(place)` cells are ringed.
 */
export function headGrid({ view, label, cell, marked = (_place) => false }) {
  const heads = allHeads(view.trace);
  const indices = new Map(heads.map((place, i) => [called(place), i]));
  const chosen = Math.max(
    0,
    heads.findIndex((place) => isAt(view.selection, place)),
  );
  const choose = (i) => view.choose(heads[i]);
  const button = (place) => {
    const i = indices.get(called(place));
    const { content, tip, label: value, ...data } = cell(place);
    return html`<button
      type="button"
      class="small ${marked(place) ? "marked" : ""}"
      data-place=${i}
      data-head="${place.role}.${place.layer}.${place.head}"
      data-value=${data.value ?? ""}
      aria-pressed=${isAt(view.selection, place)}
      tabindex=${i === chosen ? 0 : -1}
      aria-label="${called(place)}${value ? `: ${value}` : ""}"
      .tip=${tip}
      @click=${() => choose(i)}
      @keydown=${roving(i, heads.length, choose)}
    >
      ${content}
    </button>`;
  };
  const columns = `1.1rem repeat(${view.trace.heads}, minmax(0, 1fr))`;
  const panel = (role) =>
    html`<div class="panel">
      <h4>${ROLE_NAMES[role]}</h4>
      <div class="smalls" style="gap:.12rem;grid-template-columns:${columns}">
        <span></span
        >${range(view.trace.heads).map((h) => html`<span class="count">${h + 1}</span>`)}
        ${range(view.trace.layers(role)).map(
          (layer) =>
            html`<span class="count">${layer + 1}</span
              >${range(view.trace.heads).map((head) => button({ role, layer, head }))}`,
        )}
      </div>
    </div>`;
  return html`<div class="headgrid" data-roving role="group" aria-label=${label}>
    ${ROLES.map(panel)}
  </div>`;
}
