import { html, nothing, svg } from "onehop/vendor/lit-html.js";
import { lines } from "onehop/chart.js";
import { cachedImage } from "onehop/colour.js";
import { comb, folded, slider } from "onehop/controls.js";
import { traceCode } from "onehop/frame.js";
import { dot, norm, range } from "onehop/maths.js";
import { number } from "onehop/format.js";
import { relativePosition } from "onehop/tips.js";

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

/** The angle by which a pair of dimensions rotates between two positions, between −π and π. */
function angle(rows, pair, from, to) {
  const [a, b] = [rows[from], rows[to]];
  const [sin, cos] = [2 * pair, 2 * pair + 1];
  return Math.atan2(b[sin] * a[cos] - b[cos] * a[sin], b[cos] * a[cos] + b[sin] * a[sin]);
}

const isLearned = (view) => view.trace.settings.positions === "learned";

/**
 * The dimensions of a picture. Sines and cosines have pictures of their own: alternating columns would make a moiré.
 */
function halves(view, width) {
  if (isLearned(view)) return [{ name: "dimensions", of: range(width) }];
  const pairs = range(Math.floor(width / 2));
  return [
    { name: "sines", of: pairs.map((i) => 2 * i) },
    { name: "cosines", of: pairs.map((i) => 2 * i + 1) },
  ];
}

function heatmaps(view) {
  const { rows, position } = chosen(view);
  const shown = Math.min(SHOWN, rows.length);
  const picture = ({ name, of }, n) => {
    const strengths = () =>
      rows.slice(0, shown).map((row) => of.map((d) => (Math.max(-1, Math.min(1, row[d])) + 1) / 2));
    const tip = (event) => {
      const [x, y] = relativePosition(event, event.target);
      const [p, d] = [Math.floor(y * shown), of[Math.floor(x * of.length)]];
      const value = rows[Math.max(0, Math.min(p, shown - 1))]?.[d];
      return value === undefined ? null : `position ${p}, dimension ${d + 1}: ${number(value, 3)}`;
    };
    return html`<div>
      <div style="position:relative">
        <img
          .tip=${tip}
          class="pixels"
          style="--ratio:${view.narrow ? "1" : "5 / 4"}"
          alt="Position vectors, ${name}: ${shown} positions downwards, ${of.length} dimensions across"
          src=${cachedImage(`${view.traceKey} positions ${n}`, strengths, view.rgb("position"))}
        />
        ${position < shown ? html`<div style="position:absolute;left:0;right:0;top:${(100 * position) / shown}%;height:${100 / shown}%;min-height:4px;outline:2px solid var(--output)"></div>` : ""}
      </div>
      <p class="ticks">
        <span>${of[0] + 1}</span><span>${name}</span><span>${of.at(-1) + 1}</span>
      </p>
    </div>`;
  };
  return html`<div class="fingerprints">
    <p class="ticks upright" aria-hidden="true">
      <span>0</span><span>position</span><span>${shown - 1}</span>
    </p>
    ${halves(view, rows[0].length).map(picture)}
  </div>`;
}

const cosine = (a, b) => dot(a, b) / (norm(a) * norm(b) || 1);

/** The cosine between the selected position and each other one. */
function similarity(view) {
  const { rows, position } = chosen(view);
  const points = range(Math.min(SHOWN, rows.length)).map((p) => [
    p,
    cosine(rows[position], rows[p]),
  ]);
  const low = Math.min(0, ...points.map(([, c]) => c));
  return html`<div data-likeness>
    ${lines({
      view,
      label: `Cosine of position ${position} with every other`,
      x: { min: 0, max: points.length - 1, label: "position" },
      y: { min: low, max: 1, label: `cosine with position ${position}` },
      series: [{ name: "this model", concept: "position", points }],
      mark: Math.min(position, points.length - 1),
      height: 190,
    })}
  </div>`;
}

