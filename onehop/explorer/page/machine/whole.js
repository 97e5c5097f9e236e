// The whole machine: figure 1 of the paper with this translation in it.

import { html, nothing, svg } from "onehop/vendor/lit-html.js";
import { range } from "onehop/maths.js";
import {
  activeShare,
  arrow,
  box,
  headCells,
  parameterCount,
  tokenCells,
  zoom,
} from "onehop/machine/parts.js";
import { scrollTo } from "onehop/scrolling.js";
import { clipped, percent, piece } from "onehop/format.js";

/** The parts that each related model keeps. */
export const FAMILY = {
  transformer: { name: "Transformer", keeps: ["encoder", "cross", "decoder", "source", "target"] },
  bert: { name: "BERT", keeps: ["encoder", "source"] },
  gpt: { name: "GPT", keeps: ["decoder", "target"] },
  vit: { name: "ViT", keeps: ["encoder", "source"] },
};

const jump = (id) => scrollTo(document.getElementById(`figure-${id}`));

function measures(view) {
  const narrow = view.narrow;
  const layers = Math.max(view.trace.layers("encoder"), view.trace.layers("decoder"));
  const [width, encoder, decoder, gap] = narrow ? [360, 114, 160, 24] : [880, 290, 400, 60];
  const pitch = narrow ? 42 : 48;
  const top = 164;
  return {
    narrow,
    width,
    encoder,
    decoder,
    gap,
    pitch,
    top,
    layers,
    bottom: top + pitch * layers,
    left: narrow ? 10 : 20,
    height: top + pitch * layers + 150,
  };
}

/** How a layer's box is divided: the left edge and width of its cells, and the width of its neurons' bar. */
function division(m, stack, width) {
  const [inner, bar] = m.narrow ? [18, 14] : [26, 44];
  return {
    inner,
    bar,
    room: (width - inner - bar - (m.narrow ? 10 : 22)) / (stack === "decoder" ? 2 : 1),
  };
}

/** The labels above a stack's columns. */
function columns(m, stack, x, width) {
  const { inner, bar, room } = division(m, stack, width);
  const heads =
    stack === "decoder"
      ? [
          ["self", x + inner],
          ["cross", x + inner + room + (m.narrow ? 9 : 32)], // beside the arrow in the middle
        ]
      : [["self", x + inner]];
  return [...heads, [m.narrow ? "ffn" : "neurons", x + width - bar - 8]];
}

/** One layer of a stack: its number, its heads as cells, its neurons as a bar. */
function layerBox(view, m, stack, layer, x, width, grey) {
  const y = m.bottom - m.pitch * (layer + 1);
  const height = m.pitch - 14;
  const cross = stack === "decoder";
  const { inner, bar, room } = division(m, stack, width);
  const index = cross ? view.selection.step : view.selection.source;
  const fires = activeShare(view, stack, layer, index);
  const maxActive = m.maxActive || 1;
  const cells = { y: y + 7, height: height - 14 };
  return box({
    x,
    y,
    width,
    height,
    grey,
    name: `${stack}.layers.${layer}`,
    label: "",
    count: null,
    concept: cross ? "output" : "query",
    open: (event) =>
      zoom(view, event, "layer", {
        layer,
        role: cross
          ? view.selection.role === "encoder"
            ? "decoder"
            : view.selection.role
          : "encoder",
      }),
    tip: `${stack}, layer ${layer + 1}: open it`,
    inside: svg`<text x=${x + 8} y=${y + height / 2 + 4.5} style="font-size:12.5px" font-weight="600">${layer + 1}</text>
      ${headCells(view, { role: stack, layer, x: x + inner, width: room - 4, ...cells })}
      ${cross ? headCells(view, { role: "cross", layer, x: x + inner + room, width: room - 4, grey: grey === "cross", ...cells }) : nothing}
      <rect x=${x + width - bar - 8} y=${cells.y} width=${bar} height=${cells.height} fill="var(--sunken)" rx="2" />
      ${fires === null ? nothing : svg`<rect x=${x + width - bar - 8} y=${cells.y} width=${(bar * fires) / maxActive} height=${cells.height} fill="var(--value)" rx="2" data-fires=${fires} />`}`,
  });
}

