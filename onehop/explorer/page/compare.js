// Two translations side by side in every figure that shows one, and where their numbers differ most.

import { html, nothing } from "onehop/vendor/lit-html.js";
import { MODEL, TRAINED } from "onehop/state.js";
import { number } from "onehop/text.js";
import { TEXTS } from "onehop/texts.js";

const T = TEXTS.compare;
const SHOWN = 3;

/** Names with a count behind those that come again, so that they can be paired. */
function counted(names) {
  const seen = new Map();
  return names.map((name) => {
    seen.set(name, (seen.get(name) ?? 0) + 1);
    return `${name}\u0000${seen.get(name)}`;
  });
}

/** What a row is of: its first cell; where that is an attention, with the layer and head behind it. */
function rowNames({ columns, rows }) {
  const isOfHeads = columns.slice(0, 3).join() === "attention,layer,head";
  return rows.map(([first, layer, head]) =>
    isOfHeads ? `${first}, layer ${layer}, head ${head}` : String(first),
  );
}

const shownName = (name) => name.split("\u0000")[0].replace(/^▁/, "");

/** The numbers of two tables that differ most, paired by the names of row and column; and which rows only one of them has. */
export function differences(one, two) {
  const [rows, others] = [one, two].map((t) => counted(rowNames(t)));
  const [columns, otherColumns] = [one, two].map((t) => counted(t.columns));
  const found = [];
  rows.forEach((row, i) => {
    const k = others.indexOf(row);
    if (k < 0) return;
    columns.slice(1).forEach((column, j) => {
      const c = otherColumns.indexOf(column);
      const [from, to] = [one.rows[i][j + 1], two.rows[k][c]];
      if (c > 0 && typeof from === "number" && typeof to === "number" && from !== to)
        found.push({ row: shownName(row), column: shownName(column), from, to });
    });
  });
  const only = (here, there) => here.filter((row) => !there.includes(row)).map(shownName);
  return {
    largest: found
      .sort((a, b) => Math.abs(b.to - b.from) - Math.abs(a.to - a.from))
      .slice(0, SHOWN),
    only: [only(rows, others), only(others, rows)],
  };
}

const list = (names) =>
  names
    .slice(0, 6)
    .map((name, i) => html`${i ? ", " : ""}<mark class="changed"><bdi>${name}</bdi></mark>`);

function marked(figure, view, other) {
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
    ${only[0].length ? html`${T.onlyLeft} ${list(only[0])}. ` : nothing}
    ${only[1].length ? html`${T.onlyRight} ${list(only[1])}.` : nothing}
  </p>`;
}

/** Whether a figure shows the translation; one may say so itself. */
export const isCompared = (figure) => figure.compares ?? figure.needs.length > 0;

/** What stands over each side: the model where there are two, else the sentence. */
export function namesOf(...traces) {
  const [one, two] = traces.map(({ model }) => model);
  if (one.hash === two.hash) return traces.map((trace) => T.name(trace.source.text, trace.edits));
  const hash = (model) => (one.name === two.name ? ` (${model.hash.slice(0, 8)})` : "");
  return traces.map(({ model, edits }) => T.name(model.name + hash(model), edits));
}

/** A figure twice. The left one steers both, so the right one cannot be touched; its radio buttons live in a form of their own. */
export function sideBySide(figure, view, draw) {
  const other = view.otherView();
  const [here, there] = namesOf(view.trace, other.trace);
  const pane = (v, text) =>
    html`<h4 class="side"><bdi>${text}</bdi></h4>
      ${draw(() => figure.draw(v))}`;
  return html`<div class="compared" data-compared>
      <div>${pane({ ...view, narrow: true }, here)}</div>
      <form inert>${pane(other, there)}</form>
    </div>
    ${draw(() => marked(figure, view, other))}`;
}

/** What to compare with: another sentence, another model, or the model as trained while it is edited. */
export function comparison(view) {
  if (view.home.kind !== "live") return nothing;
  const { against } = view.selection;
  const begin = (text) => view.choose({ against: text });
  const submit = (event) => {
    event.preventDefault();
    begin(event.target.elements.against.value.trim());
  };
  const shown = against === TRAINED || against.startsWith(MODEL) ? "" : against;
  const model = view.home.other?.data.about.model.name;
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
    ${view.otherTrouble ? html`<p class="trouble">${view.otherTrouble}</p>` : nothing}
  </form>`;
}
