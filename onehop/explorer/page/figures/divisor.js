import { html, nothing } from "onehop/vendor/lit-html.js";
import { bars, pairedBars, slider } from "onehop/controls.js";
import { opening } from "onehop/frame.js";
import { visible } from "onehop/figures/scores.js";
import { entropy, largest, softmax, softmaxGradient } from "onehop/maths.js";
import { frameOf, player } from "onehop/player.js";
import { number, percent, piece } from "onehop/text.js";
import { TEXTS } from "onehop/texts.js";

export const id = "divisor";
export const item = 4;
export const title = "The same scores, another divisor";
export const needs = ["{attention}.scores"];

const T = TEXTS.softmax;
const STAGES = T.stages().length;
const STEPS_PER_OCTAVE = 4;

/** What is too small to mean anything is said to be so. */
const clippedNumber = (x, digits = 3) => (x > 0 && x < 1e-6 ? "< 10⁻⁶" : number(x, digits));

/** The slider moves in quarter octaves, with the root of d_k exactly at its middle. It opens on d_k. */
function places(view) {
  const root = Math.sqrt(view.trace.settings.d_k);
  const opening = Math.round(STEPS_PER_OCTAVE * Math.log2(root));
  return { root, place: Number(view.dial("divisor.place", opening)) };
}

function computed(view) {
  const { root, place } = places(view);
  const by = root * 2 ** (place / STEPS_PER_OCTAVE);
  const scores = view.trace
    .part(view.selection, "scores")
    .at({ head: view.selection.head, query: view.token });
  const seen = visible(view);
  const weights = (divisor) => softmax(seen.map((j) => scores[j] / divisor));
  return { by, root, seen, scores, now: weights(by), true: weights(root) };
}

/** What stands between scores and shares, a stage a frame. */
function stage(view, frame) {
  const { by, seen, scores, now } = computed(view);
  const raw = seen.map((j) => scores[j]);
  const top = largest(raw) / by;
  return [raw, raw.map((x) => x / by), raw.map((x) => Math.exp(x / by - top)), now][frame];
}

/** One stage of the softmax; e to the power is shown relative to the largest, as it is computed. */
function squeezing(view, frame) {
  const keys = view.trace.keys(view.selection.role);
  const rows = computed(view).seen.map((j, i) => ({
    name: piece(keys[j]),
    value: stage(view, frame)[i],
  }));
  return html`<div data-stage=${frame}>
    ${bars({ rows, concept: frame < 2 ? "key" : "weight", number: clippedNumber, digits: 2, top: null })}
  </div>`;
}

export function draw(view) {
  const { by, root, seen, now, true: usual } = computed(view);
  const frame = frameOf(view, id, STAGES);
  const keys = view.trace.keys(view.selection.role);
  const token = piece(view.trace.queries(view.selection.role)[view.token]);
  const isUsual = by === root;
  const here = { heading: `divided by ${number(by, 2)}`, concept: "weight" };
  const asInModel = {
    heading: `by √d_k = ${number(root, 2)}, as in the model`,
    concept: "weight",
  };
  const facts = (weights, divisor) =>
    html`<p class="reading numbers">
      by ${number(divisor, 2)}: largest ${percent(largest(weights))} · entropy
      ${number(entropy(weights), 2)} bits · gradient ${clippedNumber(softmaxGradient(weights))}
    </p>`;
  return html` <div class="controls">
      ${slider({ label: "Divide the scores by", min: -28, max: 28, value: places(view).place, choose: (p) => view.turn("divisor.place", p), shown: (p) => number(root * 2 ** (p / STEPS_PER_OCTAVE), 2) })}
      <button type="button" @click=${() => view.turn("divisor.place", 0)}>
        √d_k = ${number(root, 2)}
      </button>
    </div>
    <div class="formula">
      <math
        ><mi>softmax</mi><mo>(</mo
        ><mfrac
          ><mrow
            ><msub><mi class="c-query">q</mi><mtext>${token}</mtext></msub
            ><msup><mi class="c-key">K</mi><mi>T</mi></msup></mrow
          ><mn>${number(by, 2)}</mn></mfrac
        ><mo>)</mo></math
      >
    </div>
    ${player(view, { id, frames: STAGES, label: T.player, says: T.stages(number(by, 2))[frame] })}
    ${frame < STAGES ? squeezing(view, frame) : nothing}
    ${
      frame < STAGES
        ? nothing
        : pairedBars({
            rows: seen.map((j, i) => ({
              name: piece(keys[j]),
              values: isUsual ? [now[i]] : [now[i], usual[i]],
            })),
            sides: isUsual ? [asInModel] : [here, asInModel],
            from: 0,
            to: 1,
            most: 20,
          })
    }
    <div class="columns">${isUsual ? nothing : facts(now, by)}${facts(usual, root)}</div>`;
}

export const caption = () =>
  html`The scores stay as the model made them; only the divisor moves. Small: one key takes all, and
  the softmax's gradient goes to nothing. Large: every key gets the same; what learning then gets of
  that gradient is divided by the large number too.`;

export const table = (view) => {
  const { seen, scores, now, true: usual } = computed(view);
  const keys = view.trace.keyPieces(view.selection.role);
  return {
    columns: ["key", "score", "weight here", "weight in the model"],
    rows: seen.map((j, i) => [keys[j], scores[j], now[i], usual[i]]),
  };
};

export const python = (view) => {
  const { role, layer, head } = view.selection;
  const { by, root, seen } = computed(view);
  const keys =
    role === "decoder"
      ? 'trace.header["target"]["input_tokens"]'
      : 'trace.header["source"]["tokens"]';
  return `import numpy as np

${opening(view)}scores = trace["${view.trace.path(role, layer)}.scores"][${head}, ${view.token}, :${seen.length}].astype(float)


def softmax(x):
    powers = np.exp(x - x.max())
    return powers / powers.sum()


columns = zip(${keys}, scores, softmax(scores / ${by}), softmax(scores / ${root}))
rows = [[key, float(score), float(here), float(true)] for key, score, here, true in columns]`;
};
