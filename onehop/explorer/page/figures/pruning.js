import { html, nothing, svg } from "onehop/vendor/lit-html.js";
import { lines } from "onehop/chart.js";
import { folded, slider } from "onehop/controls.js";
import { missingMeasurement, provenance, scoreNote } from "onehop/frame.js";
import { headOffEdit } from "onehop/ablation.js";
import { headName } from "onehop/headgrid.js";
import { maxOf, range } from "onehop/maths.js";
import { ROLES } from "onehop/state.js";
import { ROLE_NAMES } from "onehop/tensors.js";
import { count, number } from "onehop/format.js";

export const id = "pruning";
export const item = 22;
export const title = "How many heads can go?";
export const needs = [];

const score = (data) => (data.metric === "chrF" ? "chrf" : "bleu");

/** The index of the last cut that keeps 95% of the score. */
export function lastCheapCut(data) {
  const key = score(data);
  const lost = data.rows.findIndex((r) => r[key] < 0.95 * data.rows[0][key]);
  return Math.max(0, (lost < 0 ? data.rows.length : lost) - 1);
}

export function draw(view) {
  const data = view.measured.pruning;
  if (!data)
    return html`${missingMeasurement("pruning", "quality against the number of heads removed, weakest first.")}${folded(view, ONE_OR_MANY, oneOrMany(view.measured.twins))}`;
  const key = score(data);
  const index = Math.min(
    Number(view.dial("pruning.place", lastCheapCut(data))),
    data.rows.length - 1,
  );
  const row = data.rows[index];
  const next = data.order[row.removed];
  return html` <div class="controls">
      ${slider({ label: "Heads removed", min: 0, max: data.rows.length - 1, value: index, choose: (p) => view.setDial("pruning.place", p), shown: (p) => `${data.rows[p].removed} of ${data.order.length}` })}
    </div>
    ${lines({
      view,
      label: `${data.metric} against the number of removed heads`,
      x: { min: 0, max: data.rows.at(-1).removed, label: "heads removed, weakest first" },
      y: { min: 0, max: Math.max(...data.rows.map((r) => r[key])) * 1.1, label: data.metric },
      series: [
        {
          name: data.metric,
          concept: "output",
          dots: true,
          points: data.rows.map((r) => [r.removed, r[key]]),
        },
      ],
      mark: row.removed,
    })}
    <p class="reading">
      With ${row.removed} heads gone:
      <strong>${number(row[key], 1)}</strong> ${data.metric}${data.set ? ` on ${data.set}` : ""},
      with all of them ${number(data.rows[0][key], 1)}.
      ${next ? html`The next to go: ${ROLE_NAMES[next.role]}, layer ${next.layer + 1}, head ${next.head + 1}.` : ""}
    </p>
    <p class="reading">Each cell is a head; an empty one is gone.</p>
    ${remainingHeads(data, row.removed)} ${prunedTranslation(view, data, row.removed)}
    ${folded(view, ONE_OR_MANY, oneOrMany(view.measured.twins))}`;
}

/** Every head as a cell, a row a layer; removed heads are empty. The weakest heads go first. */
function remainingHeads(data, removed) {
  const rank = new Map(data.order.map((h, i) => [`${h.role} ${h.layer} ${h.head}`, i]));
  const roles = ROLES.filter((role) => data.order.some((h) => h.role === role));
  const size = 13;
  const panel = (role) => {
    const own = data.order.filter((h) => h.role === role);
    const [layers, heads] = ["layer", "head"].map((k) => 1 + maxOf(own.map((h) => h[k])));
    const cell = (layer, head) => {
      const position = rank.get(`${role} ${layer} ${head}`);
      const off = position < removed;
      return svg`<rect x=${head * size} y=${layer * size} width=${size - 2} height=${size - 2} rx="2" data-gone=${off}
        fill=${off ? "var(--panel)" : "var(--weight)"} stroke=${off ? "var(--rule-strong)" : "var(--weight)"} stroke-dasharray=${off ? "2 2" : "none"}
        .tip=${`${headName({ role, layer, head })}: number ${position + 1} of ${data.order.length} to go${off ? ", gone" : ""}`} />`;
    };
    return html`<div>
      <h4>${ROLE_NAMES[role]}</h4>
      <svg
        viewBox="-1 -1 ${heads * size + 1} ${layers * size + 1}"
        style="width:100%;max-width:${heads * size * 1.4}px;margin:0"
        role="img"
        aria-label="${ROLE_NAMES[role]}: ${own.filter((h) => rank.get(`${role} ${h.layer} ${h.head}`) < removed).length} of ${own.length} heads gone"
      >
        ${range(layers).map((layer) => range(heads).map((head) => cell(layer, head)))}
      </svg>
    </div>`;
  };
  return html`<div class="triangles" style="margin-top:.6rem">${roles.map(panel)}</div>`;
}

/**
 * The current sentence translated without the removed heads, if the list belongs to this model and it can be asked.
 */
function prunedTranslation(view, data, removed) {
  const same = data.model?.hash === view.trace.model.hash;
  if (!same || view.backend.kind !== "live" || !removed) return nothing;
  const { text } = view.base.source;
  if (view.dial("pruning.asked", "") !== "yes")
    return html`<p>
      <button type="button" data-worse @click=${() => view.setDial("pruning.asked", "yes")}>
        Translate the sentence on this page without them
      </button>
    </p>`;
  const response = view.resource(`pruned ${text} ${removed}`, () =>
    view.backend.variant(text, data.order.slice(0, removed).map(headOffEdit)),
  );
  if (!response.value && !response.error)
    return html`<p class="reading" role="status">The model without them is translating …</p>`;
  const error = response.error ?? response.value.error;
  return error
    ? html`<div class="error"><p>${error}</p></div>`
    : html`<p class="reading" data-pruned=${removed}>
        Without these ${removed} heads “<bdi>${text}</bdi>” becomes “<strong
          ><bdi>${response.value.target.text}</bdi></strong
        >”.
      </p>`;
}

