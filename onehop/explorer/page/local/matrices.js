// Matrices of the model that the page asks for by themselves.

import { editTap, parse } from "./edits.js";
import { joined, length, pack, range, transposed } from "./fields.js";
import { largest } from "./search.js";
import { Trouble } from "./trouble.js";

const [TOWARDS, AWAY] = [6, 3];

/** What some neurons of a feed-forward network write: how much, and in the decoder towards which pieces. */
export function neurons(model, stack, layer, places, token) {
  const { weights, output, settings } = model;
  const layers = settings[`n_${stack}_layers`];
  if (layer >= layers || places.some((place) => place >= settings.d_ff))
    throw new Trouble(
      `There is no neuron ${Math.max(...places)} in layer ${layer} of the ${stack}. Layers count from 0 to ${layers - 1}.`,
    );
  return places.map((neuron) => {
    const written = weights.column(`${stack}.layers.${layer}.feed_forward.w_2.weight`, neuron);
    const found = { neuron, norm: length(written) };
    if (stack === "encoder") return found;
    const scores = weights.linear(written, output);
    const named = (id) => ({ token: token(id), score: scores[id] });
    return {
      ...found,
      towards: largest(scores, TOWARDS).map(named),
      away: largest(
        scores.map((x) => -x),
        AWAY,
      ).map(named),
    };
  });
}

/** One head's own W^Q, W^K, W^V and W^O, as the paper writes them: q = x W^Q. */
export function headMatrices({ settings, weights }, role, layer, head) {
  editTap([parse(`head=off@${role}.${layer}.${head}`)], settings);
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
        data: weights.plain(bias).slice(head * width, (head + 1) * width),
      };
  }
  const columns = range(d_v).map((i) => weights.column(`${path}.w_o.weight`, head * d_v + i));
  tensors.w_o = { axes: ["d_v", "d_model"], shape: [d_v, d_model], data: joined(columns) };
  return { role, layer, head, ...pack(tensors) };
}
