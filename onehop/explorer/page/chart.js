// Line charts: scales, axes, and lines with labels at their ends.

import { html, nothing, svg } from "onehop/vendor/lit-html.js";
import { range } from "onehop/maths.js";
import { number, short } from "onehop/format.js";

/** A linear or logarithmic scale from [min, max] to [from, to]. */
export function scale({ min, max, log = false }, from, to) {
  const at = log ? Math.log : (x) => x;
  const [low, high] = [at(min), at(max)];
  return (x) => from + ((at(x) - low) / (high - low || 1)) * (to - from);
}

/** A few round values between min and max. */
export function ticks({ min, max, log = false }, count = 5) {
  if (log && max / min < 300) {
    const round = range(40)
      .flatMap((i) => [1, 2, 5].map((m) => m * 10 ** (i - 20)))
      .filter((x) => x >= min && x <= max);
    return round.length > count + 2 ? round.filter((x) => /^[15]/.test(x.toExponential())) : round;
  }
  if (log) {
    const powers = range(80)
      .map((i) => 10 ** (i - 50))
      .filter((x) => x >= min * 0.999 && x <= max * 1.001);
    const every = Math.ceil(powers.length / (count + 1));
    return powers.filter((_, i) => (powers.length - 1 - i) % every === 0);
  }
  const rough = (max - min) / count;
  const base = 10 ** Math.floor(Math.log10(rough || 1));
  const step = [1, 2, 5, 10].map((m) => m * base).find((s) => s >= rough) ?? base;
  return range(Math.floor((max - min) / step + 1e-9) + 2)
    .map((i) => (Math.ceil(min / step - 1e-9) + i) * step)
    .filter((x) => x <= max + step * 1e-9);
}

export function tickLabel(x) {
  if (x === 0) return "0";
  const size = Math.abs(x);
  if (size >= 1000) return short(x).replace(".0", "");
  if (size < 0.001)
    return `10${[...String(Math.round(Math.log10(size)))].map((c) => (c === "-" ? "⁻" : "⁰¹²³⁴⁵⁶⁷⁸⁹"[c])).join("")}`;
  return String(Number(x.toPrecision(3))).replace("-", "−");
}

const exactly = (x) => (Number.isInteger(x) ? String(x) : number(x, 3));

const [LINE, CHARACTER] = [14, 6.3]; // pixels: height of a label and width of a letter

/** Vertical positions for the labels at the ends of lines, moved apart where they would overlap. */
export function spreadLabels(preferred, top, bottom) {
  const order = preferred.map((_, i) => i).sort((a, b) => preferred[a] - preferred[b]);
  const positions = [...preferred];
  order.forEach((i, n) => {
    if (n) positions[i] = Math.max(positions[i], positions[order[n - 1]] + LINE);
  });
  let limit = bottom;
  for (const i of order.toReversed()) {
    positions[i] = Math.max(top, Math.min(positions[i], limit));
    limit = positions[i] - LINE;
  }
  return positions;
}

/**
 * A line chart. `mark` is the slider's position, `zone` a shaded part of the x axis. Points beyond the axis become
 * arrows at its edge.
 */
