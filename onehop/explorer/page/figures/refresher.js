import { html, svg } from "onehop/vendor/lit-html.js";
import { bars, slider } from "onehop/controls.js";
import { dot, matmul, norm, range, softmax } from "onehop/maths.js";
import { number } from "onehop/format.js";

export const id = "refresher";
export const item = 26;
export const title = "Dot product, matrix product, softmax";
export const needs = [];

const A = [3, 1];
const PRODUCT = { x: [[3, 1]], m: [[1, 0, 2], [2, 1, 0]] }; // prettier-ignore

function vectors(view) {
  const degrees = Number(view.dial("refresher.angle", 40));
  const turned = (degrees * Math.PI) / 180;
  return { degrees, b: [2 * Math.cos(turned), 2 * Math.sin(turned)] };
}

const scoresOf = (view) => [1, 2, Number(view.dial("refresher.score", 3))];

function arrows(b) {
  const at = ([x, y]) => [110 + 30 * x, 110 - 30 * y];
  const arrow = (v, concept, name) => {
    const [x, y] = at(v);
    return svg`<line x1="110" y1="110" x2=${x} y2=${y} stroke="var(--${concept})" stroke-width="3" /><circle cx=${x} cy=${y} r="4.5" fill="var(--${concept})" /><text x=${x + 8} y=${y - 6} style="fill:var(--${concept}-ink);font-weight:600">${name}</text>`;
  };
  return html`<svg
    viewBox="0 0 220 220"
    style="width:100%;max-width:240px"
    role="img"
    aria-label="Two vectors, a and b; b turns with the slider"
  >
    <line class="grid" x1="10" x2="210" y1="110" y2="110" />
    <line class="grid" x1="110" x2="110" y1="10" y2="210" />
    ${arrow(A, "query", "a")}${arrow(b, "key", "b")}
  </svg>`;
}

/** The reader's row and matrix. The address keeps them as eight numbers. */
function inputs(view) {
  const defaults = [...PRODUCT.x, ...PRODUCT.m].flat();
  const stored = view.dial("refresher.product", "").split(" ").map(Number);
  const isWhole = stored.length === defaults.length && stored.every(Number.isFinite);
  const [a, b, ...rest] = isWhole ? stored : defaults;
  return { x: [[a, b]], m: [rest.slice(0, 3), rest.slice(3)] };
}

function edit(view, index, text) {
  if (text === "" || !Number.isFinite(Number(text))) return;
  const { x, m } = inputs(view);
  view.setDial("refresher.product", [...x, ...m].flat().with(index, Number(text)).join(" "));
}

/** A row times a matrix, and the sum behind each entry of the result. */
function matrices(view) {
  const { x, m } = inputs(view);
  const [row] = x;
  const input = (value, index, label) =>
    html`<td>
      <input
        type="number"
        step="1"
        aria-label=${label}
        .value=${String(value)}
        @change=${(event) => edit(view, index, event.target.value)}
      />
    </td>`;
  const sum = (j) =>
    row.map((a, i) => `${compactNumber(a)} · ${compactNumber(m[i][j])}`).join(" + ");
  return html`<div class="row product">
      <table class="matrix">
        <tbody>
          <tr>
            ${row.map((v, i) => input(v, i, `Row, number ${i + 1}`))}
          </tr>
        </tbody>
      </table>
      <span>·</span>
      <table class="matrix">
        <tbody>
          ${m.map(
            (r, i) =>
              html`<tr>
                ${r.map((v, j) => input(v, 2 + 3 * i + j, `Matrix, row ${i + 1}, column ${j + 1}`))}
              </tr>`,
          )}
        </tbody>
      </table>
      <span>=</span>
      <table class="matrix" data-product>
        <tbody>
          <tr>
            ${matmul(x, m)[0].map((v, j) => html`<td class="cell" data-value=${v} .tip=${`${sum(j)} = ${compactNumber(v)}`}>${compactNumber(v)}</td>`)}
          </tr>
        </tbody>
      </table>
    </div>
    <p class="reading numbers">
      ${range(3).map((j) => html`${sum(j)} = <strong>${compactNumber(matmul(x, m)[0][j])}</strong><br />`)}
    </p>`;
}

