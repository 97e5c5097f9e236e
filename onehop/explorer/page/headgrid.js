// Every head of the model in three panels, one cell a head; several figures use it.

import { html } from "onehop/vendor/lit-html.js";
import { roving } from "onehop/controls.js";
import { range } from "onehop/maths.js";
import { ROLES } from "onehop/state.js";
import { ATTENTION_NAMES, ROLE_NAMES } from "onehop/tensors.js";

export const headName = ({ role, layer, head }) =>
  `${ATTENTION_NAMES[role]}, layer ${layer + 1}, head ${head + 1}`;

const allHeads = (trace) =>
  ROLES.flatMap((role) =>
    range(trace.layers(role)).flatMap((layer) =>
      range(trace.heads).map((head) => ({ role, layer, head })),
    ),
  );

const isSelected = (selection, { role, layer, head }) =>
  selection.role === role && selection.layer === layer && selection.head === head;

/**
 * The grid. `cell(head)` gives a head's `content`, `tip`, and `label`. A click selects the head for the whole page.
 */
export function headGrid({ view, label, cell, isMarked = (_place) => false }) {
  const heads = allHeads(view.trace);
  const indices = new Map(heads.map((headRef, i) => [headName(headRef), i]));
  const chosen = Math.max(
    0,
    heads.findIndex((headRef) => isSelected(view.selection, headRef)),
  );
  const choose = (i) => view.choose(heads[i]);
  const button = (headRef) => {
    const i = indices.get(headName(headRef));
    const { content, tip, label: value, ...data } = cell(headRef);
    return html`<button
      type="button"
      class="small ${isMarked(headRef) ? "marked" : ""}"
      data-index=${i}
      data-head="${headRef.role}.${headRef.layer}.${headRef.head}"
      data-value=${data.value ?? ""}
      aria-pressed=${isSelected(view.selection, headRef)}
      tabindex=${i === chosen ? 0 : -1}
      aria-label="${headName(headRef)}${value ? `: ${value}` : ""}"
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
