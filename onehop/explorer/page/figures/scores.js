import { html } from "onehop/vendor/lit-html.js";
import { bars, tokenPicker } from "onehop/controls.js";
import { traceCode } from "onehop/frame.js";
import { argmax, largestByMagnitude, range } from "onehop/maths.js";
import { frameOf, player } from "onehop/player.js";
import { number, piece } from "onehop/format.js";
import { TEXTS } from "onehop/texts.js";

export const id = "scores";
export const item = 3;
export const title = "One query against every key";
export const needs = [
  "{attention}.scores",
  "{attention}.weights",
  "{attention}.q",
  "{attention}.k",
];

const T = TEXTS.scores;
const row = (view, quantity) =>
  Array.from(
    view.trace.part(view.selection, quantity).at({ head: view.selection.head, query: view.token }),
  );

/** The largest products in a score's sum, in words. */
function productsOf(view, key, score) {
  const { head, role } = view.selection;
  const query = view.trace.part(view.selection, "q").at({ head, query: view.token });
  const keys = view.trace.part(view.selection, "k").at({ head, key });
  const products = Array.from(query, (x, i) => x * keys[i]);
  const largest = largestByMagnitude(products, 3).map((p) => number(p, 2));
  const name = piece(view.trace.keys(role)[key]);
  return T.products(name, products.length, largest.join(", "), number(score, 4));
}

/** The keys that this query may attend to. */
export function visible(view) {
  const keys = view.trace.keys(view.selection.role);
  const causal = view.selection.role === "decoder" && !view.trace.edits.includes("mask=off");
  return range(causal ? view.token + 1 : keys.length);
}

export function draw(view) {
  const scores = row(view, "scores");
  const weights = row(view, "weights");
  const keys = view.trace.keys(view.selection.role);
  const tokens = view.trace.queries(view.selection.role);
  const visibleKeys = visible(view);
  const top = argmax(visibleKeys.map((j) => scores[j]));
  const agrees = argmax(weights) === top;
  const frame = frameOf(view, id, visibleKeys.length);
  return html` ${tokenPicker({ label: "Querying token", tokens, value: view.selection.token, previewed: view.previewed, choose: view.chooseToken, preview: view.preview })}
    <div class="formula">
      <math
        ><msub><mi class="c-query">q</mi><mtext>${piece(tokens[view.token])}</mtext></msub
        ><mo>·</mo><msub><mi class="c-key">k</mi><mtext>${piece(keys[top])}</mtext></msub
        ><mo>=</mo><mn>${number(scores[top], 2)}</mn></math
      >
    </div>
    ${player(view, { id, frames: visibleKeys.length, label: T.player, status: frame ? T.met(piece(tokens[view.token]), piece(keys[frame - 1]), number(scores[frame - 1], 2)) : T.waiting })}
    ${bars({ rows: visibleKeys.map((j) => ({ name: piece(keys[j]), value: j < frame ? scores[j] : NaN, tip: () => productsOf(view, j, scores[j]) })), concept: "key", number: (x, digits) => (Number.isNaN(x) ? "…" : number(x, digits)), digits: 2, top: frame < visibleKeys.length ? null : top, from: Math.min(0, ...visibleKeys.map((j) => scores[j])), to: Math.max(0, ...visibleKeys.map((j) => scores[j])) })}
    <p class="reading">
      <span class="verdict ${agrees ? "yes" : "no"}">${agrees ? "yes" : "no"}</span> The largest dot
      product is with “<strong><bdi>${piece(keys[top])}</bdi></strong
      >”; the largest weight goes to “<strong><bdi>${piece(keys[argmax(weights)])}</bdi></strong
      >”.
    </p>`;
}

export const caption = (view) =>
  view.selection.role === "decoder"
    ? html`The decoder compares a token only with itself and with what stands before it. ${T.hint}`
    : html`A long bar to the right: the two vectors point the same way. To the left of zero: away
      from each other. ${T.hint}`;

export const table = (view) => {
  const scores = row(view, "scores");
  const weights = row(view, "weights");
  const keys = view.trace.keyPieces(view.selection.role);
  return {
    columns: ["key", "score", "weight"],
    rows: visible(view).map((j) => [keys[j], scores[j], weights[j]]),
  };
};

export const python = (view) => {
  const { role, layer, head } = view.selection;
  const at = view.trace.path(role, layer);
  const keys =
    role === "decoder"
      ? 'trace.header["target"]["input_tokens"]'
      : 'trace.header["source"]["tokens"]';
  return `${traceCode(view)}q, k = trace["${at}.q"][${head}, ${view.token}], trace["${at}.k"][${head}]
weights = trace["${at}.weights"][${head}, ${view.token}]
rows = [[${keys}[j], float(q @ k[j]), float(weights[j])] for j in range(${visible(view).length})]`;
};
