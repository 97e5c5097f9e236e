import { html, nothing, svg } from "onehop/vendor/lit-html.js";
import { lines } from "onehop/chart.js";
import { folded, slider } from "onehop/controls.js";
import { provenance, scoredOn, unmeasured } from "onehop/frame.js";
import { offEdit } from "onehop/findings.js";
import { called } from "onehop/headgrid.js";
import { largest, range } from "onehop/maths.js";
import { ROLES } from "onehop/state.js";
import { ROLE_NAMES } from "onehop/tensors.js";
import { count, number } from "onehop/text.js";

export const id = "pruning";
export const item = 22;
export const title = "How many heads can go?";
export const needs = [];

const score = (data) => (data.metric === "chrF" ? "chrf" : "bleu");

/** The last cut before a twentieth of the score is lost. */
export function lastCheapCut(data) {
  const key = score(data);
  const lost = data.rows.findIndex((r) => r[key] < 0.95 * data.rows[0][key]);
  return Math.max(0, (lost < 0 ? data.rows.length : lost) - 1);
}

export function draw(view) {
  const data = view.measured.pruning;
  if (!data)
    return html`${unmeasured("pruning", "quality against the number of heads removed, weakest first.")}${folded(view, ONE_OR_MANY, oneOrMany(view.measured.twins))}`;
  const key = score(data);
  const place = Math.min(
    Number(view.dial("pruning.place", lastCheapCut(data))),
    data.rows.length - 1,
  );
  const row = data.rows[place];
  const next = data.order[row.removed];
  return html` <div class="controls">
      ${slider({ label: "Heads removed", min: 0, max: data.rows.length - 1, value: place, choose: (p) => view.turn("pruning.place", p), shown: (p) => `${data.rows[p].removed} of ${data.order.length}` })}
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
    ${gone(view, data, row.removed)} ${worse(view, data, row.removed)}
    ${folded(view, ONE_OR_MANY, oneOrMany(view.measured.twins))}`;
}

/** Every head as a cell, a row a layer: those that are gone are empty. The weakest goes first. */
function gone(view, data, removed) {
  const rank = new Map(data.order.map((h, i) => [`${h.role} ${h.layer} ${h.head}`, i]));
  const roles = ROLES.filter((role) => data.order.some((h) => h.role === role));
  const size = 13;
  const panel = (role) => {
    const own = data.order.filter((h) => h.role === role);
    const [layers, heads] = ["layer", "head"].map((k) => 1 + largest(own.map((h) => h[k])));
    const cell = (layer, head) => {
      const place = rank.get(`${role} ${layer} ${head}`);
      const off = place < removed;
      return svg`<rect x=${head * size} y=${layer * size} width=${size - 2} height=${size - 2} rx="2" data-gone=${off}
        fill=${off ? "var(--panel)" : "var(--weight)"} stroke=${off ? "var(--rule-strong)" : "var(--weight)"} stroke-dasharray=${off ? "2 2" : "none"}
        .tip=${`${called({ role, layer, head })}: number ${place + 1} of ${data.order.length} to go${off ? ", gone" : ""}`} />`;
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

/** The sentence on the page without the heads that are gone, where the list is of this model and it can be asked. */
function worse(view, data, removed) {
  const same = data.model?.hash === view.trace.model.hash;
  if (!same || view.home.kind !== "live" || !removed) return nothing;
  const { text } = view.base.source;
  if (view.dial("pruning.asked", "") !== "yes")
    return html`<p>
      <button type="button" data-worse @click=${() => view.turn("pruning.asked", "yes")}>
        Translate the sentence on this page without them
      </button>
    </p>`;
  const found = view.resource(`pruned ${text} ${removed}`, () =>
    view.home.variant(text, data.order.slice(0, removed).map(offEdit)),
  );
  if (!found.value && !found.error)
    return html`<p class="reading" role="status">The model without them is translating …</p>`;
  const trouble = found.error ?? found.value.error;
  return trouble
    ? html`<div class="trouble"><p>${trouble}</p></div>`
    : html`<p class="reading" data-pruned=${removed}>
        Without these ${removed} heads “<bdi>${text}</bdi>” becomes “<strong
          ><bdi>${found.value.target.text}</bdi></strong
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

/** A mean, and the smallest and largest of its runs where there are several. */
const spread = (mean, [low, high], digits) =>
  html`${number(mean, digits)}${low === high ? "" : html` <span class="spread">(${number(low, digits)} to ${number(high, digits)})</span>`}`;

/** Trained with few or many heads from the start: the paper's models, and small ones of this project. */
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
            : unmeasured("twins", "small models that differ in nothing but the number of heads.")
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

/** How often the models of each row were trained: "3", or "2 to 3". */
function seedsOf({ runs, rows }) {
  const times = rows.map((r) => runs.filter((run) => run.n_heads === r.n_heads).length);
  const [least, most] = [Math.min(...times), Math.max(...times)];
  return least === most ? `${most}` : `${least} to ${most}`;
}

/** What a row says about the paper's claim that the base's number of heads is better, with "neither" as an answer. */
function verdict({ rows, base }, row) {
  const usual = rows.find((r) => r.n_heads === base);
  if (row === usual) return "";
  const name = `${row.n_heads} ${row.n_heads === 1 ? "head" : "heads"}`;
  if (row.bleu_range[1] < usual.bleu_range[0])
    return html`<span class="verdict yes">${name}: worse</span> Every run has less BLEU than every
      run with ${base}, as in the paper.`;
  if (row.bleu_range[0] > usual.bleu_range[1])
    return html`<span class="verdict no">${name}: better</span> Every run has more BLEU than every
      run with ${base}: at this scale the paper's finding does not hold.`;
  return html`<span class="verdict no">${name}: neither</span> The runs overlap with those of
    ${base} heads: at this scale no winner can be told.`;
}

export const caption = (view) =>
  view.measured.pruning
    ? html`${scoredOn(view.measured.pruning)} A head's importance is the size of the loss's gradient
      by a factor on its output. ${provenance(view.measured.pruning)}`
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
