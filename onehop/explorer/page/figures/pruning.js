import { html } from "onehop/vendor/lit-html.js";
import { lines } from "onehop/chart.js";
import { slider } from "onehop/controls.js";
import { provenance, scoredOn, unmeasured } from "onehop/frame.js";
import { ROLE_NAMES } from "onehop/tensors.js";
import { count, number } from "onehop/text.js";

export const id = "pruning";
export const item = 22;
export const title = "How many heads can go?";
export const needs = [];

const score = (data) => (data.metric === "chrF" ? "chrf" : "bleu");

export function draw(view) {
  const data = view.measured.pruning;
  if (!data)
    return html`${unmeasured("pruning", "quality against the number of heads removed, weakest first.")}${oneOrMany(view.measured.twins)}`;
  const key = score(data);
  const place = Math.min(Number(view.dial("pruning.place", 0)), data.rows.length - 1);
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
    ${oneOrMany(view.measured.twins)}`;
}

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
  return html`<h4 style="margin-top:1.6rem">One head or many, at the same cost</h4>
    <div class="columns">
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
