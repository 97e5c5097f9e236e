// The essay's formulas, filled with the model's numbers.

import { html } from "onehop/vendor/lit-html.js";

const block = (content) => html`<div class="formula">${content}</div>`;

export const rootOfModel = ({ d_model }) =>
  html`<math
    ><msqrt
      ><msub><mi>d</mi><mtext>model</mtext></msub></msqrt
    ><mo>=</mo><mn>${Math.sqrt(d_model).toFixed(2)}</mn></math
  >`;

export const rootOfKey = ({ d_k }) =>
  html`<math
    ><msqrt
      ><msub><mi>d</mi><mi>k</mi></msub></msqrt
    ><mo>=</mo><msqrt><mn>${d_k}</mn></msqrt
    ><mo>=</mo><mn>${Math.sqrt(d_k).toFixed(2)}</mn></math
  >`;

const product = (concept, letter, matrix) =>
  html`<math
    ><mi class="c-${concept}">${letter}</mi><mo>=</mo><mi>x</mi
    ><msup><mi>W</mi><mi>${matrix}</mi></msup></math
  >`;

export const projections = () =>
  block([product("query", "q", "Q"), product("key", "k", "K"), product("value", "v", "V")]);

export const attention = () =>
  block(
    html`<math
      ><mi>Attention</mi
      ><mrow
        ><mo>(</mo><mi class="c-query">Q</mi><mo>,</mo><mi class="c-key">K</mi><mo>,</mo
        ><mi class="c-value">V</mi><mo>)</mo></mrow
      ><mo>=</mo><mi>softmax</mi
      ><mrow
        ><mo>(</mo
        ><mfrac
          ><mrow
            ><mi class="c-query">Q</mi><msup><mi class="c-key">K</mi><mi>T</mi></msup></mrow
          ><msqrt
            ><msub><mi>d</mi><mi>k</mi></msub></msqrt
          ></mfrac
        ><mo>)</mo></mrow
      ><mi class="c-value">V</mi></math
    >`,
  );

export const multiHead = ({ n_heads }) =>
  block(
    html`<math
      ><mi>MultiHead</mi><mo>=</mo><mi>Concat</mi><mo>(</mo
      ><msub><mi class="c-output">head</mi><mn>1</mn></msub
      ><mo>,</mo><mo>…</mo><mo>,</mo><msub><mi class="c-output">head</mi><mn>${n_heads}</mn></msub
      ><mo>)</mo><msup><mi>W</mi><mi>O</mi></msup></math
    >`,
  );

export const sinusoids = ({ d_model }) =>
  block(
    html`<math
        ><msub
          ><mi class="c-position">PE</mi
          ><mrow><mi>pos</mi><mo>,</mo><mn>2</mn><mi>i</mi></mrow></msub
        ><mo>=</mo><mi>sin</mi><mo>(</mo
        ><mfrac
          ><mi>pos</mi
          ><msup
            ><mn>10000</mn><mrow><mn>2</mn><mi>i</mi><mo>/</mo><mn>${d_model}</mn></mrow></msup
          ></mfrac
        ><mo>)</mo></math
      ><math
        ><msub
          ><mi class="c-position">PE</mi
          ><mrow><mi>pos</mi><mo>,</mo><mn>2</mn><mi>i</mi><mo>+</mo><mn>1</mn></mrow></msub
        ><mo>=</mo><mi>cos</mi><mo>(</mo><mtext>the same</mtext><mo>)</mo></math
      >`,
  );
