import { html } from "onehop/vendor/lit-html.js";
import { bars, picker } from "onehop/controls.js";
import { provenance, unmeasured } from "onehop/frame.js";
import { beginsWord, number, percent, piece } from "onehop/text.js";

export const id = "coreference";
export const item = 19;
export const title = "What does “it” become in German?";
export const needs = [];

const chosen = (view, data) => data.sentences[Math.min(Number(view.dial("coreference.sentence", 0)), data.sentences.length - 1)];

/** The sentence with “it” and its noun in the colours of who asks and who is asked. */
function marked(s) {
  const part = (i) => (s.it.includes(i) ? "query" : s.noun.includes(i) ? "key" : null);
  return s.tokens.filter((token) => token !== "</s>").map((token, i) => html`${beginsWord(token) && i ? " " : ""}${part(i) ? html`<b class="c-${part(i)}">${piece(token)}</b>` : piece(token)}`);
}

export function draw(view) {
  const data = view.measured.coreference;
  if (!data) return unmeasured("coreference", "sentences in which “it” must become er, sie or es, and the heads that look from it to its noun.");
  const s = chosen(view, data);
  const right = data.sentences.filter((x) => x.right).length;
  return html`
    <div class="controls">${picker({ label: "Sentence", options: data.sentences.map((x, i) => [i, x.source]), value: data.sentences.indexOf(s), choose: (i) => view.turn("coreference.sentence", i) })}</div>
    <div class="columns">
      <div>
        <p style="font:1.15rem/1.5 var(--serif);margin:0" lang="en">${marked(s)}</p>
        <p style="font:1.15rem/1.5 var(--serif);margin:.5rem 0 0" lang="de"><bdi>${s.translation}</bdi></p>
        <p class="reading"><span class="verdict ${s.right ? "yes" : "no"}">${s.right ? "right" : "wrong"}</span> needed: <strong>${s.expected}</strong>, written: <strong>${s.pronoun ?? "no pronoun"}</strong></p>
        ${view.home.kind === "live" ? html`<button type="button" @click=${() => view.ask(s.source)}>Open this sentence</button>` : ""}
      </div>
      <div><h4>Encoder heads that look most from “it” to the noun</h4>
        ${bars({ rows: s.heads.map((h) => ({ name: `layer ${h.layer + 1}, head ${h.head + 1}`, value: h.weight })), concept: "weight", number, from: 0, to: 1 })}
        <p class="reading numbers">an even look would give ${number(s.base, 3)}</p></div>
    </div>
    <p class="reading">${right} of ${data.sentences.length} pronouns are right.
      ${data.none ? html`<span class="verdict no">none here</span> No head looks from “it” to its noun in most sentences.` : html`Over all sentences, layer ${data.best[0].layer + 1}, head ${data.best[0].head + 1} has the noun as its first choice in <strong>${percent(data.best[0].share, 0)}</strong>.`}</p>`;
}

export const caption = (view) => html`German nouns have a gender, and the pronoun must agree: die Katze … sie, der Hund … er, das Tier … es. ${view.measured.coreference ? provenance(view.measured.coreference) : ""}`;

export const table = (view) => {
  const data = view.measured.coreference;
  return { columns: ["sentence", "needed", "written", "right"], rows: (data?.sentences ?? []).map((s) => [s.source, s.expected, s.pronoun ?? "none", s.right ? "yes" : "no"]) };
};

export const python = (view) => `from onehop.explorer.content import measured

data = measured()["coreference"]
rows = [[s["source"], s["expected"], s["pronoun"] or "none", "yes" if s["right"] else "no"] for s in (data["sentences"] if data else [])]`;
