// A matrix of weights as a heatmap with selectable rows.

import { html, nothing, svg } from "onehop/vendor/lit-html.js";
import { roving } from "onehop/controls.js";
import { clipped, number, piece } from "onehop/format.js";
import { relativePosition } from "onehop/tips.js";

/** Opacity follows the square root of the weight, so that small weights stay visible. */
export const shade = (weight) => 0.03 + 0.97 * Math.sqrt(Math.max(0, Math.min(1, weight)));

const STEPS = [0, 0.01, 0.1, 0.25, 0.5, 1];

export const shadeLegend = (concept = "weight") =>
  html`<ul class="legend shades" aria-label="Shades">
    ${STEPS.map((weight) => html`<li><i style="background:var(--${concept});opacity:${shade(weight).toFixed(3)}" data-shade=${weight}></i>${weight}</li>`)}
  </ul>`;

const MIN_DIGIT_SIZE = 24; // pixels that a cell needs for two readable digits

/** The width of the label column in pixels. */
const labelWidth = (labels, most) =>
  Math.min(most, 10 + 6.4 * Math.max(...labels.map((l) => [...l].length)));

/** Rows of weights between 0 and 1; masked cells are hatched; one row is selected. */
export function heatmap({
  view,
  label,
  rows,
  queries,
  keys,
  concept = "weight",
  row = null,
  choose = null,
  preview = (_place) => {},
  isMasked = (_i, _j) => false,
  largest = 1,
}) {
  const frame = view.narrow ? 340 : 640;
  const names = queries.map((t) => clipped(t, view.narrow ? 9 : 14));
  const heads = keys.map((t) => clipped(t, view.narrow ? 9 : 14));
  const left = labelWidth(names, view.narrow ? 72 : 110);
  const top = labelWidth(heads, view.narrow ? 70 : 104) * 0.78 + 8;
  const size = Math.max(12, Math.min(34, (frame - left - 6) / keys.length));
  const width = Math.max(frame, left + size * keys.length + 30);
  const text = Math.max(11, Math.min(12, size * 0.9));
  const height = top + size * queries.length + 4;
  const across = left + size * keys.length;
  const line = (
    values,
    i,
  ) => svg`<g role=${choose ? "radio" : nothing} aria-checked=${choose ? i === row : nothing}
      tabindex=${choose ? (i === row ? 0 : -1) : nothing} data-index=${i}
      aria-label="${piece(queries[i])}: ${describe(values, keys)}"
      @click=${() => choose?.(i)} @mouseenter=${() => preview(i)} @mouseleave=${() => preview(null)}
      @keydown=${choose ? roving(i, rows.length, choose) : nothing}>
    <rect x="0" y=${top + i * size} width=${across} height=${size} fill="transparent" />
    <text x=${left - 6} y=${top + (i + 0.5) * size + text * 0.35} text-anchor="end" style="font-size:${text}px" font-weight=${i === row ? 700 : 400}>${names[i]}</text>
    ${Array.from(
      values,
      (
        value,
        j,
      ) => svg`<rect x=${left + j * size + 0.5} y=${top + i * size + 0.5} width=${Math.max(1, size - 1)} height=${Math.max(1, size - 1)} rx="1.5"
        fill=${isMasked(i, j) ? "url(#struck)" : `var(--${concept})`} fill-opacity=${isMasked(i, j) ? 1 : shade(value / largest).toFixed(3)} />`,
    )}
    ${i === row && size >= MIN_DIGIT_SIZE ? Array.from(values, (value, j) => (isMasked(i, j) || value < 0.05 ? nothing : svg`<text class="in-cell" x=${left + (j + 0.5) * size} y=${top + (i + 0.5) * size + 4} text-anchor="middle" style="fill:${shade(value / largest) > 0.6 ? "var(--panel)" : "var(--text)"}">${value.toFixed(2).replace(/^0/, "")}</text>`)) : nothing}
    ${i === row ? svg`<rect class="ring" x=${left - 1} y=${top + i * size - 1} width=${size * keys.length + 2} height=${size + 2} fill="none" stroke="var(--output)" stroke-width="2" rx="2" />` : nothing}
  </g>`;
  const tip = (event) => {
    const [x, y] = relativePosition(event, event.target.closest("svg"));
    const [j, i] = [Math.floor((x * width - left) / size), Math.floor((y * height - top) / size)];
    if (!(i >= 0 && i < rows.length && j >= 0 && j < keys.length)) return null;
    return `${piece(queries[i])} → ${piece(keys[j])}: ${isMasked(i, j) ? "masked" : number(rows[i][j], 4)}`;
  };
  const wide = width > frame;
  return html`<div
    class=${wide ? "scroll" : ""}
    tabindex=${wide ? 0 : nothing}
    role=${wide ? "region" : nothing}
    aria-label=${wide ? "Scroll sideways" : nothing}
  >
    <svg
      viewBox="0 0 ${width} ${height}"
      style=${wide ? `width:${width}px;max-width:none` : `width:100%;max-width:${width}px`}
      data-roving
      role=${choose ? "radiogroup" : "img"}
      aria-label=${label}
      .tip=${tip}
    >
      <defs>
        <pattern id="struck" width="6" height="6" patternUnits="userSpaceOnUse">
          <path d="M0 6L6 0" stroke="var(--rule-strong)" stroke-width="1" />
        </pattern>
      </defs>
      ${heads.map((name, j) => svg`<text style="font-size:${text}px" transform="translate(${left + (j + 0.5) * size + text * 0.25} ${top - 5}) rotate(-52)">${name}</text>`)}
      ${rows.map(line)}
    </svg>
  </div>`;
}

/** The three largest entries in words, for screen readers. */
function describe(values, keys) {
  const order = Array.from(values.keys())
    .sort((a, b) => values[b] - values[a])
    .slice(0, 3);
  return order.map((j) => `${piece(keys[j])} ${number(values[j], 2)}`).join(", ");
}
