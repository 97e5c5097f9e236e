import { html, nothing } from "onehop/vendor/lit-html.js";
import { pixelPicture } from "onehop/colour.js";
import { comb, segments, slider, tokenPicker } from "onehop/controls.js";
import { opening } from "onehop/frame.js";
import { argmax, dot, largest, largestBySize, range } from "onehop/maths.js";
import { Tensor, bytesOf, numbersOf } from "onehop/tensors.js";
import { number, piece, power } from "onehop/text.js";
import { TEXTS } from "onehop/texts.js";

export const id = "projections";
export const item = 2;
export const title = "Query, key and value of one token";
export const needs = [
  "{attention}.q",
  "{attention}.k",
  "{attention}.v",
  "{attention}.weights",
  "{projected}",
];

const T = TEXTS.projections;
const KINDS = [
  ["q", "query"],
  ["k", "key"],
  ["v", "value"],
];

/** Whose key and value stand beside the query: the token's own, or across, those it looks at most. */
export function partner(view) {
  if (view.selection.role !== "cross") return view.token;
  const { head } = view.selection;
  return argmax(
    Array.from(view.trace.part(view.selection, "weights").at({ head, query: view.token })),
  );
}

function vector(view, kind) {
  const { head } = view.selection;
  const place = kind === "q" ? { head, query: view.token } : { head, key: partner(view) };
  return view.trace.part(view.selection, kind).at(place);
}

const names = (view) => ({
  q: piece(view.trace.queries(view.selection.role)[view.token]),
  k: piece(view.trace.keys(view.selection.role)[partner(view)]),
  v: piece(view.trace.keys(view.selection.role)[partner(view)]),
});

const decoded = new WeakMap(); // by the answer with a head's weights: its matrices by kind

/** A head's matrix as its columns, with the bias of each and the size of the largest number. */
function matrixOf(weights, kind) {
  if (!decoded.has(weights)) decoded.set(weights, new Map());
  const matrices = decoded.get(weights);
  if (!matrices.has(kind)) {
    const blob = bytesOf(weights.blob);
    const { [`w_${kind}`]: w, [`b_${kind}`]: b } = weights.tensors;
    const rows = new Tensor(w, numbersOf(blob, w)).rows();
    const columns = range(w.shape[1]).map((j) => Float32Array.from(rows, (row) => row[j]));
    const top = largest(columns.map((column) => largest(column.map(Math.abs))));
    matrices.set(kind, { columns, top, bias: b ? numbersOf(blob, b) : null });
  }
  return matrices.get(kind);
}

/** The product x W, computed here from the recorded input and the head's matrix. */
function product(view, kind, weights) {
  const inputs = view.trace.json.inputs[view.trace.path(view.selection.role, view.selection.layer)];
  const token = kind === "q" ? view.token : partner(view);
  const x = view.trace.tensor(kind === "q" ? inputs.query : inputs.memory).at({ token });
  const { columns, top, bias } = matrixOf(weights, kind);
  const made = columns.map((column, j) => dot(x, column) + (bias ? bias[j] : 0));
  return { x, columns, top, made, bias };
}

/** The component whose sum is shown: the reader's, or the largest. */
function componentOf(view, values) {
  const wanted = Number(view.dial("projections.component", -1));
  return wanted >= 0 && wanted < values.length ? wanted : argmax(Array.from(values, Math.abs));
}