/** A stack: its frame, the arrow through all layers, and the residual connections beside it. */
function stack(view, m, name, x, width, grey) {
  const n = view.trace.layers(name);
  const top = m.bottom - m.pitch * n;
  const middle = x + width / 2;
  return svg`
    ${range(n).map((layer) => {
      const y = m.bottom - m.pitch * (layer + 1);
      return svg`${arrow(
        [
          [middle, y + m.pitch],
          [middle, y + m.pitch - 12],
        ],
        { grey, flow: false },
      )}
        <path class=${grey ? "grey" : ""} d="M${middle} ${y + m.pitch - 5}H${x - 7}V${y - 5}H${middle}" fill="none" stroke="var(--rule-strong)" stroke-dasharray="3 3" data-residual=${layer} />`;
    })}
    ${range(n).map((layer) => layerBox(view, m, name, layer, x, width, grey))}
    <g class=${grey ? "grey" : ""}>
      <text x=${x} y=${top - 26} style="font-size:13px" font-weight="600">${name === "encoder" ? "Encoder" : "Decoder"}</text>
      ${columns(m, name, x, width).map(([label, at]) => svg`<text class="soft" x=${at} y=${top - 10} style="font-size:11.5px">${label}</text>`)}
    </g>`;
}

function inputs(view, m, side, x, width, grey) {
  const target = side === "target";
  const tokens = target ? view.trace.target.input_tokens : view.trace.source.tokens;
  const [y, middle] = [m.bottom + 10, x + width / 2];
  const room = m.narrow ? 38 : 110; // of the box “Positions”
  return svg`
    ${arrow(
      [
        [middle, y + 84],
        [middle, y + 70],
      ],
      { grey, flow: false },
    )}
    ${box({ x, y: y + 40, width, height: 28, grey, name: `${side}.embedding`, label: m.narrow ? "Embedding" : `${target ? "Target" : "Source"} embedding`, count: m.narrow ? null : parameterCount(view, target && !view.trace.settings.tied ? "target_embedding" : "embedding"), concept: "neutral", open: () => jump("embeddings") })}
    ${arrow(
      [
        [middle, y + 40],
        [middle, y + 26],
      ],
      { grey, flow: false },
    )}
    <g class=${grey ? "grey" : ""}><circle cx=${middle} cy=${y + 18} r="8" fill="var(--panel)" stroke="var(--rule-strong)" /><text x=${middle} y=${y + 22.5} text-anchor="middle" style="font-size:14px">+</text></g>
    ${box({ x: target ? x + width - room : x, y: y + 6, width: room, height: 24, grey, name: `${side}.positions`, label: m.narrow ? "Pos." : "Positions", text: m.narrow ? 11.5 : 12.5, concept: "position", open: () => jump("positions") })}
    <path class=${grey ? "grey" : ""} d="M${target ? x + width - room : x + room} ${y + 18}H${middle + (target ? 8 : -8)}" stroke="var(--position)" fill="none" />
    ${arrow(
      [
        [middle, y + 10],
        [middle, m.bottom - 12],
      ],
      { grey, flow: true, label: `${side} in` },
    )}
    <g class=${grey ? "grey" : ""}>${tokenCells(view, side, { x, y: y + 86, width, tokens, index: target ? view.selection.step : view.selection.source })}</g>`;
}

/** The logit lens: what each decoder layer would write. */
function lensWords(view, m, x) {
  const { step } = view.selection;
  return view.trace.json.lens.map((layer, l) => {
    const first = layer[step].top[0];
    const y = m.bottom - m.pitch * (l + 1) + (m.pitch - 14) / 2;
    return svg`<text x=${x} y=${y + 4} style="font-size:${m.narrow ? 11.5 : 12.5}px" font-weight="600" data-lens=${first.token} .tip=${`after layer ${l + 1}: ${piece(first.token)} ${percent(first.p, 1)}`}>${clipped(first.token, m.narrow ? 5 : 9)}${m.narrow ? "" : svg`<tspan class="soft" font-weight="400" dx="4">${percent(first.p, 0)}</tspan>`}</text>`;
  });
}

/** The largest share of active neurons of any layer, which scales the bars. */
const maxActiveShare = (view) =>
  Math.max(
    ...[
      ["encoder", view.selection.source],
      ["decoder", view.selection.step],
    ].flatMap(([stack, index]) =>
      range(view.trace.layers(stack)).map((layer) => activeShare(view, stack, layer, index) ?? 0),
    ),
  );

