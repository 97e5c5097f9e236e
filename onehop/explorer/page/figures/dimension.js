import { html, svg } from "onehop/vendor/lit-html.js";
import { lines, scale, tickLabel, ticks } from "onehop/chart.js";
import { folded, pairedBars, slider } from "onehop/controls.js";
import { missingMeasurement, provenance, traceCode } from "onehop/frame.js";
import { range } from "onehop/maths.js";
import { ROLES } from "onehop/state.js";
import { ROLE_NAMES } from "onehop/tensors.js";
import { number, percent } from "onehop/format.js";

export const id = "dimension";
export const item = 5;
export const title = "As the dimension grows, with and without the root";
export const needs = ["{attention}.scores"];

const variances = (view) =>
  ROLES.flatMap((role) =>
    range(view.trace.layers(role)).flatMap((layer) =>
      view.trace.json.score_variance[view.trace.path(role, layer)].map((v, head) => ({
        role,
        layer,
        head,
        ...v,
      })),
    ),
  );

/** The variance of q·k in every head as a dot, and d_k as a line. */
function heads(view) {
  const dots = variances(view);
  const d_k = view.trace.settings.d_k;
  const width = view.narrow ? 340 : 680;
  const values = [...dots.map((d) => Math.max(d.scores, 1e-3)), d_k];
  const axis = { min: Math.min(...values) / 1.5, max: Math.max(...values) * 1.5, log: true };
  const x = scale(axis, view.narrow ? 86 : 110, width - 14);
  const y = (dot) =>
    36 +
    ROLES.indexOf(dot.role) * 46 +
    ((dot.layer + 0.5) / view.trace.layers(dot.role) - 0.5) * 30;
  const isSelected = (d) =>
    d.role === view.selection.role &&
    d.layer === view.selection.layer &&
    d.head === view.selection.head;
  return html`<svg
    viewBox="0 0 ${width} 198"
    style="width:100%;max-width:${width}px"
    role="img"
    aria-label="Variance of q·k in ${dots.length} heads beside dₖ = ${d_k}"
  >
    ${ROLES.map((role, i) => svg`<text x=${view.narrow ? 78 : 100} y=${40 + i * 46} text-anchor="end">${ROLE_NAMES[role]}</text>`)}
    ${ticks(axis, 6).map((t) => svg`<text class="soft" x=${x(t)} y="172" text-anchor="middle">${tickLabel(t)}</text>`)}
    <line class="axis" x1=${view.narrow ? 86 : 110} x2=${width - 14} y1="156" y2="156" />
    <text class="soft" x=${width / 2} y="192" text-anchor="middle">
      variance of q·k over this sentence
    </text>
    <line x1=${x(d_k)} x2=${x(d_k)} y1="4" y2="156" stroke="var(--output)" stroke-width="2" />
    <text x=${x(d_k) + 5} y="13" class="c-output" style="fill:var(--output-ink)">dₖ = ${d_k}</text>
    ${dots.map(
      (
        d,
      ) => svg`<circle cx=${x(Math.max(d.scores, 1e-3))} cy=${y(d)} r=${isSelected(d) ? 6 : 3.6} fill=${isSelected(d) ? "var(--output)" : "var(--key)"} fill-opacity=${isSelected(d) ? 1 : 0.65}
      .tip=${`${ROLE_NAMES[d.role]}, layer ${d.layer + 1}, head ${d.head + 1}: ${number(d.scores, 2)}`} />`,
    )}
  </svg>`;
}

