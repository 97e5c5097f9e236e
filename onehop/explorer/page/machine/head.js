// One head at one token: scores with every key, the softmax, and the weighted values. And the scene of one dot
// product.

import { html, svg } from "onehop/vendor/lit-html.js";
import { comb } from "onehop/controls.js";
import { zoom } from "onehop/machine/parts.js";
import { argmax, range, softmax, sum } from "onehop/maths.js";
import { divisor, maskedScores } from "onehop/recompute.js";
import { clipped, number, piece } from "onehop/format.js";

const MAX_KEYS = 18;

/** The numbers of the current row. */
function rowOf(view) {
  const { role, layer, head } = view.selection;
  const at = { role, layer, head };
  const part = (name) => view.trace.part(at, name);
  const scaled = maskedScores(view.trace, at, view.token);
  const weights = Array.from(part("weights").at({ head, query: view.token }));
  const visible = range(weights.length).filter((j) => scaled[j] !== -Infinity);
  const shown =
    visible.length <= MAX_KEYS
      ? visible
      : [...visible]
          .sort((a, b) => weights[b] - weights[a])
          .slice(0, MAX_KEYS)
          .sort((a, b) => a - b);
  return {
    at,
    visible,
    shown,
    weights,
    scores: Array.from(part("scores").at({ head, query: view.token })),
    scaled,
    scale: divisor(view.trace, at),
  };
}

/** The key of the dot product: the selected one, or the one with the largest weight. */
export function keyOf(view) {
  const { visible, weights } = rowOf(view);
  const selected = Number(view.dial("machine.key", -1));
  return visible.includes(selected) ? selected : argmax(weights);
}

export function headScene(view) {
  const { visible, shown, weights, scores, scaled, scale, at } = rowOf(view);
  const keys = view.trace.keys(at.role);
  const query = piece(view.trace.queries(at.role)[view.token]);
  const width = view.narrow ? 360 : 760;
  const pitch = 24;
  const top = 58;
  const height = top + pitch * shown.length + 16;
  const [a, b, c, d] = view.narrow ? [66, 96, 190, 250] : [150, 210, 420, 540];
  const largest = Math.max(...shown.map((j) => Math.abs(scaled[j])));
  const recomputed = softmax(visible.map((j) => scaled[j]));
  const open = (j) => (event) => {
    if (event.type === "keydown" && event.key !== "Enter" && event.key !== " ") return;
    event.preventDefault();
    zoom(view, event, "dot", { dials: { "machine.key": String(j) } });
  };
  const line = (j, i) => {
    const y = top + pitch * i;
    const length = ((c - b - 34) * Math.abs(scaled[j])) / (2 * largest || 1);
    const zero = b + (c - b - 34) / 2;
    const end = zero + Math.sign(scaled[j]) * length;
    return svg`<g class="box" role="button" tabindex="0" data-key=${j} aria-label="${piece(keys[j])}: score ${number(scaled[j], 2)}, weight ${number(weights[j], 3)}; open the product" @click=${open(j)} @keydown=${open(j)}>
      <rect class="ring" x="2" y=${y} width=${width - 4} height=${pitch - 3} rx="4" fill="transparent" stroke="none" />
      <text x=${a - 6} y=${y + 15} text-anchor="end" style="font-size:13px;fill:var(--key-ink)">${clipped(keys[j], view.narrow ? 8 : 16)}</text>
      <path d="M${a} ${y + 10}H${b - 6}" stroke="var(--query)" stroke-width="1.2" />
      <line x1=${zero} x2=${zero} y1=${y + 2} y2=${y + pitch - 5} stroke="var(--rule-strong)" />
      <rect x=${Math.min(zero, end)} y=${y + 4} width=${Math.abs(end - zero)} height=${pitch - 11} rx="2" fill="var(--key)" data-scaled=${scaled[j]} .tip=${`${query} · ${piece(keys[j])}: ${number(scores[j], 3)}, divided by ${number(scale, 2)}: ${number(scaled[j], 3)}`} />
      <text class="number" x=${c - 4} y=${y + 15} text-anchor="end">${number(scaled[j], 1)}</text>
      <rect x=${c + 14} y=${y + 4} width=${(d - c - 14) * weights[j]} height=${pitch - 11} rx="2" fill="var(--weight)" data-weight=${weights[j]} .tip=${`weight on ${piece(keys[j])}: ${number(weights[j], 4)}`} />
      <rect x=${c + 14} y=${y + 4} width=${d - c - 14} height=${pitch - 11} rx="2" fill="none" stroke="var(--rule)" />
      <text class="number" x=${d + 8} y=${y + 15}>${weights[j] < 0.001 ? "<0.001" : number(weights[j], 3)}</text>
      ${view.narrow ? "" : svg`<path d="M${d + 62} ${y + 10}H${width - 60}" stroke="var(--value)" stroke-width=${(0.5 + 8 * weights[j]).toFixed(2)} stroke-opacity=${(0.15 + 0.85 * weights[j]).toFixed(2)} />`}
    </g>`;
  };
  return html`<svg
      viewBox="0 0 ${width} ${height}"
      style="width:100%;max-width:${width}px"
      role="group"
      aria-label="One head: ${query} against ${visible.length} keys. A line opens its product."
    >
      <text x=${a - 6} y="20" text-anchor="end" style="fill:var(--query-ink)" font-weight="700">
        ${clipped(query, 12)}
      </text>
      <text x=${a - 6} y="40" text-anchor="end" class="soft" style="font-size:11.5px">asks</text>
      <text x=${b} y="20" style="fill:var(--key-ink)">
        ${view.narrow ? "q·k / √d" : "q·k divided by √dₖ"}
      </text>
      <text x=${c + 14} y="20" style="fill:var(--weight-ink)">softmax</text>
      ${view.narrow ? "" : svg`<text x=${width - 56} y="20" text-anchor="end" style="fill:var(--value-ink)">weighs the values</text><path d="M${width - 58} ${top}V${top + pitch * shown.length - 6}" stroke="var(--value)" stroke-width="1.5" /><text x=${width - 50} y=${top + (pitch * shown.length) / 2 + 4} style="fill:var(--output-ink)" font-weight="700">output</text>`}
      <path
        d="M${a} 24V${top + pitch * shown.length - 10}"
        stroke="var(--query)"
        stroke-width="1.2"
        fill="none"
      />
      ${shown.map(line)}
    </svg>
    <div class="lanes" style="margin-top:.6rem">
      <span class="name"><b class="c-output">output</b> of this head</span>
      ${comb({ values: view.trace.part(at, "head_outputs").at({ head: at.head, query: view.token }), concept: "output", label: "The output of this head: the weighted sum of the values" })}
    </div>
    <p class="reading">
      ${visible.length > shown.length ? html`The ${shown.length} keys of ${visible.length} that get most. ` : ""}The
      softmax made in this page differs from the recorded weights by at most
      <span class="numbers"
        >${number(Math.max(...visible.map((j, i) => Math.abs(recomputed[i] - weights[j]))), 6)}</span
      >. A line opens its dot product.
    </p>`;
}

