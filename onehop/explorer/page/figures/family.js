import { html, svg } from "onehop/vendor/lit-html.js";
import { lines } from "onehop/chart.js";
import { bars, segments, slider } from "onehop/controls.js";
import { range } from "onehop/maths.js";
import { number, percent, power } from "onehop/format.js";

export const id = "family";
export const item = 20;
export const title = "The same blocks: norm order, label smoothing, warm-up, subsets";
export const needs = [];

const TOPICS = [
  ["norm", "post- and pre-norm"],
  ["smoothing", "label smoothing"],
  ["warmup", "warm-up"],
  ["subsets", "subsets"],
];

/** The learning rate of the paper's schedule. */
const rate = (step, d_model, warmup) =>
  d_model ** -0.5 * Math.min(step ** -0.5, step * warmup ** -1.5);

const block = (x, y, width, text, concept) =>
  svg`<rect x=${x} y=${y} width=${width} height="32" rx="6" fill="var(--panel)" stroke="var(--${concept})" stroke-width="1.8" /><text x=${x + width / 2} y=${y + 20} text-anchor="middle">${text}</text>`;

function order(pre) {
  const steps = pre
    ? [
        ["norm", "value"],
        ["sub-layer", "query"],
        ["add", "output"],
      ]
    : [
        ["sub-layer", "query"],
        ["add", "output"],
        ["norm", "value"],
      ];
  const add = pre ? 2 : 1;
  const y = (i) => 190 - i * 62;
  return html`<svg
    viewBox="0 0 260 250"
    style="width:100%;max-width:260px;margin:auto"
    role="img"
    aria-label="${pre ? "Pre-norm: norm, sub-layer, add" : "Post-norm: sub-layer, add, norm"}, with the stream going round"
  >
    <path d="M110 246V14" stroke="var(--rule-strong)" fill="none" stroke-width="1.6" />
    <path
      d="M110 236H224V${y(add) + 16}H172"
      stroke="var(--output)"
      fill="none"
      stroke-width="2.6"
    />
    <path d="M105 20L110 8L115 20z" fill="var(--rule-strong)" />
    ${steps.map(([text, concept], i) => block(48, y(i), 124, text, concept))}
  </svg>`;
}

function norms(view) {
  const kind = view.dial("family.norm", view.trace.settings.norm);
  return html` <div class="controls">
      ${segments({
        name: "family-norm",
        label: "Order",
        options: [
          ["post", "post-norm, the paper"],
          ["pre", "pre-norm, most since"],
        ],
        value: kind,
        choose: (k) => view.setDial("family.norm", k),
      })}
    </div>
    ${order(kind === "pre")}
    <div class="formula" style="justify-content:center">
      ${
        kind === "pre"
          ? html`<math
              ><mi>x</mi><mo>+</mo><mi>Sublayer</mi><mo>(</mo><mi>LayerNorm</mi><mo>(</mo><mi>x</mi
              ><mo>)</mo><mo>)</mo></math
            >`
          : html`<math
              ><mi>LayerNorm</mi><mo>(</mo><mi>x</mi><mo>+</mo><mi>Sublayer</mi><mo>(</mo><mi>x</mi
              ><mo>)</mo><mo>)</mo></math
            >`
      }
    </div>
    <p class="reading">
      ${kind === "pre" ? "The stream runs through untouched from the bottom to the top; one more norm follows the last layer." : "Every layer's norm stands in the stream itself, and every gradient passes through it."}
      This model is <strong>${view.trace.settings.norm}-norm</strong>.
    </p>`;
}

