// A recorded translation, passed through the model once more with something changed, as onehop.interpret.reruns does it.

import { editTap, parse } from "./edits.js";
import { range } from "./fields.js";
import { largest, logSumOf } from "./search.js";
import { repeated, values } from "./transformer.js";

const TOP = 2;
const ROLES = ["encoder", "decoder", "cross"];

/** At each position of each batch row the logits, and how probable an id is: found[row][step].logProb(id). */
function choices({ shape: [rows, steps, width], data }) {
  return range(rows).map((row) =>
    range(steps).map((step) => {
      const at = (row * steps + step) * width;
      const logits = data.subarray(at, at + width);
      const { most, log } = logSumOf(logits);
      return { logits, logProb: (id) => logits[id] - most - log };
    }),
  );
}

/** What the causal mask hides: how probable each token becomes that the decoder can already see. */
export function leak({ model, inputs, outputs, edits, memory, recorder }) {
  if (edits.some((edit) => edit.name === "mask")) return null;
  const unmasked = new Map();
  const edit = editTap([...edits, parse("mask=off")], model.settings);
  const tap = (name, raw) => {
    const value = edit(name, raw);
    if (name.endsWith("self_attention.weights")) unmasked.set(name, value);
    return value;
  };
  const open = model.logits(model.decode([inputs], memory, tap), tap);
  const [before, after] = [recorder.get("logits"), open].map((logits) =>
    choices(logits)[0].map(({ logProb }, step) => Math.exp(logProb(outputs[step]))),
  );
  const future_weight = {};
  for (const [name, value] of unmasked)
    future_weight[name.slice(0, -".weights".length)] = futureWeight(value);
  return {
    probability: before.map((masked, i) => ({ masked, unmasked: after[i] })),
    future_weight,
  };
}

/** For each head the weight that a position gives to those behind it, on average. */
function futureWeight({ shape: [, heads, length], data }) {
  return range(heads).map((head) => {
    let sum = 0;
    for (let i = 0; i < length; i++)
      for (let j = i + 1; j < length; j++) sum += data[(head * length + i) * length + j];
    return sum / length;
  });
}

/** Every attention of a model, in the order of computation. */
export function attentions({ n_encoder_layers: encoder, n_decoder_layers: decoder }) {
  const layers = { encoder, decoder, cross: decoder };
  return ROLES.flatMap((role) => range(layers[role]).map((layer) => [role, layer]));
}

/** Switch every head off in turn; an attention's heads are one batch, a row each. */
export async function* headsOff(recording, token, each) {
  const all = attentions(recording.model.settings);
  yield { attentions: all.length };
  const { outputs, recorder } = recording;
  const plain = choices(recorder.get("logits"))[0].map((at, step) => at.logProb(outputs[step]));
  for (const [role, layer] of all) {
    await each();
    yield oneAttention(recording, role, layer, plain, token);
  }
}

/** The heads of one attention. Layers below it are not computed again: its own layer's input was recorded. */
function oneAttention(recording, role, layer, plain, token) {
  const { model, edits, outputs } = recording;
  const heads = model.settings.n_heads;
  const stack = role === "encoder" ? "encoder" : "decoder";
  const name = `${stack}.layers.${layer}.${role === "cross" ? "cross" : "self"}_attention.head_outputs`;
  const edit = editTap(edits, model.settings);
  const tap = (path, raw) => (path === name ? withoutOwnHead(edit(path, raw)) : edit(path, raw));
  const rows = (stack, layer) => repeated(entering(recording, stack, layer), heads);
  const memory =
    role === "encoder"
      ? model.stack("encoder", rows("encoder", layer), {}, tap, layer)
      : recording.memory;
  const first = role === "encoder" ? 0 : layer;
  const options = { causal: true, memory };
  const states = model.stack("decoder", rows("decoder", first), options, tap, first);
  const found = choices(model.logits(states, tap));
  const rounded = (x) => Number(x.toFixed(6));
  return {
    role,
    layer,
    effect: found.map((steps) =>
      steps.map(({ logProb }, step) => rounded(logProb(outputs[step]) - plain[step])),
    ),
    top: found.map((steps) =>
      steps.map(({ logits, logProb }) =>
        largest(logits, TOP).map((id) => [token(id), rounded(Math.exp(logProb(id)))]),
      ),
    ),
  };
}

/** Row i of the batch without head i. */
function withoutOwnHead({ shape, data }) {
  const [batch, heads] = shape;
  const size = data.length / (batch * heads);
  const left = data.slice();
  for (let i = 0; i < batch; i++) left.fill(0, (i * heads + i) * size, (i * heads + i + 1) * size);
  return values(shape, left);
}

/** What a layer was given. */
function entering({ model, recorder }, stack, layer) {
  if (!layer) return recorder.get(`${stack === "encoder" ? "source" : "target"}_input.positioned`);
  const last = model.settings.norm === "pre" ? "residual" : "norm";
  return recorder.get(`${stack}.layers.${layer - 1}.feed_add_norm.${last}`);
}
