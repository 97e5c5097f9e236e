import { html, nothing } from "onehop/vendor/lit-html.js";
import { opening } from "onehop/frame.js";
import { range } from "onehop/maths.js";
import { count, number, short } from "onehop/text.js";

export const id = "stack";
export const item = 13;
export const title = "The whole machine, with its parameters";
export const needs = [];

const size = (view, box) => view.trace.model.boxes[box] ?? 0;

const WHAT = {
  self_attention: ["Self-attention", "Every position gathers from every other: W^Q, W^K and W^V make the vectors, W^O mixes the heads."],
  cross_attention: ["Cross-attention", "The translation asks, the source answers: queries from here, keys and values from the encoder's output."],
  self_add_norm: ["Add & norm", "The sub-layer's result is added to what came in; the norm brings the sum back to a steady size."],
  cross_add_norm: ["Add & norm", "The same around the cross-attention."],
  feed_forward: ["Feed-forward", "Each position on its own: widen, set negatives to zero, narrow again."],
  feed_add_norm: ["Add & norm", "The same around the feed-forward network."],
};
const ORDER = { encoder: ["self_attention", "self_add_norm", "feed_forward", "feed_add_norm"], decoder: ["self_attention", "self_add_norm", "cross_attention", "cross_add_norm", "feed_forward", "feed_add_norm"] };

function box(view, name, label, parameters, inside) {
  const opened = (view.dial("stack.open", "") || "").split(" ").filter(Boolean);
  const open = opened.includes(name);
  const turn = () => view.turn("stack.open", (open ? opened.filter((n) => n !== name) : [...opened, name]).join(" "));
  return html`<button type="button" class="box-button" data-box=${name} aria-expanded=${open} @click=${turn}>${label}<span class="count">${parameters === null ? "" : short(parameters)}</span></button>
    ${open ? html`<div class="opened">${inside()}</div>` : nothing}`;
}

function matrices(view, path) {
  const own = Object.entries(view.trace.model.boxes).filter(([name]) => name.startsWith(`${path}.`) && /\.(weight|bias)$/.test(name));
  return html`<ul class="references" style="margin:.3rem 0">${own.map(([name, n]) => html`<li><code>${name.slice(path.length + 1)}</code> ${count(n)}</li>`)}</ul>`;
}

function layer(view, stack, index) {
  const path = `${stack}.layers.${index}`;
  return box(view, path, `Layer ${index + 1}`, size(view, path), () =>
    ORDER[stack].map((part) => {
      const [name, words] = WHAT[part];
      return html`<div style="margin:.35rem 0">${box(view, `${path}.${part}`, name, size(view, `${path}.${part}`), () => html`<p style="margin:.2rem 0">${words}</p>${matrices(view, `${path}.${part}`)}`)}</div>`;
    }),
  );
}

function ratio(view, stack) {
  const path = `${stack}.layers.0`;
  const attention = size(view, `${path}.self_attention`) + size(view, `${path}.cross_attention`);
  return size(view, `${path}.feed_forward`) / attention;
}

function column(view, stack, input, top) {
  return html`<div style="display:grid;gap:.4rem;align-content:end">
    ${top}
    <div style="border:1px solid var(--rule);border-radius:8px;padding:.7rem .8rem">
      <h4>${stack === "encoder" ? "Encoder" : "Decoder"} <span class="numbers" style="float:right;font-weight:400">${short(size(view, stack))}</span></h4>
      <div style="display:grid;gap:.3rem">${range(view.trace.layers(stack)).reverse().map((i) => html`<div>${layer(view, stack, i)}</div>`)}</div>
    </div>
    ${input}
  </div>`;
}

export function draw(view) {
  const s = view.trace.settings;
  const embedding = size(view, "embedding");
  const tied = s.tied;
  const side = (name, words) => html`<div>
    ${box(view, `${name}.positions`, "Add positions", size(view, `${name}_input`), () => html`<p style="margin:.2rem 0">${s.positions === "learned" ? "Learned, one vector a position." : "Sines and cosines: a formula, no parameters."}</p>`)}
    <div style="height:.4rem"></div>
    ${box(view, `${name}.embedding`, `${words} embedding`, embedding, () => html`<p style="margin:.2rem 0">${count(view.trace.model.vocab_size)} pieces × ${s.d_model} numbers, times √${s.d_model}. ${tied ? "The one matrix." : ""}</p>`)}
  </div>`;
  const output = html`<div>
    ${box(view, "softmax", "Softmax", 0, () => html`<p style="margin:.2rem 0">Scores of all ${count(view.trace.model.vocab_size)} pieces become probabilities of the next one.</p>`)}
    <div style="height:.4rem"></div>
    ${box(view, "linear", "Linear", tied ? embedding : size(view, "output"), () => html`<p style="margin:.2rem 0">${tied ? html`The embedding matrix again, turned round. To read a piece and to write one are mirror images: a piece's score is how far the final vector points along its embedding.` : "A matrix of its own."}</p>`)}
  </div>`;
  return html`
    <div class="columns">${column(view, "encoder", side("source", "Source"), nothing)}${column(view, "decoder", side("target", "Target"), output)}</div>
    <p class="reading">Feed-forward against attention in one layer: <strong data-ratio="encoder">${number(ratio(view, "encoder"), 2)}</strong> times the parameters in the
      encoder, <strong data-ratio="decoder">${number(ratio(view, "decoder"), 2)}</strong> in the decoder, which has two attentions.
      ${tied ? html`The matrix of ${short(embedding)} stands in three places and is counted once.` : ""}
      In all: <strong>${count(view.trace.model.parameters)}</strong> parameters.</p>`;
}

export const caption = (view) => html`Read from the bottom. Click a box to open it in place. ${view.trace.settings.norm === "pre" ? "This model normalises before each sub-layer (pre-norm) and once more after each stack." : "This model normalises after each addition, as the paper does (post-norm)."}`;

export const table = (view) => ({ columns: ["box", "parameters"], rows: Object.entries(view.trace.model.boxes).filter(([name]) => !/\.(weight|bias)$/.test(name)) });

export const python = (view) => `${opening(view)}boxes = trace.header["model"]["boxes"]
rows = [[name, count] for name, count in boxes.items() if not name.endswith((".weight", ".bias"))]`;
