// Controls for mouse and keyboard: native inputs where the browser has them, else roving focus.

import { html, nothing, svg } from "onehop/vendor/lit-html.js";
import { beginsWord, number as shown, piece } from "onehop/format.js";
import { relativePosition } from "onehop/tips.js";

/** Radio buttons drawn as segments. */
export function segments({ name, label, options, value, choose }) {
  return html`<fieldset class="segments" role="radiogroup" aria-label=${label}>
    ${options.map(
      ([key, text]) =>
        html`<label
          ><input
            type="radio"
            name=${name}
            .checked=${key === value}
            value=${key}
            @change=${() => choose(key)}
          />${text}</label
        >`,
    )}
  </fieldset>`;
}

export function slider({ label, min, max, step = 1, value, choose, shown = (v) => String(v) }) {
  return html`<label class="slider"
    ><span>${label}</span
    ><input
      type="range"
      aria-label=${label}
      min=${min}
      max=${max}
      step=${step}
      .value=${String(value)}
      aria-valuetext=${shown(value)}
      @input=${(event) => choose(Number(event.target.value))}
    /><output>${shown(value)}</output></label
  >`;
}

export function toggle({ label, on, choose }) {
  return html`<label class="switch"
    ><input
      type="checkbox"
      .checked=${on}
      @change=${(event) => choose(event.target.checked)}
    />${label}</label
  >`;
}

export function picker({ label, options, value, choose }) {
  return html`<label
    >${label}
    <select @change=${(event) => choose(event.target.value)}>
      ${options.map(([key, text]) => html`<option value=${key} .selected=${String(key) === String(value)}>${text}</option>`)}
    </select></label
  >`;
}

/** A part of a figure with a heading. On a narrow screen it is folded, so that a figure fits a screen and a half. */
export const folded = (view, heading, content) =>
  view.narrow
    ? html`<details class="folded">
        <summary>${heading}</summary>
        ${content}
      </details>`
    : html`<h4 style="margin-top:1.5rem">${heading}</h4>
        ${content}`;

const STEPS = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 };

/** The index that an arrow key, Home or End leads to in a row of `length`; undefined for other keys. */
export function indexAfterKey(key, index, length) {
  if (key in STEPS) return (index + STEPS[key] + length) % length;
  return { Home: 0, End: length - 1 }[key];
}

/** A keydown listener for roving focus: it moves the choice and the focus together. */
export function roving(index, length, choose) {
  return (event) => {
    const next = indexAfterKey(event.key, index, length);
    if (next === undefined) return;
    event.preventDefault();
    const group = event.currentTarget.closest("[data-roving]");
    choose(next);
    requestAnimationFrame(() => group.querySelectorAll("[data-index]")[next]?.focus());
  };
}

/** The tokens of a sentence as radio buttons: hovering previews one, a click or an arrow key chooses one. */
export function tokenPicker({
  label,
  tokens,
  value,
  previewed = null,
  choose,
  preview = (_place) => {},
}) {
  return html`<div class="tokens" role="radiogroup" aria-label=${label} data-roving>
    ${tokens.map(
      (token, i) =>
        html`<button
          role="radio"
          type="button"
          data-index=${i}
          aria-checked=${i === value}
          tabindex=${i === value ? 0 : -1}
          class="${beginsWord(token) ? "" : "inner"} ${previewed === i ? "previewed" : ""}"
          @click=${() => choose(i)}
          @mouseenter=${() => preview(i)}
          @mouseleave=${() => preview(null)}
          @keydown=${roving(i, tokens.length, choose)}
        >
          <bdi>${piece(token)}</bdi>
        </button>`,
    )}
  </div>`;
}

/** The pieces of the translation, with the cursor's chosen: for figures about a written word, whatever the role. */
export const wordPicker = (view, label) =>
  tokenPicker({
    label,
    tokens: view.trace.target.output_tokens,
    value: view.selection.step,
    previewed: view.cursor.side === "target" ? view.cursor.index : null,
    choose: (index) => view.chooseWord("target", index),
    preview: (index) => view.previewWord(index === null ? null : { side: "target", index }),
  });

/** The largest rows in their original order, and the sum of the others. */
function withoutSmallRows(rows, limit) {
  if (limit === null || rows.length <= limit + 4) return { kept: rows, others: null };
  const kept = new Set([...rows].sort((a, b) => b.value - a.value).slice(0, limit));
  const omitted = rows.filter((row) => !kept.has(row));
  return {
    kept: rows.filter((row) => kept.has(row)),
    others: { count: omitted.length, value: omitted.reduce((sum, row) => sum + row.value, 0) },
  };
}

