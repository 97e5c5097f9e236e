// Two translations side by side in every figure that shows one, and where their numbers differ most.

import { html, nothing } from "onehop/vendor/lit-html.js";
import { MODEL, TRAINED } from "onehop/state.js";
import { CONTINUED, joinByteTokens, number } from "onehop/format.js";
import { TEXTS } from "onehop/texts.js";

const T = TEXTS.compare;
const SHOWN = 3;

/** Names numbered by occurrence, so that repeated names can be paired. */
function counted(names) {
  const counts = new Map();
  return names.map((name) => {
    counts.set(name, (counts.get(name) ?? 0) + 1);
    return `${name}\u0000${counts.get(name)}`;
  });
}

/** A row's name: its first cell, and for heads also the layer and the head. */
function rowNames({ columns, rows }) {
  const isOfHeads = columns.slice(0, 3).join() === "attention,layer,head";
  return rows.map(([first, layer, head]) =>
    isOfHeads ? `${first}, layer ${layer}, head ${head}` : String(first),
  );
}

const shownName = (name) => name.split("\u0000")[0].replace(/^▁/, "");

/** The largest differences of two tables, paired by row and column names, and the rows that only one table has. */
export function differences(one, two) {
  const [rows, others] = [one, two].map((t) => counted(rowNames(t)));
  const [columns, otherColumns] = [one, two].map((t) => counted(t.columns));
  const changes = [];
  rows.forEach((row, i) => {
    const k = others.indexOf(row);
    if (k < 0) return;
    columns.slice(1).forEach((column, j) => {
      const c = otherColumns.indexOf(column);
      const [from, to] = [one.rows[i][j + 1], two.rows[k][c]];
      if (c > 0 && typeof from === "number" && typeof to === "number" && from !== to)
        changes.push({ row: shownName(row), column: shownName(column), from, to });
    });
  });
  const only = (names, others) => names.filter((row) => !others.includes(row)).map(shownName);
  return {
    largest: changes
      .sort((a, b) => Math.abs(b.to - b.from) - Math.abs(a.to - a.from))
      .slice(0, SHOWN),
    only: [only(rows, others), only(others, rows)],
  };
}

const highlightedList = (names) =>
  joinByteTokens(names)
    .filter((name) => name !== CONTINUED)
    .slice(0, 6)
    .map((name, i) => html`${i ? ", " : ""}<mark class="changed"><bdi>${name}</bdi></mark>`);

function differenceText(figure, view, other) {
  const table = figure.table(view);
  const [name] = table.columns;
  const { largest, only } = differences(table, figure.table(other));
  if (!largest.length && !only.some((names) => names.length))
    return html`<p class="reading" data-differences="0">${T.same}</p>`;
  return html`<p class="reading" data-differences=${largest.length}>
    ${largest.length ? T.largest : nothing}
    ${largest.map(
      ({ row, column, from, to }, i) =>
        html`${i ? "; " : ""}<span data-from=${from} data-to=${to}
            >${name} “<bdi>${row}</bdi>”, ${column}: ${number(from)} →
            <strong>${number(to)}</strong></span
          >`,
    )}${largest.length ? ". " : nothing}
    ${only[0].length ? html`${T.onlyLeft} ${highlightedList(only[0])}. ` : nothing}
    ${only[1].length ? html`${T.onlyRight} ${highlightedList(only[1])}.` : nothing}
  </p>`;
}

/** Whether a figure shows the translation; a figure may override this. */
export const isCompared = (figure) => figure.compares ?? figure.needs.length > 0;

/** The title of each side: the model where there are two, else the sentence. */
export function paneTitles(...traces) {
  const [one, two] = traces.map(({ model }) => model);
  if (one.hash === two.hash) return traces.map((trace) => T.name(trace.source.text, trace.edits));
  const hash = (model) => (one.name === two.name ? ` (${model.hash.slice(0, 8)})` : "");
  return traces.map(({ model, edits }) => T.name(model.name + hash(model), edits));
}

/** A figure twice. The left one controls both. The right one is inert; its own form keeps its radio buttons apart. */
export function sideBySide(figure, view, draw) {
  const other = view.otherView();
  const [title, otherTitle] = paneTitles(view.trace, other.trace);
  const pane = (v, text) =>
    html`<h4 class="side"><bdi>${text}</bdi></h4>
      ${draw(() => figure.draw(v))}`;
  return html`<div class="compared" data-compared>
      <div>${pane({ ...view, narrow: true }, title)}</div>
      <form inert>${pane(other, otherTitle)}</form>
    </div>
    ${draw(() => differenceText(figure, view, other))}`;
}

/** The form that chooses what to compare with: another sentence, another model, or the unedited model. */
export function comparisonForm(view) {
  if (view.backend.kind !== "live") return nothing;
  const { against } = view.selection;
  const begin = (text) => view.choose({ against: text });
  const submit = (event) => {
    event.preventDefault();
    begin(event.target.elements.against.value.trim());
  };
  const shown = against === TRAINED || against.startsWith(MODEL) ? "" : against;
  const model = view.backend.other?.data.about.model.name;
  return html`<form class="against" @submit=${submit}>
    <label
      >${T.with}
      <input
        name="against"
        list="offered"
        .value=${shown}
        placeholder=${T.placeholder}
        autocomplete="off"
        spellcheck="false"
    /></label>
    <datalist id="offered">
      ${view.about.sentences
        .filter((s) => s !== view.base.source.text)
        .map((s) => html`<option value=${s}></option>`)}
    </datalist>
    <button type="submit">${T.begin}</button>
    ${view.trace.edits.length && against !== TRAINED ? html`<button type="button" data-against-trained @click=${() => begin(TRAINED)}>${T.withTrained}</button>` : nothing}
    ${model && against !== MODEL + model ? html`<button type="button" data-against-model @click=${() => begin(MODEL + model)}>${T.withModel(model)}</button>` : nothing}
    ${against ? html`<button type="button" class="quiet" data-stop-comparing @click=${() => begin("")}>${T.end}</button>` : nothing}
    ${view.otherError ? html`<p class="error">${view.otherError}</p>` : nothing}
  </form>`;
}
