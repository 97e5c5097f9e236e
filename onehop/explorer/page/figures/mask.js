import { html, nothing } from "onehop/vendor/lit-html.js";
import { pairedBars, toggle } from "onehop/controls.js";
import { opening } from "onehop/frame.js";
import { heatmap } from "onehop/heatmap.js";
import { mean, range, softmax, sum } from "onehop/maths.js";
import { divisor } from "onehop/recompute.js";
import { frameOf, player } from "onehop/player.js";
import { number, percent, piece } from "onehop/text.js";
import { TEXTS } from "onehop/texts.js";

export const id = "mask";
export const item = 12;
export const title = "The mask that hides the future";
export const needs = ["{attention}.scores", "{attention}.weights"];

const T = TEXTS.mask;

/** The decoder's own attention in the chosen layer, whatever role is chosen elsewhere. */
const place = (view) => ({
  role: "decoder",
  layer: Math.min(view.selection.layer, view.trace.layers("decoder") - 1),
  head: view.selection.head,
});

/** Weights with the mask as recorded, or from the same scores without it. */
function rowsOf(view, on) {
  const at = place(view);
  if (on)
    return view.trace
      .part(at, "weights")
      .rows({ head: at.head })
      .map((row) => Array.from(row));
  const by = divisor(view.trace, at);
  return view.trace
    .part(at, "scores")
    .rows({ head: at.head })
    .map((row) => softmax(Array.from(row, (s) => s / by)));
}

const future = (rows) => rows.map((row, i) => sum(row.slice(i + 1)));

function leak(view) {
  const found = view.trace.json.leak;
  if (!found)
    return html`<p class="reading">
      The mask is off in the whole model now, so there is nothing to compare.
    </p>`;
  const written = view.trace.target.output_tokens;
  const [masked, unmasked] = ["masked", "unmasked"].map((key) =>
    mean(found.probability.map((p) => p[key])),
  );
  return html` <h4 style="margin-top:1.4rem">
      What the leak does: the probability of each written piece
    </h4>
    ${pairedBars({
      rows: found.probability.map((p, i) => ({
        name: piece(written[i]),
        values: [p.masked, p.unmasked],
      })),
      sides: [
        { heading: "With the mask", concept: "output" },
        { heading: "Mask off in every layer", concept: "key" },
      ],
      from: 0,
      to: 1,
    })}
    <p class="reading">
      Average ${percent(masked)} with the mask, ${percent(unmasked)} when every position sees the
      whole translation. The model never trained that way: seeing the answer
      ${Math.abs(unmasked - masked) < 0.01 ? "changes little here" : unmasked > masked ? "helps it here" : "confuses it here"}.
    </p>`;
}

export function draw(view) {
  const on = view.dial("mask.on", "yes") === "yes";
  const all = view.trace.steps.length;
  const frame = frameOf(view, id, all);
  const fallen = on ? frame : 0; // rows that the mask has reached
  const [masked, unmasked] = [rowsOf(view, true), rowsOf(view, false)];
  const rows = masked.map((row, i) => (i < fallen ? row : unmasked[i]));
  const tokens = view.trace.target.input_tokens;
  const after = future(rows);
  const { layer, head } = place(view);
  return html` <div class="controls">
      ${toggle({ label: "causal mask", on, choose: (yes) => view.turn("mask.on", yes ? "yes" : "no") })}
      <span>decoder self-attention, layer ${layer + 1}, head ${head + 1}</span>
    </div>
    ${on ? player(view, { id, frames: all, label: T.player, says: frame ? T.fallen(piece(view.trace.queries("decoder")[frame - 1]), all - frame) : T.none }) : nothing}
    ${heatmap({ view, label: `Decoder self-attention with the mask ${on ? "on" : "off"}`, rows, queries: view.trace.queries("decoder"), keys: tokens, crossed: (i, j) => i < fallen && j > i })}
    <p class="reading">
      Weight on the future:
      <strong class="numbers" data-future=${sum(after)}
        >${fallen === all && sum(after) === 0 ? "exactly 0" : number(mean(after), 3)}</strong
      >
      ${fallen === all ? "in every row: −∞ before the softmax, 0 after it." : "of each row on average, if nothing forbids it."}
    </p>
    ${leak(view)}`;
}

export const caption = () =>
  html`Without the mask the cells are this head's own recorded scores, put through the softmax
  unhidden.`;

export const table = (view) => {
  const on = rowsOf(view, true);
  const off = rowsOf(view, false);
  const tokens = view.trace.keyPieces("decoder");
  return {
    columns: ["token", "on the future, masked", "on the future, unmasked"],
    rows: range(tokens.length).map((i) => [tokens[i], future(on)[i], future(off)[i]]),
  };
};

export const python = (view) => {
  const at = place(view);
  const path = view.trace.path("decoder", at.layer);
  return `import numpy as np

${opening(view)}masked = trace["${path}.weights"][${at.head}].astype(float)
scaled = trace["${path}.scores"][${at.head}].astype(float) / ${divisor(view.trace, at)}
powers = np.exp(scaled - scaled.max(-1, keepdims=True))
unmasked = powers / powers.sum(-1, keepdims=True)
tokens = trace.header["target"]["input_tokens"]
rows = [[t, float(masked[i, i + 1 :].sum()), float(unmasked[i, i + 1 :].sum())] for i, t in enumerate(tokens)]`;
};