function matrixPicture(view, kind, concept) {
  const { role, layer, head } = view.selection;
  const found = view.resource(`weights ${view.trace.model.hash} ${role} ${layer} ${head}`, () =>
    view.home.weights(role, layer, head),
  );
  if (found.error) return html`<p class="reading">${found.error}</p>`;
  if (!found.value) return html`<p class="reading" role="status">Fetching the matrix …</p>`;
  const { x, columns, top, made, bias } = product(view, kind, found.value);
  const component = componentOf(view, made);
  const row = Array.from(columns[component]);
  const products = row.map((w, i) => w * x[i]);
  const recorded = vector(view, kind);
  const off =
    largest(made.map((m, i) => Math.abs(m - recorded[i]))) /
    largest(Array.from(recorded, Math.abs));
  // Turned on its side: d_k rows, d_model columns, under the input it multiplies.
  const turned = () => columns.map((column) => column.map((w) => Math.abs(w) / top));
  const input = kind === "q" || role !== "cross" ? "x" : "m";
  return html`<div class="lanes">
      <span class="name"><var>${input}</var>, ${x.length} numbers</span>
      ${comb({ values: x, concept: "neutral", label: `The input of the projection, ${x.length} numbers` })}
      <span class="name"
        >times <b class="c-${concept}">W<sup>${kind.toUpperCase()}</sup></b
        >, ${x.length} × ${made.length}</span
      >
      <span style="position:relative"
        ><img
          class="pixels"
          style="--ratio:${view.narrow ? 4 : 8}"
          alt="Sizes of the numbers in W ${kind.toUpperCase()} of this head, darker is larger"
          src=${pixelPicture(`${view.trace.model.hash} ${kind} ${role} ${layer} ${head}`, turned, view.rgb(concept))} /><i
          class="marked-row"
          style="top:${(100 * component) / made.length}%;height:${100 / made.length}%"
        ></i
      ></span>
      <span class="name">${T.row(component + 1)}</span>
      ${comb({ values: row, concept, label: `Row ${component + 1} of the turned W, ${row.length} numbers` })}
      <span class="name">gives the <b class="c-${concept}">${concept}</b></span>
      ${comb({ values: made, concept, label: `The product, ${made.length} numbers`, marked: component })}
    </div>
    <div class="controls" style="margin:.9rem 0 0">
      ${slider({ label: T.component, min: 1, max: made.length, value: component + 1, choose: (c) => view.turn("projections.component", c - 1) })}
    </div>
    <p class="reading" data-component=${component} data-total=${made[component]}>
      ${T.sum({
        component: component + 1,
        concept,
        terms: x.length,
        largest: largestBySize(products, 3)
          .map((p) => number(p, 2))
          .join(", "),
        total: number(made[component], 2),
      })}
      ${bias ? T.bias : nothing}
    </p>
    <p class="reading">
      Multiplied in this page, the product differs from the recorded ${concept} by at most
      <strong class="numbers" data-product-error=${off}>${power(off)}</strong> of its largest
      number: the input <var>${input}</var> travels in float16, with three digits. Queries, keys and
      all that follows are float32, so the error at the top of the page is smaller.
    </p>`;
}

export function draw(view) {
  const kind = view.dial("projections.matrix", "q");
  const concept = Object.fromEntries(KINDS)[kind];
  const whose = names(view);
  const tokens = view.trace.queries(view.selection.role);
  return html` ${tokenPicker({ label: "Token", tokens, value: view.selection.token, previewed: view.previewed, choose: view.chooseToken, preview: view.preview })}
    <div class="lanes" style="margin:1.1rem 0 1.6rem">
      ${KINDS.map(([k, name]) => {
        const values = vector(view, k);
        return html`<span class="name"
            ><b class="c-${name}">${name}</b> of “<bdi>${whose[k]}</bdi>”</span
          >
          ${comb({ values, concept: name, label: `${name} of ${whose[k]}: ${values.length} numbers between ${number(Math.min(...values), 2)} and ${number(Math.max(...values), 2)}` })}`;
      })}
    </div>
    <div class="controls">
      <span>Made by</span>
      ${segments({ name: "projections-matrix", label: "Which projection", options: KINDS.map(([k]) => [k, `W ${k.toUpperCase()}`]), value: kind, choose: (k) => view.turn("projections.matrix", k) })}
    </div>
    ${matrixPicture(view, kind, concept)}`;
}

export const caption = (view) =>
  view.selection.role === "cross"
    ? html`Across, the query comes from the translation and key and value from the source. Shown:
      the source token that this query looks at most.`
    : html`One input, three matrices, three vectors. Upward teeth are positive, pale downward ones
      negative.`;

export const table = (view) => {
  const [q, k, v] = KINDS.map(([kind]) => vector(view, kind));
  return {
    columns: ["component", "query", "key", "value"],
    rows: range(Math.max(q.length, v.length)).map((i) => [
      i,
      q[i] ?? null,
      k[i] ?? null,
      v[i] ?? null,
    ]),
  };
};

export const python = (view) => {
  const { role, layer, head } = view.selection;
  const at = view.trace.path(role, layer);
  return `${opening(view)}q = trace["${at}.q"][${head}, ${view.token}]
k = trace["${at}.k"][${head}, ${partner(view)}]
v = trace["${at}.v"][${head}, ${partner(view)}]
rows = [[i, *(float(x[i]) if i < len(x) else None for x in (q, k, v))] for i in range(max(len(q), len(v)))]`;
};
