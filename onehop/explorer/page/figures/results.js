import { html } from "onehop/vendor/lit-html.js";
import { bars, segments } from "onehop/controls.js";
import { maxOf } from "onehop/maths.js";
import { number, power } from "onehop/format.js";

export const id = "results";
export const item = 25;
export const title = "What it won";
export const needs = [];

const PAIRS = { en_de: "English to German", en_fr: "English to French" };
const CONCEPTS = { attention: "output", own: "query" };

const systems = (view, pair) =>
  [...view.paper.systems, ...view.paper.own].filter((s) => s[pair] !== null);
const name = (s) => `${s.system}${s.ensemble ? ", ensemble" : ""}`;

/** The language pair: the current model's if the paper has it. */
const pairOf = (view) => {
  const { source, target } = view.trace.model;
  const own = `${source}_${target}`;
  return view.dial("results.pair", own in PAIRS ? own : "en_de");
};

export function draw(view) {
  const pair = pairOf(view);
  const all = systems(view, pair);
  const withCost = all.filter((s) => s[`flop_${pair}`] !== null);
  const concept = (s) => CONCEPTS[s.kind] ?? "neutral";
  const decade = Math.floor(Math.log10(Math.min(...withCost.map((s) => s[`flop_${pair}`]))));
  const decades = (s) => Math.log10(s[`flop_${pair}`]) - decade + 0.5;
  const operations = (v) => power(10 ** (v - 0.5 + decade));
  return html` <div class="controls">
      ${segments({ name: "results-pair", label: "Languages", options: Object.entries(PAIRS), value: pair, choose: (p) => view.setDial("results.pair", p) })}
    </div>
    <div class="columns">
      <div data-results="bleu">
        <h4>BLEU, newstest2014</h4>
        ${bars({ rows: all.map((s) => ({ name: name(s), value: s[pair], concept: concept(s) })), concept: "neutral", digits: 1, from: 0, to: Math.ceil(maxOf(all.map((s) => s[pair])) / 10) * 10 })}
      </div>
      <div data-results="cost">
        <h4>Training cost, operations (each step of ten has the same length)</h4>
        ${bars({ rows: withCost.map((s) => ({ name: name(s), value: decades(s), concept: concept(s), tip: `${name(s)}: ${operations(decades(s))} operations` })), concept: "neutral", number: operations, from: 0 })}
      </div>
    </div>
    <ul class="legend">
      <li><i style="background:var(--neutral)"></i>before the paper</li>
      <li><i style="background:var(--output)"></i>the paper</li>
      <li><i style="background:var(--query)"></i>this project</li>
    </ul>
    ${view.paper.own.filter((s) => s[pair] !== null).map((s) => html`<p class="reading"><strong>${s.system}:</strong> ${s.note}</p>`)}`;
}

export const caption = (view) => html`${view.paper.source}.`;

export const table = (view) => {
  const pair = pairOf(view);
  return {
    columns: ["system", "BLEU", "operations"],
    rows: systems(view, pair).map((s) => [name(s), s[pair], s[`flop_${pair}`]]),
  };
};

export const python = (view) => {
  const pair = pairOf(view);
  return `from onehop.explorer.content import read_data

paper = read_data("paper")
systems = [s for s in paper["systems"] + paper["own"] if s["${pair}"] is not None]
rows = [[s["system"] + (", ensemble" if s["ensemble"] else ""), s["${pair}"], s["flop_${pair}"]] for s in systems]`;
};
