import { html } from "onehop/vendor/lit-html.js";
import { pairedBars, picker, tokenPicker } from "onehop/controls.js";
import { opening } from "onehop/frame.js";
import { range } from "onehop/maths.js";
import { number, piece } from "onehop/text.js";

export const id = "residual";
export const item = 14;
export const title = "What each sub-layer adds to the stream";
export const needs = [];
export const compares = true;

const NAMES = {
  self_attention: "self-attention",
  cross_attention: "cross-attention",
  feed_forward: "feed-forward",
};
const stackOf = (view) => (view.selection.role === "encoder" ? "encoder" : "decoder");

/** The sub-layers of the chosen stack, with the chosen token's numbers. */
function entries(view) {
  return view.trace.json.residual
    .filter((r) => r.stack === stackOf(view))
    .map((r) => ({
      ...r,
      stream: r.stream[view.token],
      added: r.added[view.token],
      cosine: r.cosine[view.token],
    }));
}

export function draw(view) {
  const rows = entries(view);
  const largest = Math.max(...rows.flatMap((r) => [r.stream, r.added]));
  const layer = view.selection.layer;
  const smaller = rows.filter((r) => r.added < r.stream).length;
  return html` ${tokenPicker({ label: "Token", tokens: view.trace.queries(view.selection.role), value: view.selection.token, previewed: view.previewed, choose: view.chooseToken, preview: view.preview })}
    <div class="controls" style="margin-top:.9rem">
      ${picker({ label: "Layer", options: range(view.trace.layers(view.selection.role)).map((l) => [l, l + 1]), value: layer, choose: (l) => view.choose({ layer: Number(l) }) })}
    </div>
    ${pairedBars({
      rows: rows.map((r) => ({
        name: `${r.layer + 1} ${NAMES[r.sublayer]}`,
        values: [r.stream, r.added],
        concepts: ["neutral", r.layer === layer ? "output" : "rule-strong"],
      })),
      sides: [
        { heading: "The stream that comes in", concept: "neutral" },
        { heading: "What the sub-layer adds", concept: "output" },
      ],
      digits: 2,
      from: 0,
      to: largest,
    })}
    <p class="reading">
      For “<bdi>${piece(view.trace.queries(view.selection.role)[view.token])}</bdi>” the addition is
      shorter than the stream in <strong>${smaller} of ${rows.length}</strong> sub-layers of the
      ${stackOf(view)}.
      ${rows.filter((r) => r.layer === layer).map((r) => html`In layer ${layer + 1}, ${NAMES[r.sublayer]} adds ${number(r.added / r.stream, 2)} of the stream's length, at a cosine of ${number(r.cosine, 2)} to it. `)}
    </p>`;
}

export const caption = () =>
  html`Lengths of vectors. A cosine near zero means that the sub-layer writes in a new direction; a
  negative one, that it takes something away.`;

export const table = (view) => ({
  columns: ["sub-layer", "stream", "added", "added / stream", "cosine"],
  rows: entries(view).map((r) => [r.name, r.stream, r.added, r.added / r.stream, r.cosine]),
});

export const python = (view) => `${opening(view)}rows = []
for r in trace.header["residual"]:
    stream, added = r["stream"], r["added"]
    if r["stack"] == "${stackOf(view)}":
        rows.append([r["name"], stream[${view.token}], added[${view.token}], added[${view.token}] / stream[${view.token}], r["cosine"][${view.token}]])`;