export function machineScene(view) {
  const m = { ...measures(view), maxActive: maxActiveShare(view) };
  const { keeps } = FAMILY[view.dial("machine.family", "transformer")] ?? FAMILY.transformer;
  const isMissing = (part) => !keeps.includes(part);
  const { step } = view.selection;
  const current = view.trace.steps[step];
  const left = m.left;
  const right = left + m.encoder + m.gap;
  const lens = right + m.decoder + (m.narrow ? 5 : 8);
  const [middleE, middleD] = [left + m.encoder / 2, right + m.decoder / 2];
  const topE = m.bottom - m.pitch * view.trace.layers("encoder");
  const topD = m.bottom - m.pitch * view.trace.layers("decoder");
  const leaves = m.narrow ? left + 0.62 * m.encoder : middleE; // beside the name of the stack
  const bus = right - m.gap / 2 - 2; // the memory, which every decoder layer reads
  const back = m.width - (m.narrow ? 3 : 6);
  const embedding = parameterCount(view, "embedding");
  const isEncoderOnly = isMissing("decoder");
  const outX = isEncoderOnly ? left : right;
  const outW = isEncoderOnly ? m.encoder : m.decoder;
  const outMiddle = isEncoderOnly ? middleE : middleD;
  return html`<svg
    viewBox="0 0 ${m.width} ${m.height}"
    style="width:100%;max-width:${m.width}px"
    role="group"
    aria-label="The machine: source tokens enter at the lower left, what was written at the lower right, the next word leaves at the top right. Boxes open."
  >
    ${stack(view, m, "encoder", left, m.encoder, isMissing("encoder"))}
    ${inputs(view, m, "source", left, m.encoder, isMissing("source"))}
    ${arrow(
      [
        [leaves, topE - 5],
        [leaves, topE - 42],
        [bus, topE - 42],
        [bus, m.bottom - m.pitch + (m.pitch - 14) / 2],
      ],
      { grey: isMissing("cross"), concept: "key", label: "memory", head: false },
    )}
    ${range(view.trace.layers("decoder")).map((layer) => {
      const y = m.bottom - m.pitch * (layer + 1) + (m.pitch - 14) / 2;
      return arrow(
        [
          [bus, y],
          [right - 9, y],
        ],
        { grey: isMissing("cross"), concept: "key", flow: false, label: `cross ${layer}` },
      );
    })}
    ${stack(view, m, "decoder", right, m.decoder, isMissing("decoder"))}
    ${inputs(view, m, "target", right, m.decoder, isMissing("target"))}
    <g class=${isMissing("decoder") ? "grey" : ""}>${lensWords(view, m, lens)}</g>
    ${arrow(
      [
        [outMiddle, (isEncoderOnly ? topE : topD) - 5],
        [outMiddle, 114],
      ],
      { label: "out" },
    )}
    ${box({ x: outX, y: 84, width: outW, height: 28, name: "linear", label: "Linear", count: m.narrow ? null : view.trace.settings.tied ? embedding : parameterCount(view, "output"), open: () => jump("lens") })}
    ${arrow(
      [
        [outMiddle, 84],
        [outMiddle, 74],
      ],
      { flow: false },
    )}
    ${box({ x: outX, y: 44, width: outW, height: 28, name: "softmax", label: "Softmax", open: () => jump("beam") })}
    ${arrow(
      [
        [outMiddle, 44],
        [outMiddle, 32],
      ],
      { flow: false },
    )}
    ${
      isEncoderOnly
        ? svg`<text x=${outMiddle} y="22" text-anchor="middle" class="soft">another task's answer</text>`
        : svg`<text x=${outMiddle} y="24" text-anchor="middle" style="font-size:15px" data-next=${current.chosen.token}><tspan font-weight="700" style="fill:var(--output-ink)">${clipped(current.chosen.token, 12)} ${percent(current.chosen.p, 0)}</tspan><tspan style="font-size:12px;fill:var(--soft)">${current.top
            .filter((c) => c.id !== current.chosen.id)
            .slice(0, m.narrow ? 1 : 2)
            .map(
              (c) => svg`<tspan dx="10">${piece(c.token)} ${percent(c.p, 0)}</tspan>`,
            )}</tspan></text>
        ${arrow(
          [
            [right + m.decoder, 20],
            [back, 20],
            [back, m.bottom + 104],
            [right + m.decoder + 2, m.bottom + 104],
          ],
          { concept: "output", label: "fed back" },
        )}`
    }
    ${m.narrow ? nothing : svg`<text class="soft" x=${back - 6} y=${m.bottom + 122} text-anchor="end" style="font-size:11.5px">fed back as the next input</text>`}
  </svg>`;
}
