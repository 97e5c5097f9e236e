// Reruns of a recorded translation with something changed, as in onehop.interpret.reruns.

import { editTap, parseEdit } from "./edits.js";
import { range } from "./fields.js";
import { logSumOf, topK } from "./search.js";
import { repeatBatch, tensor } from "./transformer.js";

const TOP = 2;
const ROLES = ["encoder", "decoder", "cross"];

/** For each batch row and position the logits, and a function for the log-probability of an id. */
function distributions({ shape: [rows, steps, width], data }) {
  return range(rows).map((row) =>
    range(steps).map((step) => {
      const at = (row * steps + step) * width;
      const logits = data.subarray(at, at + width);
      const { maximum, log } = logSumOf(logits);
      return { logits, logProb: (id) => logits[id] - maximum - log };
    }),
  );
}

/** What the causal mask prevents: the probability of each token if the decoder could already see it. */
export function maskLeak({ model, inputs, outputs, edits, memory, recorder }) {
  if (edits.some((edit) => edit.name === "mask")) return null;
  const unmasked = new Map();
  const edit = editTap([...edits, parseEdit("mask=off")], model.settings);
  const tap = (name, raw) => {
    const value = edit(name, raw);
    if (name.endsWith("self_attention.weights")) unmasked.set(name, value);
    return value;
  };
  const unmaskedLogits = model.logits(model.decode([inputs], memory, tap), tap);
  const [before, after] = [recorder.get("logits"), unmaskedLogits].map((logits) =>
    distributions(logits)[0].map(({ logProb }, step) => Math.exp(logProb(outputs[step]))),
  );
  const future_weight = {};
  for (const [name, value] of unmasked)
    future_weight[name.slice(0, -".weights".length)] = futureWeight(value);
  return {
    probability: before.map((masked, i) => ({ masked, unmasked: after[i] })),
    future_weight,
  };
}

/** For each head, the mean weight that a position gives to later ones. */
function futureWeight({ shape: [, heads, length], data }) {
  return range(heads).map((head) => {
    let sum = 0;
    for (let i = 0; i < length; i++)
      for (let j = i + 1; j < length; j++) sum += data[(head * length + i) * length + j];
    return sum / length;
  });
}

/** All attentions of a model, in the order of computation. */
function attentions({ n_encoder_layers: encoder, n_decoder_layers: decoder }) {
  const layers = { encoder, decoder, cross: decoder };
  return ROLES.flatMap((role) => range(layers[role]).map((layer) => [role, layer]));
}

/** Ablate every head in turn; the heads of one attention are one batch. */
export async function* headsOff(recording, token, onStep) {
  const all = attentions(recording.model.settings);
  yield { attentions: all.length };
  const { outputs, recorder } = recording;
  const baseline = distributions(recorder.get("logits"))[0].map((at, step) =>
    at.logProb(outputs[step]),
  );
  for (const [role, layer] of all) {
    await onStep();
    yield oneAttention(recording, role, layer, baseline, token);
  }
}

/** The heads of one attention. Lower layers are not recomputed, because this layer's input was recorded. */
function oneAttention(recording, role, layer, baseline, token) {
  const { model, edits, outputs } = recording;
  const heads = model.settings.n_heads;
  const stack = role === "encoder" ? "encoder" : "decoder";
  const name = `${stack}.layers.${layer}.${role === "cross" ? "cross" : "self"}_attention.head_outputs`;
  const edit = editTap(edits, model.settings);
  const tap = (path, raw) => (path === name ? withoutHeadPerRow(edit(path, raw)) : edit(path, raw));
  const rows = (stack, layer) => repeatBatch(layerInput(recording, stack, layer), heads);
  const memory =
    role === "encoder"
      ? model.stack("encoder", rows("encoder", layer), {}, tap, layer)
      : recording.memory;
  const first = role === "encoder" ? 0 : layer;
  const options = { causal: true, memory };
  const states = model.stack("decoder", rows("decoder", first), options, tap, first);
  const positions = distributions(model.logits(states, tap));
  const rounded = (x) => Number(x.toFixed(6));
  return {
    role,
    layer,
    effect: positions.map((steps) =>
      steps.map(({ logProb }, step) => rounded(logProb(outputs[step]) - baseline[step])),
    ),
    top: positions.map((steps) =>
      steps.map(({ logits, logProb }) =>
        topK(logits, TOP).map((id) => [token(id), rounded(Math.exp(logProb(id)))]),
      ),
    ),
  };
}

/** Zero head i in row i of the batch. */
function withoutHeadPerRow({ shape, data }) {
  const [batch, heads] = shape;
  const size = data.length / (batch * heads);
  const rest = data.slice();
  for (let i = 0; i < batch; i++) rest.fill(0, (i * heads + i) * size, (i * heads + i + 1) * size);
  return tensor(shape, rest);
}

function layerInput({ model, recorder }, stack, layer) {
  if (!layer) return recorder.get(`${stack === "encoder" ? "source" : "target"}_input.positioned`);
  const last = model.settings.norm === "pre" ? "residual" : "norm";
  return recorder.get(`${stack}.layers.${layer - 1}.feed_add_norm.${last}`);
}
