import { html, svg } from "onehop/vendor/lit-html.js";
import { slider } from "onehop/controls.js";
import { range } from "onehop/maths.js";
import { count } from "onehop/text.js";

export const id = "patches";
export const item = 26;
export const title = "Where images fit: patches as tokens";
export const needs = [];

const SIDE = 224;
const sizes = [8, 14, 16, 28, 32, 56];

const chosen = (view) => {
  const size = sizes[Number(view.dial("patches.size", 2))];
  const across = SIDE / size;
  return { size, across, tokens: across * across, numbers: size * size * 3 };
};

export function draw(view) {
  const { size, across, tokens, numbers } = chosen(view);
  return html`
    <div class="controls">${slider({ label: "Patch size", min: 0, max: sizes.length - 1, value: sizes.indexOf(size), choose: (i) => view.turn("patches.size", i), shown: (i) => `${sizes[i]} × ${sizes[i]}` })}</div>
    <div class="columns" style="align-items:center">
      <svg viewBox="0 0 ${SIDE} ${SIDE}" style="width:100%;max-width:240px" role="img" aria-label="A square picture cut into ${across} by ${across} patches">
        <rect width=${SIDE} height=${SIDE} fill="var(--sunken)" /><circle cx="150" cy="76" r="34" fill="var(--output)" opacity=".8" /><path d="M0 190L70 110L120 160L160 124L224 190V224H0Z" fill="var(--value)" opacity=".65" />
        ${range(across + 1).map((i) => svg`<path d="M${i * size} 0V${SIDE}M0 ${i * size}H${SIDE}" stroke="var(--panel)" stroke-width="1.4" />`)}
        <rect x=${size} y=${size} width=${size} height=${size} fill="none" stroke="var(--key)" stroke-width="3" />
      </svg>
      <p class="reading">A picture of ${SIDE} × ${SIDE} becomes <strong>${count(tokens)}</strong> patches. Each patch is ${count(numbers)} numbers, which one matrix turns into a vector of d_model:
        from there on it is a token. An attention matrix has ${count(tokens * tokens)} entries.</p>
    </div>`;
}

export const caption = () => html`Nothing above the embedding knows that it sees a picture.`;

export const table = (view) => {
  const { tokens, numbers } = chosen(view);
  return { columns: ["quantity", "value"], rows: [["tokens", tokens], ["numbers in a patch", numbers], ["entries of an attention matrix", tokens * tokens]] };
};

export const python = (view) => `size = ${chosen(view).size}
tokens = (${SIDE} // size) ** 2
rows = [["tokens", tokens], ["numbers in a patch", size * size * 3], ["entries of an attention matrix", tokens**2]]`;