export function lines({ view, label, x, y, series, mark = null, zone = null, height = 260 }) {
  const width = view.narrow ? 340 : 680;
  if (view.narrow) height = Math.min(height, 210);
  const longest = Math.max(0, ...series.map((s) => s.end?.length ?? 0));
  const margin = longest ? 14 + longest * CHARACTER : 16;
  const [left, right, top, bottom] = [
    view.narrow ? 52 : 64,
    width - margin,
    y.label ? 28 : 14,
    height - 40,
  ];
  const across = scale(x, left, right);
  const up = scale(y, bottom, top);
  const inside = ([a, b]) => Number.isFinite(a) && Number.isFinite(b) && a >= x.min && a <= x.max;
  const within = ([, b]) => b >= y.min * (1 - 1e-9) && b <= y.max * (1 + 1e-9);
  const path = (points) =>
    points
      .filter((p) => inside(p) && within(p))
      .map(([a, b], i) => `${i ? "L" : "M"}${across(a).toFixed(1)} ${up(b).toFixed(1)}`)
      .join("");
  const tip = (s, [a, b]) => `${s.name}, ${x.label} ${tickLabel(a)}: ${(y.exactly ?? exactly)(b)}`;
  const dot = (s, [a, b]) =>
    svg`<circle cx=${across(a)} cy=${up(b)} r=${s.dots ? 3 : 5} fill=${s.dots ? `var(--${s.concept})` : "transparent"}
      data-x=${a} data-y=${b} .tip=${tip(s, [a, b])} />`;
  const arrow = (s, [a, b]) => {
    const [edge, way] = b < y.min ? [bottom, 1] : [top, -1];
    return svg`<path d="M${across(a) - 4} ${edge - 7 * way}h8l-4 ${7 * way}z" fill="none" stroke="var(--${s.concept})"
      stroke-width="1.4" data-x=${a} data-y=${b} data-beyond .tip=${`${tip(s, [a, b])} (beyond the axis)`} />`;
  };
  const named = series.filter((s) => (!s.end || view.narrow) && s.name !== y.label);
  const ended = series.filter((s) => s.end && s.points.some((p) => inside(p) && within(p)));
  const last = ended.map((s) => s.points.filter((p) => inside(p) && within(p)).at(-1));
  const beside = spreadLabels(
    last.map(([, b]) => up(b)),
    top,
    bottom,
  );
  return html`<svg
      viewBox="0 0 ${width} ${height}"
      role="img"
      aria-label=${label}
      style="width:100%;max-width:${width}px"
    >
      ${
        zone === null
          ? nothing
          : svg`<rect data-zone=${zone.from} x=${across(zone.from)} y=${top} width=${right - across(zone.from)} height=${bottom - top} fill="var(--sunken)" />
              <text class="soft" x=${right - 4} y=${bottom - 7} text-anchor="end">${zone.label}</text>`
      }
      ${y.label ? svg`<text class="soft" x=${left} y="14">↑ ${y.label}</text>` : nothing}
      ${ticks(y, 4).map(
        (t) => svg`<line class="grid" x1=${left} x2=${right} y1=${up(t)} y2=${up(t)} />
          <text class="soft" x=${left - 7} y=${up(t) + 4} text-anchor="end">${(y.written ?? tickLabel)(t)}</text>`,
      )}
      ${(x.ticks ?? ticks(x, view.narrow ? 4 : 7)).map((t) => svg`<text class="soft" x=${across(t)} y=${bottom + 18} text-anchor="middle">${(x.written ?? tickLabel)(t)}</text>`)}
      <line class="axis" x1=${left} x2=${right} y1=${bottom} y2=${bottom} />
      <text class="soft" x=${(left + right) / 2} y=${height - 4} text-anchor="middle">
        ${x.label}
      </text>
      ${mark === null ? nothing : svg`<line x1=${across(mark)} x2=${across(mark)} y1=${top} y2=${bottom} stroke="var(--neutral)" stroke-dasharray="3 3" />`}
      ${series.map((s) => svg`<path d=${path(s.points)} fill="none" stroke="var(--${s.concept})" stroke-width="2.2" stroke-linejoin="round" stroke-dasharray=${s.dash ?? "none"} />`)}
      ${series.map((s) => s.points.filter(inside).map((p) => (within(p) ? dot(s, p) : arrow(s, p))))}
      ${ended.map((s, i) => svg`<text data-end=${s.name} x=${across(last[i][0]) + 7} y=${beside[i] + 4} style="fill:var(--${s.concept}-ink)">${s.end}</text>`)}
    </svg>
    <ul class="legend">
      ${named.map((s) => html`<li><i style="background:${s.dash ? `repeating-linear-gradient(90deg, var(--${s.concept}) 0 5px, transparent 5px 8px)` : `var(--${s.concept})`}"></i>${s.name}</li>`)}
    </ul>`;
}
