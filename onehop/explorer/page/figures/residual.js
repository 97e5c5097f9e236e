import { html, svg } from "onehop/vendor/lit-html.js";
import { picker, tokenPicker } from "onehop/controls.js";
import { traceCode } from "onehop/frame.js";
import { maxOf, range } from "onehop/maths.js";
import { number, piece } from "onehop/format.js";
import { TEXTS } from "onehop/texts.js";

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
const COLOURS = { self_attention: "weight", cross_attention: "key", feed_forward: "value" };
const T = TEXTS.residual;
const stackOf = (view) => (view.selection.role === "encoder" ? "encoder" : "decoder");

/** The sub-layers of the selected stack, with the selected token's numbers. */
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

/**
 * The residual stream as a river whose width is its vector's length. Each sub-layer is a tributary as wide as what it
 * adds.
 */
function river(view, rows) {
  const [width, middle, right, pitch] = view.narrow ? [340, 140, 232, 25] : [680, 240, 460, 30];
  const unit = (1.4 * pitch) / maxOf(rows.flatMap((r) => [r.stream, r.added]));
  const y = (i) => pitch * i;
  const half = (r) => (r.stream * unit) / 2;
  const bank = (sign) =>
    rows
      .map((r, i) => [middle + sign * half(r), y(i)])
      .concat([[middle + sign * half(rows.at(-1)), y(rows.length)]]);
  const along = (points) => points.map(([a, b]) => `${a.toFixed(1)} ${b.toFixed(1)}`).join("L");
  const row = (r, i) => {
    const at = y(i) + pitch / 2;
    const bend = middle + 0.55 * (right - middle);
    const edge = (sign) => at + (sign * r.added * unit) / 2;
    const joins = (sign) => edge(sign) + 0.3 * pitch; // it flows downwards into the stream
    const chosen = r.layer === view.selection.layer;
    return svg`<g data-sublayer=${r.name} data-stream=${r.stream} data-added=${r.added} .tip=${T.tip(r.layer + 1, NAMES[r.sublayer], number(r.stream, 2), number(r.added, 2), number(r.cosine, 2))}
        @click=${() => view.choose({ layer: r.layer })}>
      <rect x="0" y=${y(i)} width=${width} height=${pitch} fill="transparent" />
      <path d="M${right} ${edge(-1)}C${bend} ${edge(-1)} ${bend} ${joins(-1)} ${middle} ${joins(-1)}V${joins(1)}C${bend} ${joins(1)} ${bend} ${edge(1)} ${right} ${edge(1)}z"
        fill="var(--${COLOURS[r.sublayer]})" fill-opacity=${chosen ? 1 : 0.5} />
      <text x=${view.narrow ? 0 : 20} y=${at + 4} font-weight=${chosen ? 700 : 400}>${r.layer + 1} ${NAMES[r.sublayer]}</text>
      <text class="number" x=${right + 8} y=${at + 4} font-weight=${r.added < r.stream ? 400 : 700}>${T.adds(number(r.added, 1), number(r.stream, 1), view.narrow)}</text>
    </g>`;
  };
  return html`<svg
    viewBox="0 0 ${width} ${y(rows.length) + 4}"
    style="width:100%;max-width:${width}px"
    role="img"
    aria-label=${T.river}
  >
    ${rows.map(row)}
    <path
      data-river
      d="M${along(bank(-1))}L${along(bank(1).reverse())}z"
      fill="color-mix(in srgb, var(--position) 55%, var(--panel))"
      pointer-events="none"
    />
  </svg>`;
}

export function draw(view) {
  const rows = entries(view);
  const layer = view.selection.layer;
  const smaller = rows.filter((r) => r.added < r.stream).length;
  const answer = smaller === rows.length ? "yes" : smaller > rows.length / 2 ? "partly" : "no";
  return html` ${tokenPicker({ label: "Token", tokens: view.trace.queries(view.selection.role), value: view.selection.token, previewed: view.previewed, choose: view.chooseToken, preview: view.preview })}
    <div class="controls" style="margin-top:.9rem">
      ${picker({ label: "Layer", options: range(view.trace.layers(view.selection.role)).map((l) => [l, l + 1]), value: layer, choose: (l) => view.choose({ layer: Number(l) }) })}
    </div>
    ${river(view, rows)}
    <ul class="legend">
      <li>
        <i style="background:color-mix(in srgb, var(--position) 55%, var(--panel))"></i>${T.stream}
      </li>
      ${[...new Set(rows.map((r) => r.sublayer))].map((name) => html`<li><i style="background:var(--${COLOURS[name]})"></i>${NAMES[name]}</li>`)}
    </ul>
    <p class="reading">
      <span class="verdict ${answer === "partly" ? "" : answer}" data-answer=${answer}
        >${TEXTS.claims.answers[answer]}</span
      >
      Explainers say that a sub-layer makes a small correction. For
      “<bdi>${piece(view.trace.queries(view.selection.role)[view.token])}</bdi>” the addition is
      shorter than the stream in <strong>${smaller} of ${rows.length}</strong> sub-layers of the
      ${stackOf(view)}.
      ${T.inLayer(
        layer + 1,
        rows
          .filter((r) => r.layer === layer)
          .map((r) => [NAMES[r.sublayer], number(r.added / r.stream, 2), number(r.cosine, 2)]),
      )}
    </p>`;
}

export const caption = (view) =>
  html`Widths are lengths of vectors, all on one scale.
  ${view.trace.settings.norm === "pre" ? T.pre : T.post} A cosine near zero means that the sub-layer
  writes in a new direction; a negative one, that it takes something away.`;

export const table = (view) => ({
  columns: ["sub-layer", "stream", "added", "added / stream", "cosine"],
  rows: entries(view).map((r) => [r.name, r.stream, r.added, r.added / r.stream, r.cosine]),
});

export const python = (view) => `${traceCode(view)}rows = []
for r in trace.header["residual"]:
    stream, added = r["stream"], r["added"]
    if r["stack"] == "${stackOf(view)}":
        rows.append([r["name"], stream[${view.token}], added[${view.token}], added[${view.token}] / stream[${view.token}], r["cosine"][${view.token}]])`;
