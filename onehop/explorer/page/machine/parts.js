// Boxes, arrows and cells of the machine's picture.

import { html, nothing, svg } from "onehop/vendor/lit-html.js";
import { tint } from "onehop/colour.js";
import { maxOf, sum } from "onehop/maths.js";
import { piece, short } from "onehop/format.js";

export const parameterCount = (view, box) => view.trace.model.boxes[box] ?? 0;

/** From the whole machine down to one dot product. */
export const LEVELS = ["whole", "layer", "head", "dot"];

export const currentLevel = (view) => {
  const level = view.dial("machine.level", "whole");
  return LEVELS.includes(level) ? level : "whole";
};

/** Go to another level. The animation grows from the opened box, or shrinks when going back. */
export function zoom(view, event, level, { dials = {}, ...change } = /** @type {any} */ ({})) {
  const frame = event.currentTarget.closest(".machine");
  const [source, frameBox] = [event.currentTarget, frame].map((element) =>
    element.getBoundingClientRect(),
  );
  const origin = `${source.left + source.width / 2 - frameBox.left}px ${source.top + source.height / 2 - frameBox.top}px`;
  const inwards = LEVELS.indexOf(level) > LEVELS.indexOf(currentLevel(view));
  view.setDials({ ...dials, "machine.level": level }, change);
  frame.focus({ preventScroll: true }); // the clicked element disappears, and Escape must still work
  if (matchMedia("(prefers-reduced-motion: reduce)").matches) return;
  requestAnimationFrame(() => {
    const scene = frame.querySelector(".scene");
    scene.style.transformOrigin = inwards ? origin : "center";
    scene.animate([{ transform: `scale(${inwards ? 0.4 : 1.6})`, opacity: 0 }, {}], {
      duration: 320,
      easing: "ease-out",
    });
  });
}

/** A box that a click or Enter opens. */
export function box({
  x,
  y,
  width,
  height,
  label,
  name,
  open = null,
  concept = "neutral",
  count = null,
  grey = false,
  tip = null,
  inside = nothing,
  text = 12.5,
}) {
  const act = (event) => {
    if (event.type === "keydown" && event.key !== "Enter" && event.key !== " ") return;
    event.preventDefault();
    open(event);
  };
  return svg`<g class="box ${grey ? "grey" : ""}" data-box=${name} role=${open ? "button" : nothing} tabindex=${open ? 0 : nothing}
      aria-label=${open ? `${label || name}${count ? `, ${short(count)} parameters` : ""}` : nothing}
      @click=${open ? act : nothing} @keydown=${open ? act : nothing} .tip=${tip}>
    <rect class="ring" x=${x} y=${y} width=${width} height=${height} rx="6" fill="color-mix(in srgb, var(--${concept}) 12%, var(--panel))" stroke="var(--${concept})" stroke-width="1.3" />
    ${label ? svg`<text x=${x + (text < 12 ? 5 : 10)} y=${y + height / 2 + 4.5} style="font-size:${text}px">${label}</text>` : nothing}
    ${count ? svg`<text class="soft number" x=${x + width - 8} y=${y + height / 2 + 4} text-anchor="end">${short(count)}</text>` : nothing}
    ${inside}
  </g>`;
}

/** An arrow along points, with right angles and round corners. */
export function arrow(
  points,
  { concept = "neutral", grey = false, flow = true, label = null, head = true } = {},
) {
  const d = points.map(([x, y], i) => `${i ? "L" : "M"}${x} ${y}`).join("");
  const [[x0, y0], [x1, y1]] = points.slice(-2);
  const angle = (Math.atan2(y1 - y0, x1 - x0) * 180) / Math.PI;
  return svg`<g class="arrow ${grey ? "grey" : ""}" data-arrow=${label ?? nothing}>
    <path d=${d} fill="none" stroke="var(--${concept})" stroke-width="1.5" stroke-linejoin="round" />
    ${flow ? svg`<path class="flow" d=${d} fill="none" stroke="var(--output)" stroke-width="3" stroke-linecap="round" />` : nothing}
    ${head ? svg`<path d="M-7 -4L0 0L-7 4z" fill="var(--${concept})" transform="translate(${x1} ${y1}) rotate(${angle})" />` : nothing}</g>`;
}

