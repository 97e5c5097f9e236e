import { html, nothing } from "onehop/vendor/lit-html.js";
import { bars, segments } from "onehop/controls.js";
import { traceCode } from "onehop/frame.js";
import { argmax } from "onehop/maths.js";
import { number, piece } from "onehop/format.js";
import { barData } from "onehop/words.js";

export const id = "lookup";
export const item = 26;
export const title = "A dictionary, a library, and attention";
export const needs = ["{attention}.weights"];

const PICTURES = {
  dictionary: [
    "dictionary",
    "You come with a word (the query), find the one headword that matches (the key), and read its entry (the value). The other entries give nothing: a hard lookup.",
  ],
  library: [
    "library",
    "You come with a question (the query) and compare it with the titles on the spines (the keys). Several books fit more or less; you read most in the best, a little in the others (the values).",
  ],
  attention: [
    "attention",
    "The same as the library, with numbers: the fit is a dot product, the share of reading is a softmax, and the answer is a sum of all values by their shares. Nothing is picked, so everything can be learned.",
  ],
};

const row = (view) =>
  Array.from(
    view.trace.part(view.selection, "weights").at({ head: view.selection.head, query: view.token }),
  );

/** The share of each key: one key gets everything in a dictionary, else the real weights. */
const sharesOf = (view, kind) =>
  row(view).map((w, j, all) => (kind === "dictionary" ? Number(j === argmax(all)) : w));

/** The best key is seldom the same word: it is what this head has learned to match. */
function matchNote(view, query, keys) {
  const best = piece(keys[argmax(row(view))]);
  return html`Here “<bdi>${query}</bdi>” comes with the query that this head made for it, and that
    fits the key of “<strong><bdi>${best}</bdi></strong
    >” best:
    ${best === query ? "its own entry opens" : "not the same word, but what this head has learned to look for"}.`;
}

export function draw(view) {
  const kind = view.dial("lookup.kind", "dictionary");
  const keys = view.trace.keys(view.selection.role);
  const shown = barData(view, keys);
  const shares = shown.sumByWord(sharesOf(view, kind));
  const query = piece(view.trace.queries(view.selection.role)[view.token]);
  return html` <div class="controls">
      ${segments({ name: "lookup-kind", label: "Which picture", options: Object.entries(PICTURES).map(([k, [name]]) => [k, name]), value: kind, choose: (k) => view.setDial("lookup.kind", k) })}
    </div>
    <p class="reading" style="margin-top:0">
      ${PICTURES[kind][1]} ${kind === "dictionary" ? matchNote(view, query, keys) : nothing}
    </p>
    <h4 style="margin-top:1rem">
      <span class="c-query">query</span> “<bdi>${query}</bdi>”: what each
      <span class="c-key">key</span> opens of its <span class="c-value">value</span>
    </h4>
    ${bars({ rows: shown.names.map((name, j) => ({ name, value: shares[j] })), concept: kind === "dictionary" ? "key" : "weight", from: 0, to: 1, most: 20 })}`;
}

export const caption = () =>
  html`The shares are this head's real weights; the dictionary's is what a hard choice would make of
  them.`;

export const table = (view) => {
  const kind = view.dial("lookup.kind", "dictionary");
  return {
    columns: ["key", "share"],
    rows: view.trace.keyPieces(view.selection.role).map((k, j) => [k, sharesOf(view, kind)[j]]),
  };
};

export const python = (view) => {
  const { role, layer, head } = view.selection;
  const hard = view.dial("lookup.kind", "dictionary") === "dictionary";
  const keys =
    role === "decoder"
      ? 'trace.header["target"]["input_tokens"]'
      : 'trace.header["source"]["tokens"]';
  return `${traceCode(view)}weights = trace["${view.trace.path(role, layer)}.weights"][${head}, ${view.token}]
${hard ? "weights = [int(j == weights.argmax()) for j in range(len(weights))]\n" : ""}rows = [[key, float(weight)] for key, weight in zip(${keys}, weights)]`;
};
