// Controls that mouse and keyboard share: native inputs where the browser has them, roving focus where it has not.

import { html, svg, nothing } from "onehop/vendor/lit-html.js";
import { beginsWord, piece } from "onehop/text.js";

/** One of a few: radio buttons that look like one. */
export function segments({ name, label, options, value, choose }) {
  return html`<fieldset class="segments" role="radiogroup" aria-label=${label}>
    ${options.map(
      ([key, text]) => html`<label
        ><input type="radio" name=${name} .checked=${key === value} value=${key} @change=${() => choose(key)} />${text}</label
      >`,
    )}
  </fieldset>`;
}

export function slider({ label, min, max, step = 1, value, choose, shown = String }) {
  return html`<label class="slider"
    ><span>${label}</span
    ><input type="range" aria-label=${label} min=${min} max=${max} step=${step} .value=${String(value)}
      aria-valuetext=${shown(value)} @input=${(event) => choose(Number(event.target.value))} /><output>${shown(value)}</output></label
  >`;
}

export function toggle({ label, on, choose }) {
  return html`<label class="switch"
    ><input type="checkbox" .checked=${on} @change=${(event) => choose(event.target.checked)} />${label}</label
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

const STEPS = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 };

/** Where an arrow key, Home or End leads from a place in a row of `length`; undefined for other keys. */
export function moved(key, place, length) {
  if (key in STEPS) return (place + STEPS[key] + length) % length;
  return { Home: 0, End: length - 1 }[key];
}

/** A keydown listener for roving focus: moves the choice and the focus together. */
export function roving(place, length, choose) {
  return (event) => {
    const next = moved(event.key, place, length);
    if (next === undefined) return;
    event.preventDefault();
    const group = event.currentTarget.closest("[data-roving]");
    choose(next);
    requestAnimationFrame(() => group.querySelectorAll("[data-place]")[next]?.focus());
  };
}

/** The tokens of a sentence, one of them chosen: hover previews, click and arrows choose. */
export function tokenPicker({ label, tokens, value, previewed = null, choose, preview = () => {} }) {
  return html`<div class="tokens" role="radiogroup" aria-label=${label} data-roving>
    ${tokens.map(
      (token, i) => html`<button
        role="radio" type="button" data-place=${i} aria-checked=${i === value} tabindex=${i === value ? 0 : -1}
        class="${beginsWord(token) ? "" : "inner"} ${previewed === i ? "previewed" : ""}"
        @click=${() => choose(i)} @mouseenter=${() => preview(i)} @mouseleave=${() => preview(null)}
        @keydown=${roving(i, tokens.length, choose)}
      ><bdi>${piece(token)}</bdi></button>`,
    )}
  </div>`;
}

/** The largest rows in their old order, and how much the others hold together. */
function abridged(rows, most) {
  if (most === null || rows.length <= most + 4) return { kept: rows, others: null };
  const kept = new Set([...rows].sort((a, b) => b.value - a.value).slice(0, most));
  const rest = rows.filter((row) => !kept.has(row));
  return { kept: rows.filter((row) => kept.has(row)), others: { count: rest.length, value: rest.reduce((sum, row) => sum + row.value, 0) } };
}

/** Bars with names and numbers; negative ones go left from zero. Shares of a whole may be cut to the `most` largest. */
export function bars({ rows: all, concept, digits = 3, number, top: best = null, from = null, to = null, most = null }) {
  const { kept: rows, others } = abridged(all, most);
  const top = best === null ? null : rows.indexOf(all[best]);
  const low = from ?? Math.min(0, ...rows.map((row) => row.value).filter(Number.isFinite));
  const high = to ?? Math.max(0, ...rows.map((row) => row.value).filter(Number.isFinite));
  const place = (x) => (high === low ? 0 : (100 * (Math.max(low, Math.min(high, x)) - low)) / (high - low));
  const zero = place(0);
  return html`<div class="bars">
    ${rows.map((row, i) => {
      const end = Number.isFinite(row.value) ? place(row.value) : zero;
      const strong = i === top ? "top" : "";
      return html`<span class="name ${strong}"><bdi>${row.name}</bdi></span
        ><span class="track" data-value=${row.value}
          ><i style="left:${Math.min(zero, end)}%;width:${Math.abs(end - zero)}%;background:var(--${row.concept ?? concept})"></i
          >${low < 0 ? html`<i class="zero" style="left:${zero}%"></i>` : nothing}</span
        ><span class="number ${strong}">${number(row.value, digits)}</span>`;
    })}
    ${others ? html`<span class="name">others</span><span class="more">${others.count} tokens together</span><span class="number">${number(others.value, digits)}</span>` : nothing}
  </div>`;
}

/** A vector as a comb: one tooth a component, up for positive, down and pale for negative. */
export function comb({ values, concept, label, scale = null, height = 44, marked = null }) {
  const top = scale ?? Math.max(1e-12, ...Array.from(values, Math.abs));
  const half = height / 2;
  const teeth = (sign) =>
    Array.from(values, (x, i) => {
      const size = Math.min(1, Math.abs(x) / top) * half;
      return x * sign > 0 ? `M${i + 0.1} ${half}h.8v${-sign * size}h-.8z` : "";
    }).join("");
  return html`<svg viewBox="0 0 ${values.length} ${height}" preserveAspectRatio="none" role="img" aria-label=${label}>
    ${marked === null ? nothing : svg`<rect x=${marked} y="0" width="1" height=${height} fill="var(--sunken)" />`}
    <path d=${teeth(1)} fill="var(--${concept})" />
    <path d=${teeth(-1)} fill="var(--${concept})" opacity=".45" />
    <line x1="0" x2=${values.length} y1=${half} y2=${half} stroke="var(--rule-strong)" stroke-width=".6" vector-effect="non-scaling-stroke" />
  </svg>`;
}
