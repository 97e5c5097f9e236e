// One layer: its sub-layers, the residual connections around them, and the lengths of the vectors.

import { html, nothing, svg } from "onehop/vendor/lit-html.js";
import { activeShare, arrow, box, headCells, parameterCount, zoom } from "onehop/machine/parts.js";
import { scrollTo } from "onehop/scrolling.js";
import { number, percent, piece } from "onehop/format.js";

const NAMES = {
  self_attention: "Self-attention",
  cross_attention: "Cross-attention",
  feed_forward: "Feed-forward",
};
const CONCEPTS = { self_attention: "query", cross_attention: "key", feed_forward: "value" };
const ROLE = { self_attention: (stack) => stack, cross_attention: () => "cross" };
const BLOCK = 112;

const jump = (id) => scrollTo(document.getElementById(`figure-${id}`));

export const stackOf = (view) => (view.selection.role === "encoder" ? "encoder" : "decoder");

/** The sub-layers of the current layer, with the cursor's numbers. */
function sublayers(view) {
  const [stack, index] = [stackOf(view), view.selection.token];
  return view.trace.json.residual
    .filter((r) => r.stack === stack && r.layer === view.selection.layer)
    .map((r) => ({ name: r.sublayer, stream: r.stream[index], added: r.added[index] }));
}

/** One sub-layer with its add & norm and the residual connection around it. */
function block(view, m, sub, i) {
  const { layer } = view.selection;
  const stack = stackOf(view);
  const y = m.bottom - BLOCK * (i + 1);
  const path = `${stack}.layers.${layer}`;
  const attention = sub.name !== "feed_forward";
  const role = attention ? ROLE[sub.name](stack) : null;
  const fires = attention ? null : activeShare(view, stack, layer, view.selection.token);
  const open = attention ? (event) => zoom(view, event, "head", { role }) : () => jump("neurons");
  const addNorm =
    sub.name === "feed_forward"
      ? "feed_add_norm"
      : sub.name === "cross_attention"
        ? "cross_add_norm"
        : "self_add_norm";
  const post = view.trace.settings.norm !== "pre";
  return svg`
    ${arrow(
      [
        [m.middle, y + BLOCK],
        [m.middle, y + BLOCK - 14],
      ],
      { label: `stream ${i}` },
    )}
    <text class="soft number" x=${m.middle + 10} y=${y + BLOCK - 2} data-stream=${sub.stream}>length ${number(sub.stream, 1)}</text>
    <path d="M${m.middle} ${y + BLOCK - 6}H${m.x - 22}V${y + 17}H${m.x - 4}" fill="none" stroke="var(--rule-strong)" stroke-width="1.6" data-residual=${sub.name} />
    <path d="M-7 -4L0 0L-7 4z" fill="var(--rule-strong)" transform="translate(${m.x} ${y + 17})" />
    ${box({
      x: m.x,
      y: y + 48,
      width: m.box,
      height: 48,
      label: "",
      name: `${path}.${sub.name}`,
      count: null,
      concept: CONCEPTS[sub.name],
      open,
      tip: attention ? `${NAMES[sub.name]}: open its heads` : "Feed-forward: to its figure",
      inside: svg`<text x=${m.x + 10} y=${y + 67} style="font-size:13.5px">${NAMES[sub.name]}</text><text class="soft number" x=${m.x + m.box - 8} y=${y + 67} text-anchor="end">${parameterCount(view, `${path}.${sub.name}`).toLocaleString("en-US")}</text>
        ${
          attention
            ? headCells(view, {
                role,
                layer,
                x: m.x + 10,
                y: y + 75,
                width: m.box - 20,
                height: 14,
              })
            : svg`<rect x=${m.x + 10} y=${y + 76} width=${m.box - 20} height="12" rx="2" fill="var(--sunken)" />${fires === null ? nothing : svg`<rect x=${m.x + 10} y=${y + 76} width=${(m.box - 20) * fires} height="12" rx="2" fill="var(--value)" data-fires=${fires} /><text class="number" x=${m.x + m.box - 14} y=${y + 86} text-anchor="end">${percent(fires)} fire</text>`}`
        }`,
    })}
    ${arrow(
      [
        [m.middle, y + 48],
        [m.middle, y + 30],
      ],
      { concept: CONCEPTS[sub.name], label: `added ${i}` },
    )}
    <text class="soft number" x=${m.middle + 10} y=${y + 43} data-added=${sub.added}>adds ${number(sub.added, 1)}</text>
    ${box({ x: m.x, y: y + 4, width: m.box, height: 26, label: post ? "Add & norm" : "Add (norm stands before)", name: `${path}.${addNorm}`, count: parameterCount(view, `${path}.${addNorm}`), concept: "neutral", open: () => jump("residual") })}
    ${
      sub.name === "cross_attention"
        ? svg`${arrow(
            [
              [m.width - 8, y + 72],
              [m.x + m.box + 4, y + 72],
            ],
            { concept: "key", label: "memory" },
          )}<text x=${m.width - 8} y=${y + 62} text-anchor="end" class="soft" style="font-size:11.5px">${view.narrow ? "source" : "keys and values of the source"}</text>`
        : nothing
    }`;
}

export function layerScene(view) {
  const subs = sublayers(view);
  const width = view.narrow ? 360 : 760;
  const m = {
    width,
    box: view.narrow ? 250 : 420,
    x: view.narrow ? 34 : 120,
    bottom: 46 + BLOCK * subs.length,
  };
  m.middle = m.x + m.box / 2;
  const token = piece(view.trace.queries(view.selection.role)[view.selection.token]);
  return html`<svg
    viewBox="0 0 ${width} ${m.bottom + 34}"
    style="width:100%;max-width:${width}px"
    role="group"
    aria-label="Layer ${view.selection.layer + 1} of the ${stackOf(view)}, from the bottom up. Boxes open."
  >
    ${subs.map((sub, i) => block(view, m, sub, i))}
    ${arrow(
      [
        [m.middle, 50],
        [m.middle, 30],
      ],
      { label: "out" },
    )}
    <text x=${m.middle} y="20" text-anchor="middle" class="soft">to the layer above</text>
    <text x=${m.middle} y=${m.bottom + 22} text-anchor="middle">the stream of “${token}”</text>
  </svg>`;
}
