import { html } from "onehop/vendor/lit-html.js";
import { bars, slider } from "onehop/controls.js";
import { provenance, scoredOn, unmeasured } from "onehop/frame.js";
import { number } from "onehop/text.js";

export const id = "lengths";
export const item = 23;
export const title = "Quality by length, up to the longest training sentence and beyond";
export const needs = [];

/** Whether every text of a bucket is longer than any sentence of the training. */
const beyond = (data, bucket) => bucket.from > data.trained_to;

/** What the slider's bucket has to do with the training. */
function reached(data, bucket) {
  const limit = html`The training kept no sentence of more than ${data.trained_to} pieces`;
  if (beyond(data, bucket))
    return html`${limit}: these texts are longer than anything it trained on.`;
  const further = data.buckets.some((b) => beyond(data, b));
  return html`${limit}; ${further ? "bars marked * lie beyond" : "no text here is beyond that"}.`;
}

export function draw(view) {
  const data = view.measured.lengths;
  if (!data) return unmeasured("lengths", "translation quality by sentence length.");
  const place = Math.min(Number(view.dial("lengths.place", 0)), data.buckets.length - 1);
  const here = data.buckets[place];
  const name = (b) => `${b.from}–${b.to}${beyond(data, b) ? " *" : ""}`;
  const column = (heading, value, digits) =>
    html`<div>
      <h4>${heading}</h4>
      ${bars({ rows: data.buckets.map((b, i) => ({ name: name(b), value: value(b), concept: i === place ? "output" : "neutral" })), concept: "neutral", number, digits, from: 0, top: place })}
    </div>`;
  return html` <div class="controls">
      ${slider({ label: "Length in pieces", min: 0, max: data.buckets.length - 1, value: place, choose: (p) => view.turn("lengths.place", p), shown: (p) => name(data.buckets[p]) })}
    </div>
    <div class="columns">
      ${column("chrF", (b) => b.chrf, 1)}
      ${column("Length of the output, relative to the reference", (b) => b.tokens_ratio, 2)}
      ${column("Entropy of the cross-attention, bits", (b) => b.attention_entropy.cross, 2)}
    </div>
    <p class="reading">
      ${here.sentences} ${here.sentences === 1 ? "text" : "texts"} of ${here.from} to ${here.to}
      pieces: BLEU <strong>${number(here.bleu, 1)}</strong>, chrF
      <strong>${number(here.chrf, 1)}</strong>${data.set ? ` on ${data.set}` : ""}.
      ${reached(data, here)}
    </p>`;
}

export const caption = (view) => {
  const data = view.measured.lengths;
  if (!data)
    return html`A sine is defined at every position. Whether the layers above know what to do there
    is another matter.`;
  return html`Long texts are neighbouring sentences joined and translated in one piece; at most
  ${data.most} texts a length. ${scoredOn(data)} ${provenance(data)}`;
};

export const table = (view) => ({
  columns: ["from", "to", "texts", "BLEU", "chrF", "length ratio"],
  rows: (view.measured.lengths?.buckets ?? []).map((b) => [
    b.from,
    b.to,
    b.sentences,
    b.bleu,
    b.chrf,
    b.tokens_ratio,
  ]),
});

export const python = () => `from onehop.explorer.content import measured

data = measured()["lengths"]
columns = ("from", "to", "sentences", "bleu", "chrf", "tokens_ratio")
rows = [[b[c] for c in columns] for b in (data["buckets"] if data else [])]`;
