import { html, mathml, svg } from "onehop/vendor/lit-html.js";
import { bars, slider } from "onehop/controls.js";
import { dot, matmul, norm, softmax } from "onehop/maths.js";
import { number } from "onehop/text.js";

export const id = "refresher";
export const item = 26;
export const title = "Dot product, matrix product, softmax";
export const needs = [];

const A = [3, 1];
const M = [
  [1, 2],
  [0, 1],
  [2, 0],
];

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

export function draw(view) {
  const { degrees, b } = vectors(view);
  const scores = scoresOf(view);
  const weights = softmax(scores);
  const product = dot(A, b);
  return html`<div class="columns">
    <div>
      <h4>Dot product</h4>
      ${slider({ label: "Turn b", min: 0, max: 360, step: 5, value: degrees, choose: (d) => view.turn("refresher.angle", d), shown: (d) => `${d}°` })}
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
      <div class="formula" style="column-gap:.3rem">
        <math
          ><mrow
            ><mo>(</mo
            ><mtable
              ><mtr
                ><mtd><mn>3</mn></mtd
                ><mtd><mn>1</mn></mtd></mtr
              ></mtable
            ><mo>)</mo><mo>·</mo
            ><mrow
              ><mo>(</mo
              ><mtable
                ><mtr
                  ><mtd><mn>1</mn></mtd
                  ><mtd><mn>0</mn></mtd
                  ><mtd><mn>2</mn></mtd></mtr
                ><mtr
                  ><mtd><mn>2</mn></mtd
                  ><mtd><mn>1</mn></mtd
                  ><mtd><mn>0</mn></mtd></mtr
                ></mtable
              ><mo>)</mo></mrow
            ></mrow
          ></math
        ><math
          ><mrow
            ><mo>=</mo
            ><mrow
              ><mo>(</mo
              ><mtable
                ><mtr
                  >${matmul(
                    [A],
                    [
                      [1, 0, 2],
                      [2, 1, 0],
                    ],
                  )[0].map((x) => mathml`<mtd><mn>${x}</mn></mtd>`)}</mtr
                ></mtable
              ><mo>)</mo></mrow
            ></mrow
          ></math
        >
      </div>
      <p class="reading">
        Each entry of the result is one dot product: a row on the left with a column on the right. A
        matrix turns a vector of two numbers into one of three. Many rows at once: many words at
        once.
      </p>
    </div>
    <div>
      <h4>Softmax</h4>
      ${slider({ label: "Third score", min: -4, max: 10, step: 0.5, value: scores[2], choose: (s) => view.turn("refresher.score", s), shown: (s) => number(s, 1) })}
      ${bars({ rows: scores.map((s, i) => ({ name: `e to the ${number(s, 1)}`, value: weights[i] })), concept: "weight", number, from: 0, to: 1 })}
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

export const caption = () => html`All the mathematics that the nine rungs need.`;

export const table = (view) => {
  const { degrees, b } = vectors(view);
  const scores = scoresOf(view);
  return {
    columns: ["quantity", "value"],
    rows: [
      [`a · b at ${degrees}°`, dot(A, b)],
      ...softmax(scores).map((w, i) => [`softmax ${i + 1}`, w]),
      ...M.map((row, i) => [`matrix product ${i + 1}`, dot(A, row)]),
    ],
  };
};

export const python = (view) => `import numpy as np

a, angle = np.array([3, 1]), np.radians(${vectors(view).degrees})
b = 2 * np.array([np.cos(angle), np.sin(angle)])
scores = np.array(${JSON.stringify(scoresOf(view))}, dtype=float)
weights = np.exp(scores) / np.exp(scores).sum()
products = a @ np.array([[1, 0, 2], [2, 1, 0]])
rows = [["a · b at ${vectors(view).degrees}°", float(a @ b)]]
rows += [[f"softmax {i + 1}", float(w)] for i, w in enumerate(weights)]
rows += [[f"matrix product {i + 1}", float(p)] for i, p in enumerate(products)]`;
