import { html, nothing, svg } from "onehop/vendor/lit-html.js";
import { pairedBars, toggle } from "onehop/controls.js";
import { traceCode } from "onehop/frame.js";
import { maxOf, mean, range, softmax, sum } from "onehop/maths.js";
import { divisor } from "onehop/recompute.js";
import { frameOf, player } from "onehop/player.js";
import { number, percent, piece } from "onehop/format.js";
import { TEXTS } from "onehop/texts.js";

export const id = "mask";
export const item = 12;
export const title = "The mask that hides the future";
export const needs = ["{attention}.scores", "{attention}.weights"];

const T = TEXTS.mask;

/** The decoder self-attention head in the selected layer, whatever role is selected. */
const decoderHead = (view) => ({
  role: "decoder",
  layer: Math.min(view.selection.layer, view.trace.layers("decoder") - 1),
  head: view.selection.head,
});

/** The recorded weights, or those from the same scores without the mask. */
function rowsOf(view, on) {
  const headRef = decoderHead(view);
  if (on)
    return view.trace
      .part(headRef, "weights")
      .rows({ head: headRef.head })
      .map((row) => Array.from(row));
  const scale = divisor(view.trace, headRef);
  return view.trace
    .part(headRef, "scores")
    .rows({ head: headRef.head })
    .map((row) => softmax(Array.from(row, (s) => s / scale)));
}

const future = (rows) => rows.map((row, i) => sum(row.slice(i + 1)));

function leak(view) {
  const leakData = view.trace.json.leak;
  if (!leakData)
    return html`<p class="reading">
      The mask is off in the whole model now, so there is nothing to compare.
    </p>`;
  const written = view.trace.target.output_tokens;
  const [masked, unmasked] = ["masked", "unmasked"].map((key) =>
    mean(leakData.probability.map((p) => p[key])),
  );
  return html` <h4 style="margin-top:1.4rem">
      What the leak does: the probability of each written piece
    </h4>
    ${pairedBars({
      rows: leakData.probability.map((p, i) => ({
        name: piece(written[i]),
        values: [p.masked, p.unmasked],
      })),
      sides: [
        { heading: "With the mask", concept: "output" },
        { heading: "Mask off in every layer", concept: "key" },
      ],
      from: 0,
      to: 1,
      most: view.narrow ? 20 : 32,
    })}
    <p class="reading">
      Average ${percent(masked)} with the mask, ${percent(unmasked)} when every position sees the
      whole translation. The model never trained that way: seeing the answer
      ${Math.abs(unmasked - masked) < 0.01 ? "changes little here" : unmasked > masked ? "helps it here" : "confuses it here"}.
    </p>`;
}

/** The scaled scores, with −∞ in the rows that are masked already. */
function scaledRows(view, maskedRows) {
  const headRef = decoderHead(view);
  const scale = divisor(view.trace, headRef);
  return view.trace
    .part(headRef, "scores")
    .rows({ head: headRef.head })
    .map((row, i) => Array.from(row, (s, j) => (i < maskedRows && j > i ? -Infinity : s / scale)));
}

/** One of three pictures of the same rows. `strength` is between −1 and 1; negative values have another colour. */
function triangle(view, { name, heading, rows, strength }) {
  const tokens = view.trace.target.input_tokens;
  const n = tokens.length;
  const [width, left] = [view.narrow ? 110 : 220, 2];
  const size = (width - 2 * left) / n;
  const queries = view.trace.queries("decoder");
  const cell = (value, i, j) => {
    const [x, y] = [left + j * size, left + i * size];
    const hidden = value === -Infinity;
    const part = hidden ? 0 : strength(value);
    return svg`<rect x=${x.toFixed(2)} y=${y.toFixed(2)} width=${(size * 0.94).toFixed(2)} height=${(size * 0.94).toFixed(2)} data-cell="${i} ${j}" data-value=${value}
        fill=${hidden ? "var(--sunken)" : `var(--${part < 0 ? "key" : name === "weights" ? "weight" : "query"})`} fill-opacity=${hidden ? 1 : (0.04 + 0.96 * Math.abs(part)).toFixed(3)}
        .tip=${`${piece(queries[i])} → ${piece(tokens[j])}: ${number(value, 4)}`} />`;
  };
  const masked = rows.filter((row) => row.includes(-Infinity)).length;
  const middle = (masked - 1) / 3 + 0.5; // of the masked rows, nearer to the longer ones
  return html`<div data-triangle=${name}>
    <h4>${heading}</h4>
    <svg viewBox="0 0 ${width} ${width}" style="width:100%" role="img" aria-label=${heading}>
      <rect x="1" y="1" width=${width - 2} height=${width - 2} fill="none" stroke="var(--rule)" />
      ${rows.map((row, i) => row.map((value, j) => cell(value, i, j)))}
      ${masked ? svg`<text class="soft" x=${left + (size * (middle + 0.5 + n)) / 2} y=${left + size * middle + 6} text-anchor="middle" style="font-size:18px;pointer-events:none">−∞</text>` : nothing}
    </svg>
  </div>`;
}

