import { html, nothing } from "onehop/vendor/lit-html.js";
import { cachedImage } from "onehop/colour.js";
import { comb, segments, slider, tokenPicker } from "onehop/controls.js";
import { traceCode } from "onehop/frame.js";
import { argmax, dot, largestByMagnitude, maxOf, range } from "onehop/maths.js";
import { Tensor, bytesOf, numbersOf } from "onehop/tensors.js";
import { number, piece, power } from "onehop/format.js";
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

/**
 * The token whose key and value are shown: the selected one, or in cross-attention the one with the largest weight.
 */
function partner(view) {
  if (view.selection.role !== "cross") return view.token;
  const { head } = view.selection;
  return argmax(
    Array.from(view.trace.part(view.selection, "weights").at({ head, query: view.token })),
  );
}

function vector(view, kind) {
  const { head } = view.selection;
  const axes = kind === "q" ? { head, query: view.token } : { head, key: partner(view) };
  return view.trace.part(view.selection, kind).at(axes);
}

const names = (view) => ({
  q: piece(view.trace.queries(view.selection.role)[view.token]),
  k: piece(view.trace.keys(view.selection.role)[partner(view)]),
  v: piece(view.trace.keys(view.selection.role)[partner(view)]),
});

const decoded = new WeakMap(); // by the response with a head's weights: its matrices by kind

/** A head's matrix as columns, with each column's bias and the largest magnitude. */
function matrixOf(weights, kind) {
  if (!decoded.has(weights)) decoded.set(weights, new Map());
  const matrices = decoded.get(weights);
  if (!matrices.has(kind)) {
    const blob = bytesOf(weights.blob);
    const { [`w_${kind}`]: w, [`b_${kind}`]: b } = weights.tensors;
    const rows = new Tensor(w, numbersOf(blob, w)).rows();
    const columns = range(w.shape[1]).map((j) => Float32Array.from(rows, (row) => row[j]));
    const top = maxOf(columns.map((column) => maxOf(column.map(Math.abs))));
    matrices.set(kind, { columns, top, bias: b ? numbersOf(blob, b) : null });
  }
  return matrices.get(kind);
}

/** The product x W, computed from the recorded input and the head's matrix. */
function product(view, kind, weights) {
  const inputs = view.trace.json.inputs[view.trace.path(view.selection.role, view.selection.layer)];
  const token = kind === "q" ? view.token : partner(view);
  const x = view.trace.tensor(kind === "q" ? inputs.query : inputs.memory).at({ token });
  const { columns, top, bias } = matrixOf(weights, kind);
  const computed = columns.map((column, j) => dot(x, column) + (bias ? bias[j] : 0));
  return { x, columns, top, computed, bias };
}

/** The component whose sum is shown: the selected one, or the largest. */
function componentOf(view, values) {
  const selected = Number(view.dial("projections.component", -1));
  return selected >= 0 && selected < values.length
    ? selected
    : argmax(Array.from(values, Math.abs));
}

function matrixPicture(view, kind, concept) {
  const { role, layer, head } = view.selection;
  const response = view.resource(`weights ${view.trace.model.hash} ${role} ${layer} ${head}`, () =>
    view.backend.weights(role, layer, head),
  );
  if (response.error) return html`<p class="reading">${response.error}</p>`;
  if (!response.value) return html`<p class="reading" role="status">Fetching the matrix …</p>`;
  const { x, columns, top, computed, bias } = product(view, kind, response.value);
  const component = componentOf(view, computed);
  const column = Array.from(columns[component]);
  const products = column.map((w, i) => w * x[i]);
  const recorded = vector(view, kind);
  const error =
    maxOf(computed.map((m, i) => Math.abs(m - recorded[i]))) /
    maxOf(Array.from(recorded, Math.abs));
  // Transposed: d_k rows and d_model columns, aligned with the input that it multiplies.
  const turned = () => columns.map((column) => column.map((w) => Math.abs(w) / top));
  const input = kind === "q" || role !== "cross" ? "x" : "m";
  return html`<div class="lanes">
      <span class="name"><var>${input}</var>, ${x.length} numbers</span>
      ${comb({ values: x, concept: "neutral", label: `The input of the projection, ${x.length} numbers` })}
      <span class="name"
        >times <b class="c-${concept}">W<sup>${kind.toUpperCase()}</sup></b
        >, ${x.length} × ${computed.length}, ${T.turned}</span
      >
      <span style="position:relative"
        ><img
          class="pixels"
          style="--ratio:${view.narrow ? 4 : 8}"
          alt="Sizes of the numbers in W ${kind.toUpperCase()} of this head, darker is larger"
          src=${cachedImage(`${view.trace.model.hash} ${kind} ${role} ${layer} ${head}`, turned, view.rgb(concept))} /><i
          class="marked-row"
          style="top:${(100 * component) / computed.length}%;height:${100 / computed.length}%"
        ></i
      ></span>
      <span class="name">${T.column(component + 1)}</span>
      ${comb({ values: column, concept, label: `Column ${component + 1} of W, ${column.length} numbers` })}
      <span class="name">gives the <b class="c-${concept}">${concept}</b></span>
      ${comb({ values: computed, concept, label: `The product, ${computed.length} numbers`, marked: component })}
    </div>
    <div class="controls" style="margin:.9rem 0 0">
      ${slider({ label: T.component, min: 1, max: computed.length, value: component + 1, choose: (c) => view.setDial("projections.component", c - 1) })}
    </div>
    <p class="reading" data-component=${component} data-total=${computed[component]}>
      ${T.sum({
        component: component + 1,
        concept,
        terms: x.length,
        largest: largestByMagnitude(products, 3)
          .map((p) => number(p, 2))
          .join(", "),
        total: number(computed[component], 2),
      })}
      ${bias ? T.bias : nothing}
    </p>
    <p class="reading">
      Multiplied in this page, the product differs from the recorded ${concept} by at most
      <strong class="numbers" data-product-error=${error}>${power(error)}</strong> of its largest
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
      ${segments({ name: "projections-matrix", label: "Which projection", options: KINDS.map(([k]) => [k, html`W<sup>${k.toUpperCase()}</sup>`]), value: kind, choose: (k) => view.setDial("projections.matrix", k) })}
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
  return `${traceCode(view)}q = trace["${at}.q"][${head}, ${view.token}]
k = trace["${at}.k"][${head}, ${partner(view)}]
v = trace["${at}.v"][${head}, ${partner(view)}]
rows = [[i, *(float(x[i]) if i < len(x) else None for x in (q, k, v))] for i in range(max(len(q), len(v)))]`;
};