/** Row E of table 3, the paper's and this project's: learned positions instead of sinusoids. */
function learned(view) {
  const rows = view.measured.twins?.positions;
  if (!rows) return nothing;
  const of = (kind) => rows.find((row) => row.positions === kind);
  const [sines, own] = [of("sinusoidal"), of("learned")];
  const apart = sines.bleu_range[0] > own.bleu_range[1] || own.bleu_range[0] > sines.bleu_range[1];
  return html`<p class="reading" data-learned=${own.bleu} data-sinusoidal=${sines.bleu}>
    A table of positions can be learned instead. In the paper that changed nothing: 25.7 BLEU beside
    25.8. In this project's small trainings it scores
    <strong>${number(own.bleu, 1)}</strong> beside <strong>${number(sines.bleu, 1)}</strong>
    (${own.seeds} seeds
    each)${apart ? ", a difference larger than that between seeds" : ", within the spread of the seeds"}.
  </p>`;
}

const degrees = (radians) => (180 / Math.PI) * radians;

function circle(view) {
  const { rows, offset, position, pair } = chosen(view);
  const at = (p) => [90 + 66 * rows[p][2 * pair + 1], 90 - 66 * rows[p][2 * pair]];
  const [a, b] = [at(position), at(position + offset)];
  const otherPositions = range(rows.length - offset).filter((p) => p % 7 === 0);
  const rotation = angle(rows, pair, position, position + offset);
  const spread = Math.max(
    ...otherPositions.map((p) =>
      Math.abs(
        Math.atan2(
          Math.sin(angle(rows, pair, p, p + offset) - rotation),
          Math.cos(angle(rows, pair, p, p + offset) - rotation),
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
          ><mi>R</mi><mo>(</mo><mn>${number(degrees(rotation), 1)}°</mn><mo>)</mo
          ><mspace width=".3em"></mspace><mi>PE</mi><mo>(</mo><mn>${position}</mn><mo>)</mo></math
        >
      </div>
      <p class="reading" style="margin:0">
        Dimensions ${2 * pair + 1} and ${2 * pair + 2} are sine and cosine of one angle. ${offset}
        places further it has turned by
        <strong class="numbers" data-angle=${rotation}>${number(degrees(rotation), 1)}°</strong>.
        Starting anywhere else, the turn differs by at most
        <strong class="numbers">${number(degrees(spread), 3)}°</strong
        >${spread < 1e-3 ? ": the same rotation everywhere." : ": these positions were learned, so no rotation is built into them."}
      </p>
    </div>
  </div>`;
}

export function draw(view) {
  const { rows, offset, position, pair } = chosen(view);
  return html` <div class="controls">
      ${slider({ label: "Position", min: 0, max: rows.length - 1 - offset, value: position, choose: (p) => view.setDial("positions.position", p) })}
      ${slider({ label: "Offset", min: 0, max: 20, value: offset, choose: (o) => view.setDial("positions.offset", o) })}
      ${slider({ label: "Dimensions", min: 0, max: rows[0].length / 2 - 1, value: pair, choose: (p) => view.setDial("positions.pair", p), shown: (p) => `${2 * p + 1}, ${2 * p + 2}` })}
    </div>
    ${heatmaps(view)}
    <h4 style="margin-top:1.2rem">The fingerprint of position ${position}</h4>
    <div class="lanes" style="grid-template-columns:minmax(0,1fr)">
      ${comb({ values: rows[position], concept: "position", label: `Position ${position} in ${rows[0].length} dimensions`, scale: 1, height: 56 })}
    </div>
    <div style="margin-top:1.2rem">${circle(view)}</div>
    ${folded(view, `How alike is position ${position} to the others?`, similarity(view))}
    ${learned(view)}`;
}

export const caption = (view) =>
  html`The model's own table of positions. Columns are dimensions; strong colour is +1, faint is −1.
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
  return `${traceCode(view)}table = trace["positions"]
rows = [[d + 1, float(table[${position}, d]), float(table[${position + offset}, d])] for d in range(table.shape[1])]`;
};
