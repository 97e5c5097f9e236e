import { html } from "onehop/vendor/lit-html.js";
import { lines } from "onehop/chart.js";
import { folded, picker, slider } from "onehop/controls.js";
import { missingMeasurement, provenance } from "onehop/frame.js";
import { count, short } from "onehop/format.js";

export const id = "complexity";
export const item = 16;
export const title = "What a layer costs, counted and timed";
export const needs = [];

const ceilLog = (base, n) => Math.max(1, Math.ceil(Math.log(n) / Math.log(base) - 1e-9));

/** The paper's table 1, evaluated. */
function costs(n, d, k, r) {
  return [
    ["self-attention", "n² · d", n * n * d, "1", 1, "1", 1],
    ["recurrent", "n · d²", n * d * d, "n", n, "n", n],
    ["convolutional", "k · n · d²", k * n * d * d, "1", 1, "logₖ n", ceilLog(k, n)],
    [
      "restricted self-attention",
      "r · n · d",
      r * n * d,
      "1",
      1,
      "n / r",
      Math.max(1, Math.ceil(n / r)),
    ],
  ];
}

const TIMED = [
  ["self_attention", "self-attention", "output", null],
  ["recurrence", "recurrence", "neutral", "6 4"],
  ["convolution", "convolution", "value", "2 3"],
  ["restricted", "restricted self-attention", "query", "9 3 2 3"],
];

function dials(view) {
  const data = view.measured.complexity;
  const n = 2 ** Number(view.dial("complexity.n", 5));
  const selected = Number(view.dial("complexity.d", 512));
  const choices = data?.d ?? [64, 128, 256, 512, 1024];
  return {
    data,
    n,
    d: choices.includes(selected) ? selected : choices.at(-1),
    choices,
    k: data?.kernel ?? 3,
    r: data?.neighbourhood ?? 16,
  };
}

/** The two lengths between which self-attention becomes slower for good; null if it never does. */
function crossover(rows, other) {
  const last = rows.findLastIndex((row) => row.self_attention <= row[other]);
  if (last === rows.length - 1) return null;
  return { from: rows[last]?.n ?? null, to: rows[last + 1].n };
}

const between = ({ from, to }) =>
  from === null
    ? html`from <strong>n = ${to}</strong> on`
    : html`between <strong>n = ${from} and ${to}</strong>`;

const time = (t) =>
  t < 1e-3
    ? `${+(t * 1e6).toPrecision(3)} µs`
    : t < 1
      ? `${+(t * 1e3).toPrecision(3)} ms`
      : `${t} s`;

function timed(view, data, n, d) {
  const rows = data.rows.filter((row) => row.d === d);
  const values = rows.flatMap((row) => TIMED.map(([key]) => row[key])).filter((x) => x > 0);
  const [recurrent, restricted] = ["recurrence", "restricted"].map((key) => crossover(rows, key));
  return html`${lines({
      view,
      label: `Measured seconds of four layers against the sentence length at d = ${d}`,
      x: {
        min: rows[0].n,
        max: rows.at(-1).n,
        log: true,
        label: "sentence length n",
        ticks: rows.map((r) => r.n).filter((_, i) => !view.narrow || i % 2 === 0),
      },
      y: {
        min: Math.min(...values) / 1.3,
        max: Math.max(...values) * 1.3,
        log: true,
        label: "processor time of one layer",
        written: time,
        exactly: time,
      },
      series: TIMED.filter(([key]) => rows[0][key] > 0).map(([key, name, concept, dash]) => ({
        name,
        concept,
        dash,
        dots: true,
        points: rows.map((row) => [row.n, row[key]]),
      })),
      mark: Math.max(rows[0].n, Math.min(n, rows.at(-1).n)),
    })}
    <p class="reading" data-crossing=${recurrent?.to ?? "none"}>
      ${recurrent ? html`At d = ${d} self-attention becomes slower than the recurrence ${between(recurrent)} on this machine.` : html`At d = ${d} self-attention stays faster than the recurrence at every length measured, up to ${count(rows.at(-1).n)}.`}
      The timed layers are whole ones: attention with its projections W<sup>Q</sup>, W<sup>K</sup>,
      W<sup>V</sup> and W<sup>O</sup>, which cost 4·n·d² products that the table does not count.
    </p>
    <p class="reading">
      Restricted attention is not faster at
      once${restricted ? html`: it wins ${between(restricted)}` : ""}. It has the same projections,
      and it is computed in blocks of ${data.neighbourhood} queries that meet the
      ${2 * data.neighbourhood} keys around them, with a mask. That is twice the r·n·d products of
      the table, plus the cutting into blocks; for short sentences both cost more than the few
      products saved.
    </p>`;
}

