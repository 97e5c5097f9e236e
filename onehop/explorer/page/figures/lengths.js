import { html } from "onehop/vendor/lit-html.js";
import { bars, slider } from "onehop/controls.js";
import { provenance, unmeasured } from "onehop/frame.js";
import { number } from "onehop/text.js";

export const id = "lengths";
export const item = 23;
export const title = "Longer than anything it trained on";
export const needs = [];

export function draw(view) {
  const data = view.measured.lengths;
  if (!data) return unmeasured("lengths", "translation quality by sentence length.");
  const place = Math.min(Number(view.dial("lengths.place", 0)), data.buckets.length - 1);
  const here = data.buckets[place];
  const name = (b) => `${b.from}–${b.to}`;
  return html`
    <div class="controls">${slider({ label: "Length in tokens", min: 0, max: data.buckets.length - 1, value: place, choose: (p) => view.turn("lengths.place", p), shown: (p) => name(data.buckets[p]) })}</div>
    <div class="columns">
      <div><h4>chrF</h4>${bars({ rows: data.buckets.map((b, i) => ({ name: name(b), value: b.chrf, concept: i === place ? "output" : "neutral" })), concept: "neutral", number, digits: 1, from: 0, top: place })}</div>
      <div><h4>Length of the output, relative to the reference</h4>${bars({ rows: data.buckets.map((b, i) => ({ name: name(b), value: b.tokens_ratio, concept: i === place ? "output" : "neutral" })), concept: "neutral", number, digits: 2, from: 0, top: place })}</div>
      <div><h4>Entropy of the cross-attention, bits</h4>${bars({ rows: data.buckets.map((b, i) => ({ name: name(b), value: b.attention_entropy.cross, concept: i === place ? "output" : "neutral" })), concept: "neutral", number, digits: 2, from: 0, top: place })}</div>
    </div>
    <p class="reading">${here.sentences} ${here.sentences === 1 ? "sentence" : "sentences"} of ${name(here)} tokens: BLEU <strong>${number(here.bleu, 1)}</strong>, chrF <strong>${number(here.chrf, 1)}</strong>.
      The model was made for at most ${data.trained_to} tokens; sinusoids exist beyond, skill need not.</p>`;
}

export const caption = (view) => (view.measured.lengths ? provenance(view.measured.lengths) : html`A sine is defined at every position. Whether the layers above know what to do there is another matter.`);

export const table = (view) => ({ columns: ["from", "to", "sentences", "BLEU", "chrF", "length ratio"], rows: (view.measured.lengths?.buckets ?? []).map((b) => [b.from, b.to, b.sentences, b.bleu, b.chrf, b.tokens_ratio]) });

export const python = () => `from onehop.explorer.content import measured

data = measured()["lengths"]
columns = ("from", "to", "sentences", "bleu", "chrf", "tokens_ratio")
rows = [[b[c] for c in columns] for b in (data["buckets"] if data else [])]`;
