import { html, svg } from "onehop/vendor/lit-html.js";
import { pixelPicture } from "onehop/colour.js";
import { comb, slider } from "onehop/controls.js";
import { opening } from "onehop/frame.js";
import { range } from "onehop/maths.js";
import { number } from "onehop/text.js";
import { shareOf } from "onehop/tips.js";

export const id = "positions";
export const item = 10;
export const title = "A fingerprint for every position";
export const needs = ["positions"];

const SHOWN = 64;

function chosen(view) {
  const rows = view.trace.tensor("positions").rows();
  const offset = Number(view.dial("positions.offset", 5));
  const position = Math.min(Number(view.dial("positions.position", 9)), rows.length - 1 - offset);
  const pair = Math.min(Number(view.dial("positions.pair", 4)), rows[0].length / 2 - 1);
  return { rows, offset, position, pair };
}

/** The angle by which a pair turns from one position to another, between −π and π. */
export function angle(rows, pair, from, to) {
  const [a, b] = [rows[from], rows[to]];
  const [sin, cos] = [2 * pair, 2 * pair + 1];
  return Math.atan2(b[sin] * a[cos] - b[cos] * a[sin], b[cos] * a[cos] + b[sin] * a[sin]);
}

function heat(view) {
  const { rows, position } = chosen(view);
  const shown = Math.min(SHOWN, rows.length);
  const strengths = rows
    .slice(0, shown)
    .map((row) => Array.from(row, (x) => (Math.max(-1, Math.min(1, x)) + 1) / 2));
  const tip = (event) => {
    const [x, y] = shareOf(event, event.target);
    const [p, d] = [Math.floor(y * shown), Math.floor(x * rows[0].length)];
    const value = rows[Math.max(0, Math.min(p, shown - 1))]?.[d];
    return value === undefined ? null : `position ${p}, dimension ${d + 1}: ${number(value, 3)}`;
  };
  return html`<div style="position:relative">
    <img
      .tip=${tip}
      class="pixels"
      style="--ratio:${view.narrow ? "4 / 3" : "5 / 2"}"
      alt="Position vectors: ${shown} positions downwards, ${rows[0].length} dimensions across. The left side changes fast from row to row, the right side hardly."
      src=${pixelPicture(`${view.stamp} positions`, strengths, view.rgb("position"))}
    />
    ${position < shown ? html`<div class="glide" style="position:absolute;left:-4px;right:-4px;top:${(100 * position) / shown}%;height:${100 / shown}%;min-height:4px;outline:2px solid var(--output)"></div>` : ""}
  </div>`;
}

function circle(view) {
  const { rows, offset, position, pair } = chosen(view);
  const at = (p) => [90 + 66 * rows[p][2 * pair + 1], 90 - 66 * rows[p][2 * pair]];
  const [a, b] = [at(position), at(position + offset)];
  const elsewhere = range(rows.length - offset).filter((p) => p % 7 === 0);
  const here = angle(rows, pair, position, position + offset);
  const spread = Math.max(
    ...elsewhere.map((p) =>
      Math.abs(
        Math.atan2(
          Math.sin(angle(rows, pair, p, p + offset) - here),
          Math.cos(angle(rows, pair, p, p + offset) - here),
        ),
      ),
    ),
  );
  return html`<div class="columns" style="align-items:center">
    <svg
      viewBox="0 0 180 180"
      style="width:100%;max-width:220px;margin:auto"
      role="img"
      aria-label="Pair ${pair + 1} as a hand on a dial: position ${position} and position ${position + offset}"
    >
      <circle cx="90" cy="90" r="66" fill="none" stroke="var(--rule)" />
      <line x1="90" y1="90" x2=${a[0]} y2=${a[1]} stroke="var(--position)" stroke-width="2.5" />
      <line x1="90" y1="90" x2=${b[0]} y2=${b[1]} stroke="var(--output)" stroke-width="2.5" />
      <circle cx=${a[0]} cy=${a[1]} r="5" fill="var(--position)" />
      <circle cx=${b[0]} cy=${b[1]} r="5" fill="var(--output)" />
      ${[
        [position, "position"],
        [position + offset, "output"],
      ].map(([p, concept], i) => {
        const [x, y] = [90 + (78 * (at(p)[0] - 90)) / 66, 90 + (78 * (at(p)[1] - 90)) / 66];
        return svg`<text class="number" x=${x} y=${y + 4} text-anchor="middle" style="fill:var(--${concept}-ink)">${i && offset === 0 ? "" : p}</text>`;
      })}
    </svg>
    <div>
      <div class="formula">
        <math
          ><mi>PE</mi><mo>(</mo><mn>${position}</mn><mo>+</mo><mn>${offset}</mn><mo>)</mo><mo>=</mo
          ><mi>R</mi><mo>(</mo><mn>${number(here, 3)}</mn><mo>)</mo><mspace width=".3em"></mspace
          ><mi>PE</mi><mo>(</mo><mn>${position}</mn><mo>)</mo></math
        >
      </div>
      <p class="reading" style="margin:0">
        Dimensions ${2 * pair + 1} and ${2 * pair + 2} are sine and cosine of one angle. ${offset}
        places further it has turned by
        <strong class="numbers" data-angle=${here}>${number(here, 3)}</strong>. Starting anywhere
        else, the turn differs by at most
        <strong class="numbers">${number(spread, 5)}</strong
        >${spread < 1e-3 ? ": the same rotation everywhere." : ": these positions were learned, and owe nobody a rotation."}
      </p>
    </div>
  </div>`;
}

export function draw(view) {
  const { rows, offset, position, pair } = chosen(view);
  return html` <div class="controls">
      ${slider({ label: "Position", min: 0, max: rows.length - 1 - offset, value: position, choose: (p) => view.turn("positions.position", p) })}
      ${slider({ label: "Offset", min: 0, max: 20, value: offset, choose: (o) => view.turn("positions.offset", o) })}
      ${slider({ label: "Dimensions", min: 0, max: rows[0].length / 2 - 1, value: pair, choose: (p) => view.turn("positions.pair", p), shown: (p) => `${2 * p + 1}, ${2 * p + 2}` })}
    </div>
    ${heat(view)}
    <h4 style="margin-top:1.2rem">The fingerprint of position ${position}</h4>
    <div class="lanes" style="grid-template-columns:minmax(0,1fr)">
      ${comb({ values: rows[position], concept: "position", label: `Position ${position} in ${rows[0].length} dimensions`, scale: 1, height: 56 })}
    </div>
    <div style="margin-top:1.2rem">${circle(view)}</div>`;
}

export const caption = (view) =>
  html`The model's own table of positions. Rows are positions from the top, columns dimensions from
  the left; strong colour is +1, faint is −1.
  ${view.trace.settings.positions === "learned" ? "This model learned its positions." : "Low dimensions change fast, high ones slowly."}`;

export const table = (view) => {
  const { rows, offset, position } = chosen(view);
  return {
    columns: ["dimension", `position ${position}`, `position ${position + offset}`],
    rows: Array.from(rows[position], (x, d) => [d + 1, x, rows[position + offset][d]]),
  };
};

export const python = (view) => {
  const { offset, position } = chosen(view);
  return `${opening(view)}table = trace["positions"]
rows = [[d + 1, float(table[${position}, d]), float(table[${position + offset}, d])] for d in range(table.shape[1])]`;
};