const tableOfCosts = (n, d, k, r) =>
  html`<div class="scroll" tabindex="0" role="region" aria-label="Table of complexities">
    <table>
      <thead>
        <tr>
          <th scope="col">layer</th>
          <th scope="col" colspan="2">operations</th>
          <th scope="col" colspan="2">in sequence</th>
          <th scope="col" colspan="2">longest path</th>
        </tr>
      </thead>
      <tbody>
        ${costs(n, d, k, r).map(
          ([name, o, a, s, b, p, c]) =>
            html`<tr>
              <th scope="row">${name}</th>
              <td>O(${o})</td>
              <td>${short(a)}</td>
              <td>O(${s})</td>
              <td>${count(b)}</td>
              <td>O(${p})</td>
              <td>${count(c)}</td>
            </tr>`,
        )}
      </tbody>
    </table>
  </div>`;

export function draw(view) {
  const { data, n, d, choices, k, r } = dials(view);
  return html` <div class="controls">
      ${slider({ label: "Length n", min: 1, max: 12, value: Math.log2(n), choose: (p) => view.setDial("complexity.n", p), shown: (p) => String(2 ** p) })}
      ${picker({ label: "Width d", options: choices.map((c) => [c, c]), value: d, choose: (c) => view.setDial("complexity.d", c) })}
    </div>
    ${folded(view, "The paper's table 1", tableOfCosts(n, d, k, r))}
    <p class="reading">
      ${n < d ? html`Here n is smaller than d, so self-attention needs fewer operations than recurrence, ${short(d / n)} times fewer.` : n === d ? html`At n = d self-attention and recurrence need the same number of operations.` : html`Here n is larger than d: self-attention needs ${short(n / d)} times the operations of recurrence, though none waits for another.`}
    </p>
    <h4 style="margin-top:1.4rem">On a real machine</h4>
    ${data ? timed(view, data, n, d) : missingMeasurement("complexity", "times of the four layers at growing lengths.")}`;
}

export const caption = (view) =>
  html`Kernel k = ${dials(view).k}, neighbourhood r = ${dials(view).r}.
  ${view.measured.complexity ? html`Layers with random weights, one thread; a dot is the median of ${view.measured.complexity.repeats} runs, the four layers in turn. ${provenance(view.measured.complexity)}` : ""}`;

export const table = (view) => {
  const { n, d, k, r } = dials(view);
  return {
    columns: ["layer", "operations", "in sequence", "longest path"],
    rows: costs(n, d, k, r).map(([name, , a, , b, , c]) => [name, a, b, c]),
  };
};

export const python = (view) => {
  const { n, d, k, r } = dials(view);
  return `import math

n, d, k, r = ${n}, ${d}, ${k}, ${r}
rows = [
    ["self-attention", n * n * d, 1, 1],
    ["recurrent", n * d * d, n, n],
    ["convolutional", k * n * d * d, 1, max(1, math.ceil(math.log(n, k) - 1e-9))],
    ["restricted self-attention", r * n * d, 1, max(1, math.ceil(n / r))],
]`;
};