function smoothing(view) {
  const epsilon = Number(view.dial("family.epsilon", 0.1));
  const vocabulary = view.trace.model.vocab_size;
  const right = 1 - epsilon + epsilon / vocabulary;
  const step = view.trace.steps[0];
  return html` <div class="controls">
      ${slider({ label: "ε", min: 0, max: 0.5, step: 0.05, value: epsilon, choose: (e) => view.setDial("family.epsilon", e), shown: (e) => number(e, 2) })}
    </div>
    ${bars({
      rows: [
        { name: "the right piece", value: right, concept: "output" },
        { name: "any other piece", value: epsilon / vocabulary },
      ],
      concept: "neutral",
      number,
      digits: 4,
      from: 0,
      to: 1,
    })}
    <p class="reading">
      Training asks for ${percent(right)} on the right piece and shares the rest among all
      ${vocabulary.toLocaleString("en-US")}. The model learns not to be too sure: perplexity
      suffers, BLEU gains. In this translation the first piece got ${percent(step.chosen.p)}.
    </p>`;
}

function warm(view) {
  const warmup = Number(view.dial("family.warmup", 4000));
  const d = view.trace.settings.d_model;
  const points = range(121)
    .map((i) => Math.max(1, (i * 20000) / 120))
    .map((s) => [s, rate(s, d, warmup)]);
  return html` <div class="controls">
      ${slider({ label: "Warm-up steps", min: 500, max: 12000, step: 500, value: warmup, choose: (w) => view.setDial("family.warmup", w) })}
    </div>
    <div class="formula">
      <math
        ><msup
          ><mn>${d}</mn><mrow><mo>−</mo><mn>0.5</mn></mrow></msup
        ><mo>·</mo><mi>min</mi><mo>(</mo
        ><msup
          ><mi>step</mi><mrow><mo>−</mo><mn>0.5</mn></mrow></msup
        ><mo>,</mo><mi>step</mi><mo>·</mo
        ><msup
          ><mn>${warmup}</mn><mrow><mo>−</mo><mn>1.5</mn></mrow></msup
        ><mo>)</mo></math
      >
    </div>
    ${lines({ view, label: "Learning rate against the step", x: { min: 0, max: 20000, label: "step" }, y: { min: 0, max: rate(500, d, 500) * 1.05, label: "learning rate", written: (t) => (t === 0 ? "0" : power(t, 1)) }, series: [{ name: "learning rate", concept: "output", points }], mark: warmup, height: 230 })}
    <p class="reading">
      Up in a straight line for ${warmup} steps, down with the root of the step after; at the top
      <span class="numbers">${power(rate(warmup, d, warmup), 2)}</span>.
    </p>`;
}

const KINDS = {
  both: [
    "encoder and decoder",
    "this paper: it reads one text and writes another",
    ["encoder", "cross", "decoder"],
  ],
  encoder: ["encoder only", "BERT: every position sees all others; read and classify", ["encoder"]],
  decoder: ["decoder only", "GPT: no source, so no cross-attention; go on writing", ["decoder"]],
};

