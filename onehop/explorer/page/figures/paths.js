import { html, svg } from "onehop/vendor/lit-html.js";
import { lines } from "onehop/chart.js";
import { segments, slider } from "onehop/controls.js";
import { missingMeasurement, provenance } from "onehop/frame.js";
import { range } from "onehop/maths.js";
import { number } from "onehop/format.js";
import { TEXTS } from "onehop/texts.js";

export const id = "paths";
export const item = 11;
export const title = "How far apart are two words?";
export const needs = [];

const T = TEXTS.paths;
const KINDS = [
  ["attention", "self-attention", "output", null],
  ["recurrent", "plain recurrence", "neutral", "6 4"],
  ["lstm", "LSTM", "query", "2 3"],
];

function chain(view, n, attention) {
  const width = view.narrow ? 340 : 680;
  const x = (i) => 16 + ((width - 32) * i) / (n - 1);
  const radius = Math.max(2, Math.min(8, (width - 32) / n / 3.2));
  const hop = (a, b) =>
    `M${x(a)} 76C${x(a)} ${76 - Math.min(70, 14 + (x(b) - x(a)) / 3)} ${x(b)} ${76 - Math.min(70, 14 + (x(b) - x(a)) / 3)} ${x(b)} 76`;
  const hops = attention
    ? hop(0, n - 1)
    : range(n - 1)
        .map((i) => hop(i, i + 1))
        .join("");
  return html`<svg
    viewBox="0 0 ${width} 106"
    style="width:100%;max-width:${width}px"
    role="img"
    aria-label="${n} words; the first reaches the last in ${attention ? 1 : n - 1} steps"
  >
    <path
      d=${hops}
      fill="none"
      stroke=${attention ? "var(--output)" : "var(--neutral)"}
      stroke-width="2.2"
    />
    ${range(n).map((i) => svg`<circle cx=${x(i)} cy="76" r=${radius} fill=${i === 0 || i === n - 1 ? "var(--query)" : "var(--rule-strong)"} .tip=${T.steps(i + 1, i === 0 ? 0 : attention ? 1 : i)} />`)}
    <text x=${x(0)} y="101" text-anchor="start">word 1</text>
    <text x=${x(n - 1)} y="101" text-anchor="end">word ${n}</text>
  </svg>`;
}

/** What is kept of n words: one fixed-size vector that all share, or one vector each. */
function memory(view, n, attention) {
  const width = view.narrow ? 340 : 680;
  const { d_model } = view.trace.settings;
  const [boxes, share] = attention ? [n, d_model] : [1, d_model / n];
  const pitch = (width - 32) / Math.max(n, 1);
  const size = Math.min(52, pitch * 0.82);
  const left = (b) => (attention ? 16 + pitch * (b + 0.5) - size / 2 : width - 68); // after the last word
  const words = (b) => (attention ? [b] : range(n));
  const slice = (b, i) => {
    const [w, x] = attention ? [size, left(b)] : [52 / n, left(b) + (52 * i) / n];
    const tip = T.share(i + 1, attention ? d_model : number(share, share < 10 ? 1 : 0));
    return svg`<rect x=${x} y="6" width=${w} height="26" data-word=${i} .tip=${tip}
      fill="color-mix(in srgb, var(--output) ${30 + (60 * i) / n}%, var(--panel))" />`;
  };
  const box = (b) =>
    svg`${words(b).map((i) => slice(b, i))}<rect x=${left(b)} y="6" width=${attention ? size : 52} height="26" fill="none" stroke="var(--output-ink)" pointer-events="none" />`;
  return {
    picture: html`<svg
      viewBox="0 0 ${width} 38"
      style="width:100%;max-width:${width}px"
      role="img"
      aria-label=${T.kept(boxes, d_model)}
      data-vectors=${boxes}
    >
      ${range(boxes).map(box)}
    </svg>`,
    text: html`${T.kept(boxes, d_model)}
    ${attention ? T.each : T.shared(n, number(share, share < 10 ? 1 : 0))}`,
  };
}

export function draw(view) {
  const n = Number(view.dial("paths.length", 12));
  const kind = view.dial("paths.kind", "recurrent");
  const data = view.measured.paths;
  const { picture, text } = memory(view, n, kind === "attention");
  return html` <div class="controls">
      ${segments({
        name: "paths-kind",
        label: "Which network",
        options: [
          ["recurrent", "recurrent"],
          ["attention", "self-attention"],
        ],
        value: kind,
        choose: (k) => view.setDial("paths.kind", k),
      })}
      ${slider({ label: "Sentence length", min: 2, max: 64, value: n, choose: (v) => view.setDial("paths.length", v) })}
    </div>
    ${chain(view, n, kind === "attention")} ${picture}
    <p class="reading">
      From the first word to the last:
      <strong data-steps=${kind === "attention" ? 1 : n - 1}
        >${kind === "attention" ? 1 : n - 1}
        ${kind === "attention" || n === 2 ? "step" : "steps"}</strong
      >. ${text}
    </p>
    <h4 style="margin-top:1.4rem">What is left of the gradient on the way</h4>
    ${data ? measured(view, data, n) : missingMeasurement("paths", "how much gradient reaches a word, by distance.")}`;
}

function measured(view, data, n) {
  const values = data.rows.flatMap((r) => KINDS.map(([key]) => r[key])).filter((x) => x > 0);
  const points = (key) => data.rows.filter((r) => r[key] > 0).map((r) => [r.distance, r[key]]);
  return lines({
    view,
    label: "Gradient norm by distance, for a recurrent layer and for self-attention",
    x: {
      min: Math.max(1, data.rows[0].distance),
      max: data.rows.at(-1).distance,
      log: true,
      label: "distance in words",
      ticks: data.rows
        .map((r) => r.distance)
        .filter((_, i, all) => all.length < 9 || i % Math.ceil(all.length / 7) === 0),
    },
    y: {
      min: Math.min(...values),
      max: Math.max(...values) * 1.3,
      log: true,
      label: "gradient norm, relative to distance 1",
    },
    series: KINDS.map(([key, name, concept, dash]) => ({
      name,
      concept,
      dash,
      points: points(key),
      dots: true,
    })),
    mark: Math.min(n - 1, data.rows.at(-1).distance),
    height: 240,
  });
}

export const caption = (view) =>
  view.measured.paths
    ? html`Untrained layers with random weights, not the translation model.
      ${provenance(view.measured.paths)}`
    : html`A recurrent network passes information from word to word; attention reaches any word
      directly.`;

export const table = (view) => {
  const n = Number(view.dial("paths.length", 12));
  const data = view.measured.paths;
  if (data)
    return {
      columns: ["distance", ...KINDS.map(([, name]) => name)],
      rows: data.rows.map((r) => [r.distance, ...KINDS.map(([key]) => r[key])]),
    };
  return {
    columns: ["network", "steps from first to last"],
    rows: [
      ["recurrent", n - 1],
      ["self-attention", 1],
    ],
  };
};

export const python = (view) =>
  view.measured.paths
    ? `from onehop.explorer.content import measured

rows = [[r["distance"], r["attention"], r["recurrent"], r["lstm"]] for r in measured()["paths"]["rows"]]`
    : `n = ${Number(view.dial("paths.length", 12))}
rows = [["recurrent", n - 1], ["self-attention", 1]]`;