const ONE_OR_MANY = "One head or many, at the same cost";

const PAPER = [
  [1, 24.9, 5.29],
  [4, 25.5, 5.0],
  [8, 25.8, 4.92],
  [16, 25.8, 4.91],
  [32, 25.4, 5.01],
];

const tableOf = (rows, label) =>
  html`<div class="scroll" tabindex="0" role="region" aria-label=${label}>
    <table>
      <thead>
        <tr>
          <th scope="col">heads</th>
          <th scope="col">perplexity</th>
          <th scope="col">BLEU</th>
        </tr>
      </thead>
      <tbody>
        ${rows.map(
          ([heads, perplexity, bleu]) =>
            html`<tr>
              <th scope="row">${heads}</th>
              <td>${perplexity}</td>
              <td>${bleu}</td>
            </tr>`,
        )}
      </tbody>
    </table>
  </div>`;

/** A mean, with the range of its runs if there are several. */
const spread = (mean, [low, high], digits) =>
  html`${number(mean, digits)}${low === high ? "" : html` <span class="spread">(${number(low, digits)} to ${number(high, digits)})</span>`}`;

/** Models trained with few or many heads from the start: the paper's, and small ones of this project. */
function oneOrMany(data) {
  return html`<div class="columns">
      <div>
        <h4>The paper: table 3, rows A</h4>
        ${tableOf(
          PAPER.map(([heads, bleu, perplexity]) => [heads, number(perplexity, 2), number(bleu, 1)]),
          "The paper's models by number of heads",
        )}
      </div>
      <div>
        <h4>Here: the same rows, a small model</h4>
        ${
          data
            ? tableOf(
                data.rows.map((r) => [
                  r.n_heads,
                  spread(r.perplexity, r.perplexity_range, 2),
                  spread(r.bleu, r.bleu_range, 1),
                ]),
                "This project's models by number of heads",
              )
            : missingMeasurement(
                "twins",
                "small models that differ in nothing but the number of heads.",
              )
        }
      </div>
    </div>
    ${
      data
        ? html`<p class="reading">
              ${verdict(data, data.rows[0])} ${verdict(data, data.rows.at(-1))}
            </p>
            <p class="reading">
              The models here have ${count(data.rows[0].parameters)} parameters each:
              ${data.layers[0]}+${data.layers[1]} layers of width ${data.d_model},
              ${count(data.steps)} steps of ${count(data.batch_tokens)} tokens on
              ${count(data.data.pairs)} pairs, trained from ${seedsOf(data)} seeds each; perplexity
              and BLEU on ${count(data.data.valid)} validation pairs of the same corpus, mean
              (lowest to highest). ${provenance(data)}
            </p>`
        : ""
    }`;
}

/** How many runs each row has: "3", or "2 to 3". */
function seedsOf({ runs, rows }) {
  const times = rows.map((r) => runs.filter((run) => run.n_heads === r.n_heads).length);
  const [least, most] = [Math.min(...times), Math.max(...times)];
  return least === most ? `${most}` : `${least} to ${most}`;
}

/** Whether a row supports the paper's claim that the base's number of heads is better; the runs may also overlap. */
function verdict({ rows, base }, row) {
  const baseline = rows.find((r) => r.n_heads === base);
  if (row === baseline) return "";
  const name = `${row.n_heads} ${row.n_heads === 1 ? "head" : "heads"}`;
  if (row.bleu_range[1] < baseline.bleu_range[0])
    return html`<span class="verdict yes">${name}: worse</span> Every run has less BLEU than every
      run with ${base}, as in the paper.`;
  if (row.bleu_range[0] > baseline.bleu_range[1])
    return html`<span class="verdict no">${name}: better</span> Every run has more BLEU than every
      run with ${base}: at this scale the paper's finding does not hold.`;
  return html`<span class="verdict no">${name}: no difference</span> The runs overlap with those of
    ${base} heads: at this scale no winner can be told.`;
}

export const caption = (view) =>
  view.measured.pruning
    ? html`${scoreNote(view.measured.pruning)} A head's importance is the size of the loss's
      gradient by a factor on its output. ${provenance(view.measured.pruning)}`
    : html`To train with one head costs quality; to take heads away afterwards is another question.`;

export const table = (view) => {
  const { pruning, twins } = view.measured;
  const removed = (pruning?.rows ?? []).map((r) => [
    `${r.removed} heads removed`,
    r.bleu,
    r.chrf,
    null,
  ]);
  const trained = (twins?.rows ?? []).map((r) => [
    `trained with ${r.n_heads}`,
    r.bleu,
    null,
    r.perplexity,
  ]);
  return { columns: ["model", "BLEU", "chrF", "perplexity"], rows: [...removed, ...trained] };
};

export const python = () => `from onehop.explorer.content import measured

pruning, twins = (measured()[name] or {"rows": []} for name in ("pruning", "twins"))
rows = [[f"{r['removed']} heads removed", r["bleu"], r["chrf"], None] for r in pruning["rows"]]
rows += [[f"trained with {r['n_heads']}", r["bleu"], None, r["perplexity"]] for r in twins["rows"]]`;