export function draw(view) {
  const on = view.dial("mask.on", "yes") === "yes";
  const all = view.trace.steps.length;
  const frame = frameOf(view, id, all);
  const maskedRows = on ? frame : 0; // rows that the animation has masked
  const [masked, unmasked] = [rowsOf(view, true), rowsOf(view, false)];
  const rows = masked.map((row, i) => (i < maskedRows ? row : unmasked[i]));
  const after = future(rows);
  const { layer, head } = decoderHead(view);
  const open = scaledRows(view, 0);
  const top = maxOf(open.flat().map(Math.abs)) || 1;
  const signed = (value) => Math.sign(value) * Math.sqrt(Math.abs(value) / top);
  return html` <div class="controls">
      ${toggle({ label: "causal mask", on, choose: (yes) => view.setDial("mask.on", yes ? "yes" : "no") })}
      <span>decoder self-attention, layer ${layer + 1}, head ${head + 1}</span>
    </div>
    ${on ? player(view, { id, frames: all, label: T.player, status: frame ? T.fallen(piece(view.trace.queries("decoder")[frame - 1]), all - frame) : T.none }) : nothing}
    <div class="triangles">
      ${triangle(view, { name: "scores", heading: T.headings[0], rows: open, strength: signed })}
      ${triangle(view, { name: "masked", heading: T.headings[1], rows: scaledRows(view, maskedRows), strength: signed })}
      ${triangle(view, { name: "weights", heading: T.headings[2], rows, strength: (w) => Math.sqrt(w) })}
    </div>
    <ul class="legend">
      <li><i style="background:var(--query)"></i>${T.legend[0]}</li>
      <li><i style="background:var(--key)"></i>${T.legend[1]}</li>
      <li><i style="background:var(--sunken);outline:1px solid var(--rule)"></i>−∞</li>
      <li><i style="background:var(--weight)"></i>${T.legend[2]}</li>
    </ul>
    <p class="reading">
      Weight on the future:
      <strong class="numbers" data-future=${sum(after)}
        >${maskedRows === all && sum(after) === 0 ? "exactly 0" : number(mean(after), 3)}</strong
      >
      ${maskedRows === all ? "in every row: −∞ before the softmax, 0 after it." : "of each row on average, if nothing forbids it."}
    </p>
    ${leak(view)}`;
}

export const caption = () =>
  html`Each row is a query, each column a key; shades follow the square root of the weight. Without
  the mask, the weights are the softmax of this head's recorded scores.`;

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
  const headRef = decoderHead(view);
  const path = view.trace.path("decoder", headRef.layer);
  return `import numpy as np

${traceCode(view)}masked = trace["${path}.weights"][${headRef.head}].astype(float)
scaled = trace["${path}.scores"][${headRef.head}].astype(float) / ${divisor(view.trace, headRef)}
powers = np.exp(scaled - scaled.max(-1, keepdims=True))
unmasked = powers / powers.sum(-1, keepdims=True)
tokens = trace.header["target"]["input_tokens"]
rows = [[t, float(masked[i, i + 1 :].sum()), float(unmasked[i, i + 1 :].sum())] for i, t in enumerate(tokens)]`;
};