/** Both stacks from the bottom up. Parts that a kind leaves out are dashed and pale. */
function wires(lit) {
  const has = (part) => lit.includes(part);
  const style = (part) => (has(part) ? "" : "opacity:.28");
  const dash = (part) => (has(part) ? "none" : "3 4");
  const box = (part, x, y, text, concept) =>
    svg`<g data-part=${part} data-lit=${has(part)} style=${style(part)}><rect x=${x} y=${y} width="132" height="34" rx="6" fill="color-mix(in srgb, var(--${concept}) 12%, var(--panel))" stroke="var(--${concept})" stroke-width="1.6" stroke-dasharray=${dash(part)} /><text x=${x + 66} y=${y + 21} text-anchor="middle">${text}</text></g>`;
  const wire = (part, d, concept = "rule-strong") =>
    svg`<path data-wire=${part} d=${d} fill="none" stroke="var(--${concept})" stroke-width=${concept === "output" ? 2.4 : 1.8} stroke-dasharray=${dash(part)} style=${style(part)} />`;
  const tip = (part, x, y) =>
    svg`<path d="M${x - 5} ${y + 9}L${x} ${y}L${x + 5} ${y + 9}z" fill="var(--rule-strong)" style=${style(part)} />`;
  /** A residual connection around a sub-layer. */
  const round = (part, x, y, side) =>
    wire(part, `M${x + 66} ${y + 45}H${x + 66 + side * 82}V${y - 10}H${x + 66}`, "output");
  const label = (part, x, y, text) =>
    svg`<text class="soft" x=${x} y=${y} text-anchor="middle" style=${style(part)}>${text}</text>`;
  return html`<svg
    viewBox="0 0 420 370"
    style="width:100%;max-width:460px"
    role="img"
    aria-label="Encoder on the left, decoder on the right; lit: ${lit.join(", ")}"
  >
    ${wire("encoder", "M86 340V100")} ${wire("cross", "M86 100V60H210V199H262")}
    ${wire("decoder", "M328 340V28")} ${round("encoder", 20, 255, -1)}
    ${round("encoder", 20, 140, -1)} ${round("decoder", 262, 265, 1)} ${round("cross", 262, 182, 1)}
    ${round("decoder", 262, 99, 1)} ${box("encoder", 20, 255, "self-attention", "weight")}
    ${box("encoder", 20, 140, "feed-forward", "value")}
    ${box("decoder", 262, 265, "masked self-attention", "weight")}
    ${box("cross", 262, 182, "cross-attention", "key")}
    ${box("decoder", 262, 99, "feed-forward", "value")}
    ${svg`<path d="M254 194L263 199L254 204z" fill="var(--rule-strong)" style=${style("cross")} />`}
    ${has("decoder") || !has("encoder") ? "" : svg`<path d="M86 100V60" stroke="var(--rule-strong)" stroke-width="1.8" /><path d="M81 66L86 56L91 66z" fill="var(--rule-strong)" />`}
    ${tip("decoder", 328, 22)} ${label("encoder", 86, 360, "what is read, whole")}
    ${label("decoder", 328, 360, "what was written so far")}
    ${label("decoder", 328, 14, "next word")}
    ${has("decoder") ? "" : label("encoder", 86, 46, "a vector for each word")}
  </svg>`;
}

function subsets(view) {
  const kind = view.dial("family.subset", "both");
  const [name, use, lit] = KINDS[kind];
  return html` <div class="controls">
      ${segments({ name: "family-subset", label: "Which parts", options: Object.entries(KINDS).map(([k, [text]]) => [k, text]), value: kind, choose: (k) => view.setDial("family.subset", k) })}
    </div>
    ${wires(lit)}
    <ul class="legend">
      <li>
        <i style="background:var(--output)"></i>residual path: what came in is added to what came
        out
      </li>
    </ul>
    <p class="reading"><strong>${name}</strong>: ${use}.</p>`;
}

export function draw(view) {
  const topic = view.dial("family.topic", "norm");
  return html` <div class="controls">
      ${segments({ name: "family-topic", label: "Topic", options: TOPICS, value: topic, choose: (t) => view.setDial("family.topic", t) })}
    </div>
    ${{ norm: norms, smoothing, warmup: warm, subsets }[topic](view)}`;
}

export const caption = () =>
  html`Diagrams and formulas; nothing here was measured except where it says so.`;

export const table = (view) => {
  const warmup = Number(view.dial("family.warmup", 4000));
  const steps = [1, 100, 1000, 4000, 10000, 100000];
  return {
    columns: ["step", `rate with warm-up ${warmup}`],
    rows: steps.map((s) => [s, rate(s, view.trace.settings.d_model, warmup)]),
  };
};

export const python = (view) => `from onehop.config import TrainSettings
from onehop.training.optimizer import learning_rate

settings = TrainSettings(warmup=${Number(view.dial("family.warmup", 4000))})
rows = [[step, learning_rate(step, settings, ${view.trace.settings.d_model})] for step in (1, 100, 1000, 4000, 10000, 100000)]`;
