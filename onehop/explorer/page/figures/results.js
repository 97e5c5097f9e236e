import { html } from "onehop/vendor/lit-html.js";
import { bars, segments } from "onehop/controls.js";
import { number, power } from "onehop/text.js";

export const id = "results";
export const item = 25;
export const title = "What it won";
export const needs = [];

const PAIRS = { en_de: "English to German", en_fr: "English to French" };

const systems = (view, pair) => view.paper.systems.filter((s) => s[pair] !== null);
const name = (s) => `${s.system}${s.ensemble ? ", ensemble" : ""}`;

export function draw(view) {
  const pair = view.dial("results.pair", "en_de");
  const all = systems(view, pair);
  const paid = all.filter((s) => s[`flop_${pair}`] !== null);
  const colour = (s) => (s.kind === "attention" ? "output" : "neutral");
  const cheapest = Math.min(...paid.map((s) => s[`flop_${pair}`]));
  const decades = (s) => Math.log10(s[`flop_${pair}`]) - Math.floor(Math.log10(cheapest)) + 0.5;
  return html` <div class="controls">
      ${segments({ name: "results-pair", label: "Languages", options: Object.entries(PAIRS), value: pair, choose: (p) => view.turn("results.pair", p) })}
    </div>
    <div class="columns">
      <div>
        <h4>BLEU, newstest2014</h4>
        ${bars({ rows: all.map((s) => ({ name: name(s), value: s[pair], concept: colour(s) })), concept: "neutral", number, digits: 1, from: 20 })}
        <p class="reading" style="color:var(--soft)">Bars begin at 20.</p>
      </div>
      <div>
        <h4>Training cost, operations</h4>
        ${bars({ rows: paid.map((s) => ({ name: name(s), value: decades(s), concept: colour(s), flop: s[`flop_${pair}`] })), concept: "neutral", number: (v) => power(10 ** (v - 0.5 + Math.floor(Math.log10(cheapest)))), from: 0 })}
        <p class="reading" style="color:var(--soft)">Each step of ten has the same length.</p>
      </div>
    </div>
    ${(view.paper.own ?? []).map((own) => html`<p class="reading"><strong>This project:</strong> ${own.system}, ${own.test}: <strong>${number(own.bleu, 1)}</strong> ${own.metric} (${own.note}).</p>`)}`;
}

export const caption = (view) => html`${view.paper.source}.`;

export const table = (view) => {
  const pair = view.dial("results.pair", "en_de");
  return {
    columns: ["system", "BLEU", "operations"],
    rows: systems(view, pair).map((s) => [name(s), s[pair], s[`flop_${pair}`]]),
  };
};

export const python = (view) => {
  const pair = view.dial("results.pair", "en_de");
  return `from onehop.explorer.content import read_data

systems = [s for s in read_data("paper")["systems"] if s["${pair}"] is not None]
rows = [[s["system"] + (", ensemble" if s["ensemble"] else ""), s["${pair}"], s["flop_${pair}"]] for s in systems]`;
};
