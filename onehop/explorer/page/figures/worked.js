import { html, nothing } from "onehop/vendor/lit-html.js";
import { folded } from "onehop/controls.js";
import { matmul, softmax, transpose } from "onehop/maths.js";
import { number, percent } from "onehop/format.js";

export const id = "worked";
export const item = 17;
export const title = "Two words, every number";
export const needs = [];

/** All steps of equation 1. */
function attention({ x, w_q, w_k, w_v }) {
  const [q, k, v] = [w_q, w_k, w_v].map((w) => matmul(x, w));
  const scores = matmul(q, transpose(k));
  const scaled = scores.map((row) => row.map((s) => s / Math.sqrt(k[0].length)));
  const weights = scaled.map(softmax);
  return { q, k, v, scores, scaled, weights, output: matmul(weights, v) };
}

/** The input matrices with the reader's entries, which the address keeps as w_q.0.1=0.5. */
function inputs(view) {
  const matrices = structuredClone(view.workedExample.given);
  for (const change of entries(view)) {
    const [, name, row, column, value] = change.match(/^(\w+)\.(\d+)\.(\d+)=(.+)$/) ?? [];
    if (matrices[name]?.[row]?.[column] !== undefined && Number.isFinite(Number(value)))
      matrices[name][row][column] = Number(value);
  }
  return matrices;
}

const entries = (view) => view.dial("worked.entries", "").split(" ").filter(Boolean);

function edit(view, name, row, column, value) {
  const key = `${name}.${row}.${column}`;
  const others = entries(view).filter((e) => !e.startsWith(`${key}=`));
  const same = Number(value) === view.workedExample.given[name][row][column];
  if (value === "" || !Number.isFinite(Number(value))) return;
  view.setDial(
    "worked.entries",
    [...others, ...(same ? [] : [`${key}=${Number(value)}`])].join(" "),
  );
}

const LABELS = { x: "X", w_q: "W Q", w_k: "W K", w_v: "W V" };

/** "W Q" with its letter as a superscript. */
const withSuperscript = (text) =>
  text.split(/W ([QKV])/).map((part, i) => (i % 2 ? html`W<sup>${part}</sup>` : part));
const matrixName = (name) => withSuperscript(LABELS[name]);

function editable(view, name, matrix, concept) {
  const { words } = view.workedExample;
  return html`<div>
    <h4 class="c-${concept}">${matrixName(name)}</h4>
    <table class="matrix">
      <tbody>
        ${matrix.map(
          (row, i) =>
            html`<tr>
              ${name === "x" ? html`<th scope="row">${words[i]}</th>` : ""}${row.map((value, j) => html`<td><input type="number" step="0.1" aria-label="${LABELS[name]}, row ${i + 1}, column ${j + 1}" .value=${String(value)} class=${value === view.workedExample.given[name][i][j] ? "" : "edited"} @change=${(event) => edit(view, name, i, j, event.target.value)} /></td>`)}
            </tr>`,
        )}
      </tbody>
    </table>
  </div>`;
}

/** A computed matrix. A number that an entry has changed is marked, and its tooltip says what it was. */
function shown(words, heading, { now: matrix, first }, concept, digits = 3) {
  const cell = (value, before) => {
    const isChanged = Math.abs(value - before) > 1e-12;
    return html`<td
      class="cell ${isChanged ? "edited" : ""}"
      data-value=${value}
      data-was=${isChanged ? before : nothing}
      .tip=${isChanged ? `was ${number(before, digits)}` : null}
    >
      ${number(value, digits)}
    </td>`;
  };
  return html`<div>
    <h4 class="c-${concept}">${withSuperscript(heading)}</h4>
    <table class="matrix" data-matrix=${heading}>
      <tbody>
        ${matrix.map(
          (row, i) =>
            html`<tr>
              <th scope="row">${words[i]}</th>
              ${row.map((value, j) => cell(value, first[i][j]))}
            </tr>`,
        )}
      </tbody>
    </table>
  </div>`;
}

export function draw(view) {
  const matrices = inputs(view);
  const [r, first] = [attention(matrices), attention(view.workedExample.given)];
  const root = Math.sqrt(3);
  const { words } = view.workedExample;
  const both = (name) => ({ now: r[name], first: first[name] });
  return html` <div class="row">
      ${editable(view, "x", matrices.x, "neutral")}${editable(view, "w_q", matrices.w_q, "query")}${editable(view, "w_k", matrices.w_k, "key")}${editable(view, "w_v", matrices.w_v, "value")}
    </div>
    ${folded(view, "Queries, keys and values", html`<div class="row">${shown(words, "Q = X W Q", both("q"), "query", 2)}${shown(words, "K = X W K", both("k"), "key", 2)}${shown(words, "V = X W V", both("v"), "value", 2)}</div>`)}
    <div class="row" style="margin-top:1.3rem">
      ${shown(words, "Q Kᵀ", both("scores"), "neutral", 2)}${shown(words, "Q Kᵀ / √3", both("scaled"), "neutral")}${shown(words, "softmax", both("weights"), "weight")}${shown(words, "output", both("output"), "output")}
    </div>
    <div class="formula">
      <math
        ><mfrac
          ><mrow
            ><msub><mi class="c-query">q</mi><mtext>Hello</mtext></msub
            ><mo>·</mo><msub><mi class="c-key">k</mi><mtext>World</mtext></msub></mrow
          ><msqrt><mn>3</mn></msqrt></mfrac
        ><mo>=</mo><mfrac><mn>${number(r.scores[0][1], 2)}</mn><mn>${number(root, 3)}</mn></mfrac
        ><mo>=</mo><mn>${number(r.scaled[0][1], 3)}</mn></math
      >
    </div>
    <p class="reading">
      “Hello” becomes ${percent(r.weights[0][0])} of its own value and ${percent(r.weights[0][1])}
      of “World”'s.
      <button
        type="button"
        @click=${() => view.setDial("worked.entries", "")}
        ?disabled=${entries(view).length === 0}
      >
        back to the first numbers
      </button>
      ${entries(view).length ? html`<span class="soft">Underlined: what your entries have changed.</span>` : nothing}
    </p>`;
}

export const caption = () =>
  html`Small enough for paper and pencil. Change any entry of the upper four matrices; the rest
  follows.`;

export const table = (view) => {
  const { words } = view.workedExample;
  const results = attention(inputs(view));
  const rows = Object.entries(results).flatMap(([name, matrix]) =>
    matrix.map((row, i) => [`${name} ${words[i]}`, ...row, ...(row.length < 3 ? [null] : [])]),
  );
  return { columns: ["quantity", "1", "2", "3"], rows };
};

const literal = (matrix) => `[${matrix.map((row) => `[${row.join(", ")}]`).join(", ")}]`;

export const python = (view) => {
  const m = inputs(view);
  return `import numpy as np

x = np.array(${literal(m.x)})
w_q = np.array(${literal(m.w_q)})
w_k = np.array(${literal(m.w_k)})
w_v = np.array(${literal(m.w_v)})
q, k, v = x @ w_q, x @ w_k, x @ w_v
scores = q @ k.T
scaled = scores / np.sqrt(k.shape[1])
powers = np.exp(scaled - scaled.max(-1, keepdims=True))
weights = powers / powers.sum(-1, keepdims=True)
output = weights @ v
steps = {"q": q, "k": k, "v": v, "scores": scores, "scaled": scaled, "weights": weights, "output": output}
rows = [
    [f"{name} {word}", *map(float, row), *[None] * (3 - len(row))]
    for name, matrix in steps.items()
    for word, row in zip(["Hello", "World"], matrix)
]`;
};
