import { html } from "onehop/vendor/lit-html.js";
import { lines } from "onehop/chart.js";
import { folded, slider } from "onehop/controls.js";
import { missingMeasurement, provenance, scoreNote } from "onehop/frame.js";
import { maxOf } from "onehop/maths.js";
import { number } from "onehop/format.js";

export const id = "lengths";
export const item = 23;
export const title = "Quality by length, up to the longest training sentence and beyond";
export const needs = [];

/** Whether every text of a bucket is longer than the longest training sentence. */
const beyond = (data, bucket) => bucket.from > data.trained_to;

/** How the selected bucket relates to the lengths in training. */
function reached(data, bucket) {
  const limit = html`The training kept no sentence of more than ${data.trained_to} pieces`;
  if (beyond(data, bucket))
    return html`${limit}: these texts are longer than anything it trained on.`;
  const hasLonger = data.buckets.some((b) => beyond(data, b));
  return html`${limit};
  ${hasLonger ? "the shaded part lies beyond" : "no text here is beyond that"}.`;
}

export function draw(view) {
  const data = view.measured.lengths;
  if (!data) return missingMeasurement("lengths", "translation quality by sentence length.");
  const index = Math.min(Number(view.dial("lengths.place", 0)), data.buckets.length - 1);
  const bucket = data.buckets[index];
  const longest = data.buckets.at(-1).mean_length;
  const zone =
    longest > data.trained_to ? { from: data.trained_to, label: "never trained on" } : null;
  const chart = (v, name, value, height) => {
    const points = data.buckets.map((b) => [b.mean_length, value(b)]);
    return lines({
      view: v,
      label: `${name} against the length of the text`,
      x: { min: 0, max: longest, label: "length in pieces" },
      y: { min: 0, max: 1.1 * maxOf(points.map(([, y]) => y)), label: name },
      series: [{ name, concept: "output", dots: true, points }],
      mark: bucket.mean_length,
      zone,
      height,
    });
  };
  const small = { ...view, narrow: true };
  return html` <div class="controls">
      ${slider({ label: "Length in pieces", min: 0, max: data.buckets.length - 1, value: index, choose: (p) => view.setDial("lengths.place", p), shown: (p) => `${data.buckets[p].from}–${data.buckets[p].to}` })}
    </div>
    ${chart(view, "chrF", (b) => b.chrf, 250)}
    <p class="reading">
      ${bucket.sentences} ${bucket.sentences === 1 ? "text" : "texts"} of ${bucket.from} to
      ${bucket.to} pieces: BLEU <strong>${number(bucket.bleu, 1)}</strong>, chrF
      <strong>${number(bucket.chrf, 1)}</strong>${data.set ? ` on ${data.set}` : ""}.
      ${reached(data, bucket)}
    </p>
    ${folded(
      view,
      "What else changes with the length",
      html`<div class="columns">
        <div>${chart(small, "output length / reference", (b) => b.tokens_ratio, 170)}</div>
        <div>
          ${chart(small, "entropy of the cross-attention, bits", (b) => b.attention_entropy.cross, 170)}
        </div>
      </div>`,
    )}`;
}

export const caption = (view) => {
  const data = view.measured.lengths;
  if (!data)
    return html`A sine is defined at every position. Whether the layers above know what to do there
    is another matter.`;
  return html`Long texts are neighbouring sentences joined and translated in one piece; at most
  ${data.most} texts a length. ${scoreNote(data)} ${provenance(data)}`;
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