/** One bar on a scale from `low` to `high`; negative values extend left from zero. */
function track({ value, low, high, concept, tip }) {
  const percentOf = (x) =>
    high === low ? 0 : (100 * (Math.max(low, Math.min(high, x)) - low)) / (high - low);
  const zero = percentOf(0);
  const end = Number.isFinite(value) ? percentOf(value) : zero;
  return html`<span class="track" data-value=${value} .tip=${tip}
    ><i
      style="left:${Math.min(zero, end)}%;width:${Math.abs(end - zero)}%;background:var(--${concept})"
    ></i
    >${low < 0 ? html`<i class="zero" style="left:${zero}%"></i>` : nothing}</span
  >`;
}

const bounds = (values, from, to) => {
  const finite = values.filter(Number.isFinite);
  return { low: from ?? Math.min(0, ...finite), high: to ?? Math.max(0, ...finite) };
};

/**
 * Rows measured twice, `{ name, values: [a, b] }`, on one scale. `sides` has headings and colours; it may be one side
 * only.
 */
export function pairedBars({
  rows,
  sides,
  number = readableNumber,
  digits = 3,
  from = null,
  to = null,
  most = null,
}) {
  const { kept, others } = withoutSmallRows(
    rows.map((row) => ({ ...row, value: Math.max(...row.values) })),
    most,
  );
  const scale = bounds(
    kept.flatMap((row) => row.values),
    from,
    to,
  );
  const strongest = sides.map((_, side) => Math.max(...kept.map((row) => row.values[side])));
  return html`<div class="bars ${sides.length > 1 ? "paired" : ""}">
    <span></span>${sides.map(({ heading }) => html`<span class="heading">${heading}</span>`)}
    ${kept.map(
      (row) =>
        html`<span class="name"><bdi>${row.name}</bdi></span
          >${row.values.map((value, side) => {
            const { concept, heading } = sides[side];
            return html`${track({ value, ...scale, concept: row.concepts?.[side] ?? concept, tip: () => `${row.name}, ${headingText(heading)}: ${shown(value, 4)}` })}<span
                class="number ${value === strongest[side] ? "top" : ""}"
                >${number(value, digits)}</span
              >`;
          })}`,
    )}
    ${others ? html`<span class="name">others</span>${sides.map(() => html`<span class="more">${others.count} smaller ones</span><span></span>`)}` : nothing}
  </div>`;
}

/** Numbers that would round to zero are shown as “<0.001”. */
const readableNumber = (x, digits) =>
  x > 0 && x < 10 ** -digits ? `<${(10 ** -digits).toFixed(digits)}` : shown(x, digits);

const headingText = (heading) => (typeof heading === "string" ? heading : "");

/** Bars with names and numbers. `most` limits them to the largest and adds up the others. */
export function bars({
  rows: all,
  concept,
  digits = 3,
  number = readableNumber,
  top: best = null,
  from = null,
  to = null,
  most = null,
}) {
  const { kept: rows, others } = withoutSmallRows(all, most);
  const top = best === null ? null : rows.indexOf(all[best]);
  const scale = bounds(
    rows.map((row) => row.value),
    from,
    to,
  );
  return html`<div class="bars">
    ${rows.map((row, i) => {
      const strong = i === top ? "top" : "";
      return html`<span class="name ${strong}"><bdi>${row.name}</bdi></span
        >${track({ value: row.value, ...scale, concept: row.concept ?? concept, tip: row.tip ?? (() => `${row.name}: ${shown(row.value, 4)}`) })}<span
          class="number ${strong}"
          >${number(row.value, digits)}</span
        >`;
    })}
    ${others ? html`<span class="name">others</span><span class="more">${others.count} tokens together</span><span class="number">${number(others.value, digits)}</span>` : nothing}
  </div>`;
}

/** A vector as a comb: one tooth a component, up if positive, down and pale if negative. */
export function comb({ values, concept, label, scale = null, height = 44, marked = null }) {
  const limit = scale ?? Math.max(1e-12, ...Array.from(values, Math.abs));
  const middle = height / 2;
  const teeth = (sign) =>
    Array.from(values, (x, i) => {
      const size = Math.min(1, Math.abs(x) / limit) * middle;
      return x * sign > 0 ? `M${i + 0.1} ${middle}h.8v${-sign * size}h-.8z` : "";
    }).join("");
  const tip = (event) => {
    const [across] = relativePosition(event, event.target.closest("svg"));
    const i = Math.max(0, Math.min(values.length - 1, Math.floor(across * values.length)));
    return `component ${i + 1}: ${shown(values[i], 4)}`;
  };
  return html`<svg
    viewBox="0 0 ${values.length} ${height}"
    preserveAspectRatio="none"
    role="img"
    aria-label=${label}
    .tip=${tip}
  >
    ${marked === null ? nothing : svg`<rect x=${marked} y="0" width="1" height=${height} fill="var(--sunken)" />`}
    <path d=${teeth(1)} fill="var(--${concept})" />
    <path d=${teeth(-1)} fill="var(--${concept})" opacity=".45" />
    <line
      x1="0"
      x2=${values.length}
      y1=${middle}
      y2=${middle}
      stroke="var(--rule-strong)"
      stroke-width=".6"
      vector-effect="non-scaling-stroke"
    />
  </svg>`;
}