function sweep(view, data) {
  const index = Math.min(Number(view.dial("dimension.place", 6)), data.rows.length - 1);
  const row = data.rows[index];
  const facts = (part, name) =>
    html`<p class="reading numbers">
      ${name}, on average: largest ${percent(part.top)}, gradient ${number(part.gradient, 4)}
    </p>`;
  const curve = (key) => data.rows.map((r) => [r.d, r[key].gradient]);
  return html` <div class="controls">
      ${slider({ label: "Dimension d", min: 0, max: data.rows.length - 1, value: index, choose: (p) => view.setDial("dimension.place", p), shown: (p) => String(data.rows[p].d) })}
    </div>
    <div class="formula">
      <math
        ><mi>Var</mi><mo>(</mo><mi class="c-query">q</mi><mo>·</mo><mi class="c-key">k</mi><mo>)</mo
        ><mo>=</mo><mn>${number(row.variance, 1)}</mn><mo>≈</mo><mi>d</mi><mo>=</mo
        ><mn>${row.d}</mn></math
      >
    </div>
    ${pairedBars({
      rows: row.scaled.weights.map((w, i) => ({
        name: `key ${i + 1}`,
        values: [row.unscaled.weights[i], w],
      })),
      sides: [
        { heading: "softmax(q·k)", concept: "key" },
        { heading: "softmax(q·k / √d)", concept: "output" },
      ],
      from: 0,
      to: 1,
      most: view.narrow ? 8 : null,
    })}
    <div class="columns">${facts(row.unscaled, "undivided")}${facts(row.scaled, "by √d")}</div>
    <h4 style="margin-top:1.6rem">The softmax's gradient: what learning has to push against</h4>
    ${lines({
      view,
      label: "Gradient norm of the softmax against the dimension, with and without scaling",
      x: {
        min: data.rows[0].d,
        max: data.rows.at(-1).d,
        log: true,
        label: "dimension d",
        ticks: data.rows.map((r) => r.d).filter((_, i) => i % (view.narrow ? 3 : 2) === 0),
      },
      y: {
        min: 0,
        max: 1.1 * Math.max(...data.rows.flatMap((r) => [r.scaled.gradient, r.unscaled.gradient])),
        label: "norm of the softmax's derivative",
      },
      series: [
        { name: "divided by √d", concept: "output", points: curve("scaled"), dots: true },
        { name: "not divided", concept: "key", dash: "6 4", points: curve("unscaled"), dots: true },
      ],
      mark: row.d,
      height: 230,
    })}
    <p class="reading">
      Random queries and keys, drawn in Python with seed ${data.seed}: ${data.draws} draws against
      ${data.keys} keys. Bars show one draw.
    </p>`;
}

export function draw(view) {
  const data = view.measured.dimension;
  return html` ${data ? sweep(view, data) : missingMeasurement("dimension", "random queries and keys in growing dimensions.")}
  ${folded(view, "And the real heads?", heads(view))}`;
}

export function caption(view) {
  const all = variances(view);
  const d_k = view.trace.settings.d_k;
  const near = all.filter((v) => v.scores > d_k / 2 && v.scores < 2 * d_k).length;
  return html`The rule “variance d<sub>k</sub>” supposes independent components of variance one.
  After training it need not hold: here ${near} of ${all.length} heads lie within a factor of two of
  d<sub>k</sub>. ${view.measured.dimension ? provenance(view.measured.dimension) : ""}`;
}

export const table = (view) => ({
  columns: ["attention", "layer", "head", "variance of q·k", "of q", "of k", "d_k"],
  rows: variances(view).map((v) => [
    ROLE_NAMES[v.role],
    v.layer + 1,
    v.head + 1,
    v.scores,
    v.q,
    v.k,
    view.trace.settings.d_k,
  ]),
});

export const python = (
  view,
) => `${traceCode(view)}names = {"encoder": "encoder self", "decoder": "decoder self", "cross": "cross"}
kinds = {"encoder": "encoder.layers.{}.self_attention", "decoder": "decoder.layers.{}.self_attention", "cross": "decoder.layers.{}.cross_attention"}
settings, rows = trace.header["model"]["settings"], []
for role, path in kinds.items():
    for layer in range(settings["n_encoder_layers" if role == "encoder" else "n_decoder_layers"]):
        for head, v in enumerate(trace.header["score_variance"][path.format(layer)]):
            rows.append([names[role], layer + 1, head + 1, v["scores"], v["q"], v["k"], settings["d_k"]])`;
