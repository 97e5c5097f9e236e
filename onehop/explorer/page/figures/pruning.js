import { html } from "onehop/vendor/lit-html.js";
import { lines } from "onehop/chart.js";
import { slider } from "onehop/controls.js";
import { provenance, unmeasured } from "onehop/frame.js";
import { ROLE_NAMES } from "onehop/tensors.js";
import { number } from "onehop/text.js";

export const id = "pruning";
export const item = 22;
export const title = "How many heads can go?";
export const needs = [];

const score = (data) => (data.metric === "chrF" ? "chrf" : "bleu");

export function draw(view) {
  const data = view.measured.pruning;
  if (!data) return html`${unmeasured("pruning", "quality against the number of heads removed, weakest first.")}${oneHead(null)}`;
  const key = score(data);
  const place = Math.min(Number(view.dial("pruning.place", 0)), data.rows.length - 1);
  const row = data.rows[place];
  const next = data.order[row.removed];
  return html`
    <div class="controls">${slider({ label: "Heads removed", min: 0, max: data.rows.length - 1, value: place, choose: (p) => view.turn("pruning.place", p), shown: (p) => `${data.rows[p].removed} of ${data.order.length}` })}</div>
    ${lines({ view, label: `${data.metric} against the number of removed heads`,
      x: { min: 0, max: data.rows.at(-1).removed, label: "heads removed, weakest first" },
      y: { min: 0, max: Math.max(...data.rows.map((r) => r[key])) * 1.1, label: data.metric },
      series: [{ name: data.metric, concept: "output", dots: true, points: data.rows.map((r) => [r.removed, r[key]]) }], mark: row.removed })}
    <p class="reading">With ${row.removed} heads gone: <strong>${number(row[key], 1)}</strong> ${data.metric}, with all of them ${number(data.rows[0][key], 1)}.
      ${next ? html`The next to go: ${ROLE_NAMES[next.role]}, layer ${next.layer + 1}, head ${next.head + 1}.` : ""}</p>
    ${oneHead(data.one_head)}`;
}

/** The paper's table 3, rows A; a run of this project's own where one was made. */
function oneHead(own) {
  const rows = [["1", "24.9", "5.29"], ["4", "25.5", "5.00"], ["8", "25.8", "4.92"], ["16", "25.8", "4.91"], ["32", "25.4", "5.01"]];
  return html`<h4 style="margin-top:1.4rem">One head or many, at the same cost</h4>
    <div class="scroll" tabindex="0" role="region" aria-label="Number of heads and quality"><table><thead><tr><th scope="col">heads</th><th scope="col">BLEU</th><th scope="col">perplexity</th></tr></thead>
    <tbody>${rows.map(([h, bleu, ppl]) => html`<tr><th scope="row">${h}</th><td>${bleu}</td><td>${ppl}</td></tr>`)}</tbody></table></div>
    <p class="reading">Trained so from the start: the paper's table 3, rows A, development set.${own ? html` This project's own model with ${own.n_heads} ${own.n_heads === 1 ? "head" : "heads"}: ${number(own.bleu, 1)} BLEU on the sentences above.` : ""}</p>`;
}

export const caption = (view) => (view.measured.pruning ? html`${view.measured.pruning.sentences} sentences; a head's importance is the size of the loss's gradient by a factor on its output. ${provenance(view.measured.pruning)}` : html`To train with one head costs quality; to take heads away afterwards is another question.`);

export const table = (view) => {
  const data = view.measured.pruning;
  return data ? { columns: ["removed", "BLEU", "chrF"], rows: data.rows.map((r) => [r.removed, r.bleu, r.chrf]) } : { columns: ["removed", "BLEU", "chrF"], rows: [] };
};

export const python = () => `from onehop.explorer.content import measured

data = measured()["pruning"]
rows = [[r["removed"], r["bleu"], r["chrf"]] for r in (data["rows"] if data else [])]`;
