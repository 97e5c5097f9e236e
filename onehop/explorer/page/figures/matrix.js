import { html } from "onehop/vendor/lit-html.js";
import { opening } from "onehop/frame.js";
import { heatmap } from "onehop/heatmap.js";
import { argmax, largest, sum } from "onehop/maths.js";
import { ROLE_NAMES } from "onehop/tensors.js";
import { number, percent, piece } from "onehop/text.js";

export const id = "matrix";
export const item = 7;
export const title = "Who looks at whom";
export const needs = ["{attention}.weights"];

const rowsOf = (view) =>
  view.trace.part(view.selection, "weights").rows({ head: view.selection.head });

export function draw(view) {
  const rows = rowsOf(view);
  const { role, layer, head } = view.selection;
  const [queries, keys] = [view.trace.queries(role), view.trace.keys(role)];
  const row = rows[view.token];
  const off = largest(rows.map((r) => Math.abs(sum(Array.from(r)) - 1)));
  const top = argmax(Array.from(row));
  return html` ${heatmap({
      view,
      label: `Attention weights, ${ROLE_NAMES[role]}, layer ${layer + 1}, head ${head + 1}: a row for each query. Arrow keys walk over the rows.`,
      rows,
      queries,
      keys,
      row: view.token,
      choose: view.chooseToken,
      preview: view.preview,
      crossed: (i, j) => role === "decoder" && !view.trace.edits.includes("mask=off") && j > i,
    })}
    <p class="reading">
      “<strong><bdi>${piece(queries[view.token])}</bdi></strong
      >” looks most at “<strong><bdi>${piece(keys[top])}</bdi></strong
      >” (${percent(row[top])}); its row adds up to
      <span class="numbers" data-row-sum=${sum(Array.from(row))}
        >${number(sum(Array.from(row)), 4)}</span
      >. Over all ${rows.length} rows the sum is never further than
      <span class="numbers">${number(off, 5)}</span> from 1.
    </p>`;
}

export const caption = (view) =>
  view.selection.role === "cross"
    ? html`Rows: the translation, each named by the piece that it writes. Columns: the source.
      Shaded by the root of the weight.`
    : html`Rows ask, columns are asked. Shaded by the root of the
      weight${view.selection.role === "decoder" ? "; a row is named by the piece that it writes, a column by the piece that was read; hatched cells lie in the future and are masked" : ""}.`;

export const table = (view) => {
  const { role } = view.selection;
  return {
    columns: ["query", ...view.trace.keys(role)],
    rows: rowsOf(view).map((row, i) => [view.trace.queries(role)[i], ...row]),
  };
};

export const python = (view) => {
  const { role, layer, head } = view.selection;
  const queries =
    role === "encoder"
      ? 'trace.header["source"]["tokens"]'
      : 'trace.header["target"]["output_tokens"]';
  return `${opening(view)}weights = trace["${view.trace.path(role, layer)}.weights"][${head}]
rows = [[token, *map(float, row)] for token, row in zip(${queries}, weights)]`;
};