/** The strength of a head's cell: its effect after a sweep, else its largest weight from the cursor's word. */
function cellStrength(view, { role, layer, head }) {
  const step = view.selection.step;
  const part =
    view.sweep.state === "done"
      ? view.sweep.parts.find((p) => p.role === role && p.layer === layer)
      : null;
  if (part) {
    const most = maxOf(view.sweep.parts.flatMap((p) => p.effect.map((row) => Math.abs(row[step]))));
    const effect = part.effect[head][step];
    return {
      value: effect,
      kind: "effect",
      concept: effect < 0 ? "key" : "query",
      strength: Math.sqrt(Math.abs(effect) / (most || 1)),
    };
  }
  const query = role === "encoder" ? view.selection.source : step;
  const maxWeight = maxOf(
    Array.from(view.trace.tensor(`${view.trace.path(role, layer)}.weights`).at({ head, query })),
  );
  return { value: maxWeight, kind: "look", concept: "weight", strength: Math.sqrt(maxWeight) };
}

/** The heads of one attention as a row of cells. */
export function headCells(view, { role, layer, x, y, width, height, grey = false }) {
  const pitch = width / view.trace.heads;
  // On the layer's colour the cells' own colours would be mixed with it.
  const ground = svg`<rect x=${x} y=${y} width=${width} height=${height} rx="2" fill="var(--panel)" />`;
  const cells = Array.from({ length: view.trace.heads }, (_, head) => {
    const { value, kind, concept, strength } = cellStrength(view, { role, layer, head });
    const on =
      view.selection.role === role &&
      view.selection.layer === layer &&
      view.selection.head === head;
    return svg`<rect class=${grey ? "grey" : ""} x=${x + head * pitch + 0.75} y=${y} width=${pitch - 1.5} height=${height} rx="1.5" fill=${tint(concept, 0.08 + 0.92 * strength)}
      stroke=${on ? "var(--output)" : "var(--rule)"} stroke-width=${on ? 2 : 0.5} data-cell="${role}.${layer}.${head}" data-kind=${kind} data-value=${value} />`;
  });
  return [ground, ...cells];
}

/** The tokens of one side as cells, with the cursor's in gold. A click moves the cursor. */
export function tokenCells(view, side, { x, y, width, tokens, index, offset = 0 }) {
  const pitch = Math.min(26, width / tokens.length);
  const left = x + (width - pitch * tokens.length) / 2;
  const neighbours = [index - 1, index, index + 1].filter((i) => i in tokens);
  return svg`<g data-tokens=${side}>
    ${tokens.map(
      (
        token,
        i,
      ) => svg`<rect x=${left + i * pitch + 0.75} y=${y} width=${Math.max(1, pitch - 1.5)} height="16" rx="2" fill=${i === index ? "var(--output)" : "var(--sunken)"} stroke="var(--rule-strong)" stroke-width=".6"
      .tip=${piece(token)} data-token=${i} @click=${() => i - offset >= 0 && view.chooseWord(side, i - offset)} />`,
    )}
    <text x=${x + width / 2} y=${y + 34} text-anchor="middle" style="font-size:13px">${neighbours.map((i) => svg`<tspan font-weight=${i === index ? 700 : 400}>${i === neighbours[0] ? "" : " "}${piece(tokens[i])}</tspan>`)}</text>
  </g>`;
}

/** The share of a position's neurons with an output above zero. */
export function activeShare(view, stack, layer, index) {
  const name = `${stack}.layers.${layer}.feed_forward.hidden`;
  if (!view.trace.has(name)) return null;
  const hidden = Array.from(view.trace.tensor(name).at({ token: index }));
  return sum(hidden.map((h) => Number(h > 0))) / hidden.length;
}

/** The path back to the outer levels as buttons. */
export function breadcrumbs(view, steps) {
  return html`<nav class="crumbs" aria-label="Where in the machine">
    ${steps.map(([level, label], i) => {
      const last = i === steps.length - 1;
      return html`${i ? html`<span aria-hidden="true">›</span>` : nothing}<button
          type="button"
          class="quiet"
          data-level=${level}
          aria-current=${last ? "true" : nothing}
          ?disabled=${last}
          @click=${(event) => zoom(view, event, level)}
        >
          ${label}
        </button>`;
    })}
  </nav>`;
}
