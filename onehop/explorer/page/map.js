// The page's map: a small picture of the machine. Each part links to its chapter, and the current one is marked.

import { html, nothing, svg } from "onehop/vendor/lit-html.js";
import { TEXTS } from "onehop/texts.js";

const ROW = 18;

/** Chapters and labels from the bottom up. Attention is drawn in detail, because most chapters are about it. */
const ATTENTION = [
  ["chapter-2", "query, key, value"],
  ["chapter-3", "scores"],
  ["chapter-4", "scale, softmax"],
  ["chapter-5", "weighted values"],
  ["chapter-6", "the matrix"],
  ["chapter-7", "many heads"],
];

export function pageMap(jump) {
  const [left, right, width] = [6, 130, 112];
  const rightWidth = 98;
  const top = 34;
  const bottom = top + ROW * ATTENTION.length;
  const part = (
    target,
    label,
    x,
    y,
    w = width,
    height = ROW - 3,
  ) => svg`<a href="#${target}" data-chapter=${target} @click=${jump}>
    <rect x=${x} y=${y} width=${w} height=${height} rx="3" /><text x=${x + 6} y=${y + height / 2 + 4}>${label}</text></a>`;
  const line = (d) => svg`<path d=${d} fill="none" stroke="var(--rule-strong)" />`;
  return html`<svg
    class="map"
    viewBox="0 0 232 ${bottom + 79}"
    role="group"
    aria-label="Map of the machine; each part leads to its chapter"
  >
    <rect
      class="frame"
      x="1"
      y=${top - 16}
      width=${width + 10}
      height=${bottom - top + 20}
      rx="6"
    />
    <text class="soft" x=${left} y=${top - 4}>attention</text>
    ${ATTENTION.map(([target, label], i) => part(target, label, left, bottom - ROW * (i + 1)))}
    ${line(`M${left + width + 6} ${(top + bottom) / 2}H${right}`)}
    ${part("chapter-9", "the layers", right, top + 18, rightWidth, bottom - top - 24)}
    ${line(`M${right + rightWidth / 2} ${top + 18}V${top - 8}`)}
    ${part("figure-beam", "the next word", right, top - 26, rightWidth)}
    ${line(`M${right + rightWidth / 2} ${bottom - 6}V${bottom + 12}`)}
    ${line(`M${left + width / 2} ${bottom + 4}V${bottom + 12}`)}
    ${part("chapter-8", "positions", left, bottom + 12, right + rightWidth - left)}
    ${part("chapter-1", "words become vectors", left, bottom + 29, right + rightWidth - left)}
    ${part("tools", "three small tools", left, bottom + 46, right + rightWidth - left)}
    ${part("introduction", "introduction", left, bottom + 63, right + rightWidth - left)}
  </svg>`;
}

/** The parts after the last chapter. */
const AFTER = [
  ["claims", TEXTS.claims.title],
  ["beside", TEXTS.coda.images],
  ["questions", "Questions"],
];

/** The chapters as a list. */
export const contents = (chapters, jump) =>
  html`<ol>
    ${chapters.map(({ id, title }) => html`<li><a href="#${id}" data-chapter=${id} @click=${jump}>${id.match(/\d/)?.[0] ?? nothing} ${title}</a></li>`)}
    ${AFTER.map(([id, title]) => html`<li><a href="#${id}" data-chapter=${id} @click=${jump}>${title}</a></li>`)}
  </ol>`;