export function dotScene(view) {
  const { at, scores, scaled, weights, scale } = rowOf(view);
  const key = keyOf(view);
  const q = view.trace.part(at, "q").at({ head: at.head, query: view.token });
  const k = view.trace.part(at, "k").at({ head: at.head, key });
  const products = Array.from(q, (x, i) => x * k[i]);
  const [query, keyName] = [
    piece(view.trace.queries(at.role)[view.token]),
    piece(view.trace.keys(at.role)[key]),
  ];
  const total = sum(products);
  const order = [...products.keys()]
    .sort((a, b) => Math.abs(products[b]) - Math.abs(products[a]))
    .slice(0, 5);
  const lane = (name, values, concept, label) =>
    html`<span class="name">${name}</span>${comb({ values, concept, label, height: 56 })}`;
  return html`<div class="lanes" data-dot=${total}>
      ${lane(html`<b class="c-query">query</b> of “<bdi>${query}</bdi>”`, q, "query", `Query of ${query}, ${q.length} numbers`)}
      ${lane(html`times <b class="c-key">key</b> of “<bdi>${keyName}</bdi>”`, k, "key", `Key of ${keyName}, ${k.length} numbers`)}
      ${lane(html`${products.length} products`, products, "output", "Their products, component by component")}
    </div>
    <div class="formula">
      <math
        ><mi class="c-query">q</mi><mo>·</mo><mi class="c-key">k</mi><mo>=</mo
        ><mn>${number(total, 2)}</mn></math
      ><math
        ><mfrac><mn>${number(total, 2)}</mn><mn>${number(scale, 2)}</mn></mfrac
        ><mo>=</mo><mn>${number(scaled[key], 2)}</mn></math
      ><math><mi>softmax</mi><mo>→</mo><mn>${number(weights[key], 3)}</mn></math>
    </div>
    <p class="reading">
      The products add up to ${number(total, 3)}; recorded is
      <span class="numbers" data-score=${scores[key]}>${number(scores[key], 3)}</span>. The largest
      of them:
      ${order.map((i, n) => html`${n ? ", " : ""}component ${i + 1} with ${number(products[i], 2)}`)}.
    </p>`;
}
