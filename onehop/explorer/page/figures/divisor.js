import { html, nothing } from "onehop/vendor/lit-html.js";
import { bars, pairedBars, slider } from "onehop/controls.js";
import { traceCode } from "onehop/frame.js";
import { visible } from "onehop/figures/scores.js";
import { entropy, maxOf, softmax, softmaxGradient } from "onehop/maths.js";
import { frameOf, player } from "onehop/player.js";
import { number, percent, piece } from "onehop/format.js";
import { TEXTS } from "onehop/texts.js";

export const id = "divisor";
export const item = 4;
export const title = "The same scores, another divisor";
export const needs = ["{attention}.scores"];

const T = TEXTS.softmax;
const STAGES = T.stages().length;
const STEPS_PER_OCTAVE = 4;

/** Numbers without meaning at this size are shown as “< 10⁻⁶”. */
const clippedNumber = (x, digits = 3) => (x > 0 && x < 1e-6 ? "<10⁻⁶" : number(x, digits));

/** The slider moves in quarter octaves, with √d_k at its middle. It starts at d_k. */
function sliderState(view) {
  const root = Math.sqrt(view.trace.settings.d_k);
  const initial = Math.round(STEPS_PER_OCTAVE * Math.log2(root));
  return { root, position: Number(view.dial("divisor.place", initial)) };
}

function computed(view) {
  const { root, position } = sliderState(view);
  const divisor = root * 2 ** (position / STEPS_PER_OCTAVE);
  const scores = view.trace
    .part(view.selection, "scores")
    .at({ head: view.selection.head, query: view.token });
  const visibleKeys = visible(view);
  const weights = (divisor) => softmax(visibleKeys.map((j) => scores[j] / divisor));
  return { divisor, root, visibleKeys, scores, now: weights(divisor), true: weights(root) };
}

/** The numbers of one stage between scores and weights. */
function stage(view, frame) {
  const { divisor, visibleKeys, scores, now } = computed(view);
  const raw = visibleKeys.map((j) => scores[j]);
  const top = maxOf(raw) / divisor;
  return [raw, raw.map((x) => x / divisor), raw.map((x) => Math.exp(x / divisor - top)), now][
    frame
  ];
}

/** One stage of the softmax. The exponentials are relative to the largest, as they are computed. */
function stageBars(view, frame) {
  const keys = view.trace.keys(view.selection.role);
  const rows = computed(view).visibleKeys.map((j, i) => ({
    name: piece(keys[j]),
    value: stage(view, frame)[i],
  }));
  return html`<div data-stage=${frame}>
    ${bars({ rows, concept: frame < 2 ? "key" : "weight", number: clippedNumber, digits: 2, top: null })}
  </div>`;
}

export function draw(view) {
  const { divisor, root, visibleKeys, now, true: original } = computed(view);
  const frame = frameOf(view, id, STAGES);
  const keys = view.trace.keys(view.selection.role);
  const token = piece(view.trace.queries(view.selection.role)[view.token]);
  const isUsual = divisor === root;
  const withDivisor = { heading: `divided by ${number(divisor, 2)}`, concept: "weight" };
  const asInModel = {
    heading: `by √dₖ = ${number(root, 2)}, as in the model`,
    concept: "weight",
  };
  const facts = (weights, divisor) =>
    html`<p class="reading numbers">
      by ${number(divisor, 2)}: largest ${percent(maxOf(weights))} · entropy
      ${number(entropy(weights), 2)} bits · gradient ${clippedNumber(softmaxGradient(weights))}
    </p>`;
  return html` <div class="controls">
      ${slider({ label: "Divide the scores by", min: -28, max: 28, value: sliderState(view).position, choose: (p) => view.setDial("divisor.place", p), shown: (p) => number(root * 2 ** (p / STEPS_PER_OCTAVE), 2) })}
      <button type="button" @click=${() => view.setDial("divisor.place", 0)}>
        √dₖ = ${number(root, 2)}
      </button>
    </div>
    <div class="formula">
      <math
        ><mi>softmax</mi><mo>(</mo
        ><mfrac
          ><mrow
            ><msub><mi class="c-query">q</mi><mtext>${token}</mtext></msub
            ><msup><mi class="c-key">K</mi><mi>T</mi></msup></mrow
          ><mn>${number(divisor, 2)}</mn></mfrac
        ><mo>)</mo></math
      >
    </div>
    ${player(view, { id, frames: STAGES, label: T.player, status: T.stages(number(divisor, 2))[frame] })}
    ${frame < STAGES ? stageBars(view, frame) : nothing}
    ${
      frame < STAGES
        ? nothing
        : pairedBars({
            rows: visibleKeys.map((j, i) => ({
              name: piece(keys[j]),
              values: isUsual ? [now[i]] : [now[i], original[i]],
            })),
            sides: isUsual ? [asInModel] : [withDivisor, asInModel],
            from: 0,
            to: 1,
            most: 20,
          })
    }
    <div class="columns">${isUsual ? nothing : facts(now, divisor)}${facts(original, root)}</div>`;
}

export const caption = () =>
  html`The scores stay as the model made them; only the divisor moves. Small: one key takes all, and
  the softmax's gradient goes to nothing. Large: every key gets the same; what learning then gets of
  that gradient is divided by the large number too.`;

export const table = (view) => {
  const { visibleKeys, scores, now, true: original } = computed(view);
  const keys = view.trace.keyPieces(view.selection.role);
  return {
    columns: ["key", "score", "weight here", "weight in the model"],
    rows: visibleKeys.map((j, i) => [keys[j], scores[j], now[i], original[i]]),
  };
};

export const python = (view) => {
  const { role, layer, head } = view.selection;
  const { divisor, root, visibleKeys } = computed(view);
  const keys =
    role === "decoder"
      ? 'trace.header["target"]["input_tokens"]'
      : 'trace.header["source"]["tokens"]';
  return `import numpy as np

${traceCode(view)}scores = trace["${view.trace.path(role, layer)}.scores"][${head}, ${view.token}, :${visibleKeys.length}].astype(float)


def softmax(x):
    powers = np.exp(x - x.max())
    return powers / powers.sum()


columns = zip(${keys}, scores, softmax(scores / ${divisor}), softmax(scores / ${root}))
rows = [[key, float(score), float(here), float(true)] for key, score, here, true in columns]`;
};
