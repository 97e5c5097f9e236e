// Parts of the model's weight matrices that figures request separately.

import { editTap, parseEdit } from "./edits.js";
import { concatenate, pack, range, transposed, vectorLength } from "./fields.js";
import { topK } from "./search.js";
import { UserError } from "./errors.js";

const [TOWARDS, AWAY] = [6, 3];

/** The norm of what some feed-forward neurons write, and in the decoder the pieces that it favours and disfavours. */
export function neurons(model, stack, layer, indices, token) {
  const { weights, output, settings } = model;
  const layers = settings[`n_${stack}_layers`];
  if (layer >= layers || indices.some((index) => index >= settings.d_ff))
    throw new UserError(
      `There is no neuron ${Math.max(...indices)} in layer ${layer} of the ${stack}. Layers count from 0 to ${layers - 1}.`,
    );
  return indices.map((neuron) => {
    const column = weights.column(`${stack}.layers.${layer}.feed_forward.w_2.weight`, neuron);
    const result = { neuron, norm: vectorLength(column) };
    if (stack === "encoder") return result;
    const scores = weights.linear(column, output);
    const scored = (id) => ({ token: token(id), score: scores[id] });
    return {
      ...result,
      towards: topK(scores, TOWARDS).map(scored),
      away: topK(
        scores.map((x) => -x),
        AWAY,
      ).map(scored),
    };
  });
}

/** One head's W^Q, W^K, W^V and W^O, in the paper's orientation: q = x W^Q. */
export function headMatrices({ settings, weights }, role, layer, head) {
  editTap([parseEdit(`head=off@${role}.${layer}.${head}`)], settings);
  const { d_model, d_k, d_v } = settings;
  const path = `${role === "encoder" ? "encoder" : "decoder"}.layers.${layer}.${role === "cross" ? "cross" : "self"}_attention`;
  const tensors = {};
  for (const [letter, width, axis] of [
    ["q", d_k, "d_k"],
    ["k", d_k, "d_k"],
    ["v", d_v, "d_v"],
  ]) {
    const rows = range(width).map((i) =>
      weights.row(`${path}.w_${letter}.weight`, head * width + i),
    );
    tensors[`w_${letter}`] = {
      axes: ["d_model", axis],
      shape: [d_model, width],
      data: transposed(rows),
    };
    const bias = `${path}.w_${letter}.bias`;
    if (weights.has(bias))
      tensors[`b_${letter}`] = {
        axes: [axis],
        shape: [width],
        data: weights.floats(bias).slice(head * width, (head + 1) * width),
      };
  }
  const columns = range(d_v).map((i) => weights.column(`${path}.w_o.weight`, head * d_v + i));
  tensors.w_o = { axes: ["d_v", "d_model"], shape: [d_v, d_model], data: concatenate(columns) };
  return { role, layer, head, ...pack(tensors) };
}