const compactNumber = (v) => number(v, Number.isInteger(v) ? 0 : 2);

export function draw(view) {
  const { degrees, b } = vectors(view);
  const scores = scoresOf(view);
  const weights = softmax(scores);
  const product = dot(A, b);
  return html`<div class="columns">
    <div>
      <h4>Dot product</h4>
      ${slider({ label: "Turn b", min: 0, max: 360, step: 5, value: degrees, choose: (d) => view.setDial("refresher.angle", d), shown: (d) => `${d}°` })}
      ${arrows(b)}
      <div class="formula" style="column-gap:.3rem">
        <math
          ><mi class="c-query">a</mi><mo>·</mo><mi class="c-key">b</mi><mo>=</mo><mn>3</mn><mo>·</mo
          ><mn>${number(b[0], 2)}</mn><mo>+</mo><mn>1</mn><mo>·</mo
          ><mn>${number(b[1], 2)}</mn></math
        ><math><mo>=</mo><mn data-dot=${product}>${number(product, 2)}</mn></math>
      </div>
      <p class="reading">
        ${Math.abs(product) < 0.35 ? "Close to a right angle: about zero, nothing in common." : product > 0 ? "They point the same way: positive." : "They point apart: negative."}
        Cosine ${number(product / (norm(A) * norm(b)), 2)}.
      </p>
    </div>
    <div>
      <h4>Matrix product</h4>
      ${matrices(view)}
      <p class="reading">
        Each entry of the result is one dot product: the row with one column. Change a number and
        see which entries move. Many rows at once: many words at once.
      </p>
    </div>
    <div>
      <h4>Softmax</h4>
      ${slider({ label: "Third score", min: -4, max: 10, step: 0.5, value: scores[2], choose: (s) => view.setDial("refresher.score", s), shown: (s) => number(s, 1) })}
      ${bars({ rows: scores.map((s, i) => ({ name: `e to the ${number(s, 1)}`, value: weights[i] })), concept: "weight", from: 0, to: 1 })}
      <p class="reading">
        Raise e to each score, divide by the sum. All positive, together
        ${number(
          weights.reduce((a, x) => a + x, 0),
          3,
        )}.
        One more point of score is a factor of e, about 2.7.
      </p>
    </div>
  </div>`;
}

export const caption = () => html`All the mathematics that the nine chapters need.`;

export const table = (view) => {
  const { degrees, b } = vectors(view);
  const scores = scoresOf(view);
  return {
    columns: ["quantity", "value"],
    rows: [
      [`a · b at ${degrees}°`, dot(A, b)],
      ...softmax(scores).map((w, i) => [`softmax ${i + 1}`, w]),
      ...matmul(inputs(view).x, inputs(view).m)[0].map((p, i) => [`matrix product ${i + 1}`, p]),
    ],
  };
};

export const python = (view) => `import numpy as np

a, angle = np.array([3, 1]), np.radians(${vectors(view).degrees})
b = 2 * np.array([np.cos(angle), np.sin(angle)])
scores = np.array(${JSON.stringify(scoresOf(view))}, dtype=float)
weights = np.exp(scores) / np.exp(scores).sum()
products = np.array(${JSON.stringify(inputs(view).x[0])}, dtype=float) @ np.array(${JSON.stringify(inputs(view).m)})
rows = [["a · b at ${vectors(view).degrees}°", float(a @ b)]]
rows += [[f"softmax {i + 1}", float(w)] for i, w in enumerate(weights)]
rows += [[f"matrix product {i + 1}", float(p)] for i, p in enumerate(products)]`;
