import { html } from "onehop/vendor/lit-html.js";
import { cachedImage } from "onehop/colour.js";
import { folded, pairedBars, roving, segments } from "onehop/controls.js";
import { traceCode } from "onehop/frame.js";
import { headGrid, headName } from "onehop/headgrid.js";
import { shade } from "onehop/heatmap.js";
import { entropy, mean, range, sum } from "onehop/maths.js";
import { ROLES } from "onehop/state.js";
import { number, percent, piece } from "onehop/format.js";
import { relativePosition } from "onehop/tips.js";
import { barData } from "onehop/words.js";

export const id = "heads";
export const item = 8;
export const title = "Heads side by side, and their average";
export const needs = ["{attention}.weights"];

const tensor = (view, role, layer) => view.trace.tensor(`${view.trace.path(role, layer)}.weights`);
const averaged = (rows) => rows[0].map((_, j) => mean(rows.map((row) => row[j])));

/** The selected token's row in every head of the selected layer. */
function headRows(view) {
  const { role, layer } = view.selection;
  return range(view.trace.heads).map((head) =>
    Array.from(tensor(view, role, layer).at({ head, query: view.token })),
  );
}

/** Total variation distance: 0 for equal distributions, 1 for disjoint ones. */
const distance = (a, b) => sum(a.map((x, j) => Math.abs(x - b[j]))) / 2;

const picture = (view, headRef) => {
  const weights = tensor(view, headRef.role, headRef.layer);
  const [, queries, keys] = weights.shape;
  const source = cachedImage(
    `${view.traceKey} ${headRef.role} ${headRef.layer} ${headRef.head}`,
    () => weights.rows({ head: headRef.head }).map((row) => Array.from(row, shade)),
    view.rgb("weight"),
  );
  return html`<img alt="" style="--ratio:${keys} / ${queries}" src=${source} />`;
};

const cell = (view) => (headRef) => ({
  content: picture(view, headRef),
  tip: (event) => cellTip(view, headRef, event),
});

/** The weight under the mouse in a small picture. */
function cellTip(view, { role, layer, head }, event) {
  const [queries, keys] = [view.trace.queries(role), view.trace.keys(role)];
  const [x, y] = relativePosition(event, event.target.closest("button").querySelector("img"));
  const [i, j] = [Math.floor(y * queries.length), Math.floor(x * keys.length)];
  const name = headName({ role, layer, head });
  if (!(i in queries && j in keys)) return name;
  return `${name}: ${piece(queries[i])} → ${piece(keys[j])} ${number(tensor(view, role, layer).at({ head, query: i, key: j }), 3)}`;
}

/** The heads of one layer, larger. */
function oneLayer(view) {
  const { role, layer, head } = view.selection;
  const choose = (h) => view.choose({ head: h });
  return html`<div
    class="smalls"
    data-roving
    role="group"
    aria-label="The heads of this layer; arrow keys move between them"
    style="grid-template-columns:repeat(${view.narrow ? Math.min(4, view.trace.heads) : view.trace.heads}, 1fr)"
  >
    ${range(view.trace.heads).map((h) => {
      const headRef = { role, layer, head: h };
      return html`<button
        type="button"
        class="small"
        data-index=${h}
        aria-pressed=${h === head}
        tabindex=${h === head ? 0 : -1}
        aria-label=${headName(headRef)}
        .tip=${(event) => cellTip(view, headRef, event)}
        @click=${() => choose(h)}
        @keydown=${roving(h, view.trace.heads, choose)}
      >
        ${picture(view, headRef)}
      </button>`;
    })}
  </div>`;
}

export function draw(view) {
  const show = view.dial("heads.show", "all");
  const { role, layer, head } = view.selection;
  const rows = headRows(view);
  const average = averaged(rows);
  const shown = barData(view, view.trace.keys(role));
  const [chosen, mixed] = [rows[head], average].map(shown.sumByWord);
  const pairs = rows.flatMap((a, i) => rows.slice(i + 1).map((b) => distance(a, b)));
  const total = ROLES.reduce((n, r) => n + view.trace.layers(r) * view.trace.heads, 0);
  const options = [
    ["all", `all ${total} heads`],
    ["layer", `layer ${layer + 1}`],
  ];
  return html` <div class="controls">
      ${segments({ name: "heads-show", label: "Which heads", options, value: show, choose: (s) => view.setDial("heads.show", s) })}
      <button
        type="button"
        @click=${() => view.choose({ head: (head + view.trace.heads - 1) % view.trace.heads })}
      >
        previous head
      </button>
      <button type="button" @click=${() => view.choose({ head: (head + 1) % view.trace.heads })}>
        next head
      </button>
    </div>
    ${show === "layer" ? oneLayer(view) : headGrid({ view, label: "All heads; arrow keys move between them", cell: cell(view) })}
    ${folded(
      view,
      "The chosen head beside the average",
      pairedBars({
        rows: shown.names.map((name, j) => ({ name, values: [chosen[j], mixed[j]] })),
        sides: [
          {
            heading: `Layer ${layer + 1}, head ${head + 1}, from “${piece(view.trace.queries(role)[view.token])}”: ${number(entropy(rows[head]), 2)} bits`,
            concept: "weight",
          },
          {
            heading: `The average of its ${view.trace.heads} heads: ${number(entropy(average), 2)} bits`,
            concept: "neutral",
          },
        ],
        from: 0,
        to: 1,
        most: 20,
      }),
    )}
    <p class="reading">
      Two heads of this layer share on average
      <strong>${percent(1 - mean(pairs.length ? pairs : [0]), 0)}</strong> of their weight from this
      token. A head has ${number(mean(rows.map(entropy)), 2)} bits of entropy on average, their
      average ${number(entropy(average), 2)}: averaging blurs.
    </p>`;
}

export const caption = (view) =>
  html`Each small picture is one head's matrix: rows are queries, columns are keys, and shades
  follow the square root of the
  weight${view.dial("heads.show", "all") === "layer" ? "" : "; a line of pictures is a layer, a column a head"}.
  Click one and the whole page follows.`;

export const table = (view) => {
  const rows = headRows(view);
  const keys = view.trace.keyPieces(view.selection.role);
  const average = averaged(rows);
  return {
    columns: ["key", ...rows.map((_, h) => `head ${h + 1}`), "average"],
    rows: keys.map((k, j) => [k, ...rows.map((row) => row[j]), average[j]]),
  };
};

export const python = (view) => {
  const { role, layer } = view.selection;
  const keys =
    role === "decoder"
      ? 'trace.header["target"]["input_tokens"]'
      : 'trace.header["source"]["tokens"]';
  return `${traceCode(view)}weights = trace["${view.trace.path(role, layer)}.weights"][:, ${view.token}].astype(float)
rows = [[key, *map(float, weights[:, j]), float(weights[:, j].mean())] for j, key in enumerate(${keys})]`;
};
