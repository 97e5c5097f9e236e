import { html } from "onehop/vendor/lit-html.js";
import { pythonString, traceCode } from "onehop/frame.js";
import { heatmap, shadeLegend } from "onehop/heatmap.js";
import { argmax, maxOf, sum } from "onehop/maths.js";
import { ROLE_NAMES } from "onehop/tensors.js";
import { number, percent, piece } from "onehop/format.js";
import { TEXTS } from "onehop/texts.js";
import { allWords, inWords, mergeWords } from "onehop/words.js";

export const id = "matrix";
export const item = 7;
export const title = "Who looks at whom";
export const needs = ["{attention}.weights"];

const recorded = (view) =>
  view.trace.part(view.selection, "weights").rows({ head: view.selection.head });

/** The rows of pieces or of words, and the index of the cursor's row. */
function shown(view) {
  const { role } = view.selection;
  const [queries, keys] = [view.trace.queries(role), view.trace.keys(role)];
  if (!inWords(view)) {
    const hidden = (i, j) => j > i;
    return { rows: recorded(view), queries, keys, row: view.token, hidden, piece: (i) => i };
  }
  const { rows, queryWords, keyWords, ...names } = mergeWords(recorded(view), queries, keys);
  return {
    ...names,
    rows,
    row: queryWords.findIndex((word) => word.includes(view.token)),
    hidden: (i, j) => keyWords[j][0] > queryWords[i].at(-1),
    piece: (i) => queryWords[i][0],
  };
}

export function draw(view) {
  const { role, layer, head } = view.selection;
  const { rows, queries, keys, row: at, hidden, piece: pieceAt } = shown(view);
  const row = rows[at];
  const error = maxOf(rows.map((r) => Math.abs(sum(Array.from(r)) - 1)));
  const top = argmax(Array.from(row));
  return html` ${heatmap({
      view,
      label: `Attention weights, ${ROLE_NAMES[role]}, layer ${layer + 1}, head ${head + 1}: a row for each query. Arrow keys walk over the rows.`,
      rows,
      queries,
      keys,
      row: at,
      choose: (i) => view.chooseToken(pieceAt(i)),
      preview: (i) => view.preview(i === null ? null : pieceAt(i)),
      isMasked: (i, j) =>
        role === "decoder" && !view.trace.edits.includes("mask=off") && hidden(i, j),
    })}
    ${shadeLegend()}
    <p class="reading">
      “<strong><bdi>${piece(queries[at])}</bdi></strong
      >” looks most at “<strong><bdi>${piece(keys[top])}</bdi></strong
      >” (${percent(row[top])}); its row adds up to
      <span class="numbers" data-row-sum=${sum(Array.from(row))}
        >${number(sum(Array.from(row)), 4)}</span
      >. Over all ${rows.length} rows the sum is never further than
      <span class="numbers">${number(error, 5)}</span> from 1.
    </p>`;
}

export const caption = (view) => html`${axesNote(view)} ${inWords(view) ? TEXTS.words.merged : ""}`;

const axesNote = (view) =>
  view.selection.role === "cross"
    ? html`Rows: the translation, each named by the piece that it writes. Columns: the source.
      Shades follow the square root of the weight.`
    : html`Rows are queries, columns are keys. Shades follow the square root of the
      weight${view.selection.role === "decoder" ? "; a row is named by the piece that it writes, a column by the piece that was read; hatched cells lie in the future and are masked" : ""}.`;

export const table = (view) => {
  const { trace, selection } = view;
  const { rows, ...words } = shown(view);
  const { queries, keys } = inWords(view)
    ? words
    : { queries: trace.queryPieces(selection.role), keys: trace.keyPieces(selection.role) };
  return { columns: ["query", ...keys], rows: rows.map((row, i) => [queries[i], ...row]) };
};

export const python = (view) => {
  const { role, layer, head } = view.selection;
  const header = 'trace.header["source"]["tokens"]';
  const queries = role === "encoder" ? header : 'trace.header["target"]["output_tokens"]';
  const lines = `${traceCode(view)}weights = trace["${view.trace.path(role, layer)}.weights"][${head}]
`;
  if (!inWords(view))
    return `${lines}rows = [[token, *map(float, row)] for token, row in zip(${queries}, weights)]`;
  const groups = (tokens) => JSON.stringify(allWords(tokens));
  return `${lines}queries = ${groups(view.trace.queries(role))}
keys = ${groups(view.trace.keys(role))}
names = [${shown(view).queries.map(pythonString).join(", ")}]
rows = [[n, *(float(weights[word][:, key].sum(1).mean()) for key in keys)] for n, word in zip(names, queries)]`;
};
