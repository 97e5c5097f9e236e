import { html, nothing, svg } from "onehop/vendor/lit-html.js";
import { roving, segments } from "onehop/controls.js";
import { traceCode } from "onehop/frame.js";
import { range } from "onehop/maths.js";
import { ROLE_NAMES } from "onehop/tensors.js";
import { clipped, number, percent, piece } from "onehop/format.js";
import { inWords, mergeWords } from "onehop/words.js";

export const id = "arcs";
export const item = 9;
export const title = "One hop between any two tokens";
export const needs = ["{attention}.weights"];

const FAINT = 0.02;
const rowsOf = (view) =>
  view.trace.part(view.selection, "weights").rows({ head: view.selection.head });

/** The rows of pieces or of words. `indexOf` maps a piece to its row, `first` a row to its first piece. */
function shown(view) {
  const { role } = view.selection;
  const [queries, keys] = [view.trace.queries(role), view.trace.keys(role)];
  const same = (i) => i;
  if (!inWords(view)) return { rows: rowsOf(view), queries, keys, indexOf: same, first: same };
  const { queryWords, keyWords: _, ...words } = mergeWords(rowsOf(view), queries, keys);
  const indexOf = (i) => queryWords.findIndex((indices) => indices.includes(i));
  return { ...words, indexOf, first: (i) => queryWords[i][0] };
}

function picture(view, isUnlocked) {
  const { rows, queries, keys, indexOf, first } = shown(view);
  const pitch = 26;
  const [width, left, right] = view.narrow ? [340, 112, 228] : [720, 240, 480];
  const height = pitch * Math.max(queries.length, keys.length) + 34;
  const y = (i, all) =>
    34 + pitch * (i + 0.5) + ((Math.max(queries.length, keys.length) - all.length) * pitch) / 2;
  const focused = isUnlocked && view.previewed === null ? null : indexOf(view.token);
  const chosen = indexOf(view.selection.token);
  const choose = (i) => {
    view.chooseToken(first(i));
    view.setDial("arcs.free", "");
  };
  const release = (event) => {
    if (event.key === "Escape") view.setDial("arcs.free", "yes");
  };
  const curve = (i, j, weight) => {
    const [a, b, middle] = [y(i, queries), y(j, keys), (left + right) / 2];
    return svg`<path d="M${left + 6} ${a}C${middle} ${a} ${middle} ${b} ${right - 6} ${b}" fill="none" stroke="var(--weight)"
      stroke-width=${(0.4 + 9 * weight).toFixed(2)} stroke-opacity=${(focused === null ? 0.15 + 0.5 * weight : 0.3 + 0.6 * weight).toFixed(2)} data-weight=${weight} .tip=${`${piece(queries[i])} → ${piece(keys[j])}: ${number(weight, 4)}`} />`;
  };
  return html`<svg
    viewBox="0 0 ${width} ${height}"
    style="width:100%;max-width:${width}px"
    role="radiogroup"
    data-roving
    aria-label="Tokens that ask on the left, tokens that are asked on the right; thick lines carry much weight"
    @keydown=${release}
  >
    <text x=${left} y="16" text-anchor="end" style="fill:var(--query-ink)">ask</text>
    <text x=${right} y="16" style="fill:var(--key-ink)">are asked</text>
    ${range(queries.length)
      .filter((i) => focused === null || i === focused)
      .map((i) => Array.from(rows[i], (w, j) => (w >= FAINT ? curve(i, j, w) : nothing)))}
    ${queries.map(
      (
        token,
        i,
      ) => svg`<g role="radio" tabindex=${i === chosen ? 0 : -1} data-index=${i} aria-checked=${!isUnlocked && i === chosen}
        aria-label=${piece(token)} @click=${() => choose(i)} @mouseenter=${() => view.preview(first(i))} @mouseleave=${() => view.preview(null)} @keydown=${roving(i, queries.length, choose)}>
      <rect class="ring" x="1" y=${y(i, queries) - 12} width=${left - 1} height="24" rx="4" fill=${i === focused ? "var(--sunken)" : "transparent"} stroke="none" />
      <text x=${left - 6} y=${y(i, queries) + 4.5} text-anchor="end" style="font-size:14px" font-weight=${i === focused ? 700 : 400}>${clipped(token, view.narrow ? 13 : 26)}</text></g>`,
    )}
    ${keys.map((token, j) => svg`<text x=${right + 4} y=${y(j, keys) + 4.5} style="font-size:14px" opacity=${focused === null ? 1 : (0.72 + 0.28 * Math.min(1, 3 * rows[focused][j])).toFixed(2)} font-weight=${focused !== null && rows[focused][j] > 0.25 ? 700 : 400}>${clipped(token, view.narrow ? 10 : 20)}${focused !== null && rows[focused][j] >= 0.1 ? ` ${percent(rows[focused][j], 0)}` : ""}</text>`)}
  </svg>`;
}

export function draw(view) {
  const isUnlocked = view.dial("arcs.free", "") === "yes";
  const { role, layer, head } = view.selection;
  return html`<div class="controls">
      <span>${ROLE_NAMES[role]}, layer ${layer + 1}, head</span>
      ${segments({ name: "arcs-head", label: "Head", options: range(view.trace.heads).map((i) => [i, i + 1]), value: head, choose: (i) => view.choose({ head: i }) })}
      <button
        type="button"
        aria-pressed=${isUnlocked}
        @click=${() => view.setDial("arcs.free", isUnlocked ? "" : "yes")}
      >
        ${isUnlocked ? "lock the chosen token" : "show every token"}
      </button>
      <span class="keys">Hover previews, click locks, Escape releases.</span>
    </div>
    ${picture(view, isUnlocked)}`;
}

export function caption(view) {
  const { role } = view.selection;
  const pairs = rowsOf(view)
    .flatMap((row) => Array.from(row))
    .filter((w) => w > 0).length;
  return html`${pairs} pairs of tokens are joined by this one head, each directly. Lines under
  ${percent(FAINT, 0)} are left out. ${role === "decoder" ? "A token never reaches forward." : ""}`;
}

export const table = (view) => {
  const { role } = view.selection;
  const row = rowsOf(view)[view.token];
  return {
    columns: ["key", "weight"],
    rows: view.trace.keyPieces(role).map((key, j) => [key, row[j]]),
  };
};

export const python = (view) => {
  const { role, layer, head } = view.selection;
  const keys =
    role === "decoder"
      ? 'trace.header["target"]["input_tokens"]'
      : 'trace.header["source"]["tokens"]';
  return `${traceCode(view)}weights = trace["${view.trace.path(role, layer)}.weights"][${head}, ${view.token}]
rows = [[key, float(weight)] for key, weight in zip(${keys}, weights)]`;
};
