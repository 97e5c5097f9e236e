// A beam search that records every step's logits, and each row's attention to the source.

import { editTap, invalidatesCache } from "./edits.js";
import { concatenate, range } from "./fields.js";
import { logSoftmax, search } from "./search.js";
import { tensor } from "./transformer.js";

/** Translate ids under edits. `onStep` is awaited before every step and may end the search. */
export async function recordedSearch(model, source, longest, options, edits, onStep) {
  const edit = editTap(edits, model.settings);
  const [logits, attention] = [[], []];
  let layers = [];
  const tap = (name, raw) => {
    const value = edit(name, raw);
    if (name.endsWith("cross_attention.weights")) layers.push(lastRowsAveraged(value));
    if (name === "logits") {
      logits.push(lastRows(value));
      attention.push(layers);
      layers = [];
    }
    return value;
  };
  const step = (invalidatesCache(edits) ? rerunStep : cachedStep)(model, source, tap);
  const next = (tokens, parents) => {
    step(tokens, parents);
    return logits.at(-1).map(logSoftmax);
  };
  return { ...(await search(next, longest, options, onStep)), logits, attention, options };
}

/** A decoding step with a KV cache. */
function cachedStep(model, source, tap) {
  const past = model.startDecoding(source, tap);
  return (tokens, parents) => void model.step(tokens, parents, past, tap);
}

/** A decoding step that recomputes all positions: needed where later tokens change earlier positions. */
function rerunStep(model, source, tap) {
  const memory = model.encode(source, tap);
  let past = [[]];
  return (tokens, parents) => {
    past = tokens.map((token, i) => [...past[parents ? parents[i] : 0], token]);
    const states = model.decode(past, memory, tap);
    const [rows, length, d] = states.shape;
    const last = range(rows).map((row) => {
      const end = (row + 1) * length * d;
      return states.data.subarray(end - d, end);
    });
    model.logits(tensor([rows, 1, d], concatenate(last)), tap);
  };
}

/** The last position of each batch row. */
function lastRows({ shape: [batch, length, width], data }) {
  return range(batch).map((b) => {
    const end = (b + 1) * length * width;
    return data.slice(end - width, end);
  });
}

/** The attention of the last position of each row, averaged over heads. */
function lastRowsAveraged({ shape: [batch, heads, queries, keys], data }) {
  return range(batch).map((b) => {
    const mean = new Float32Array(keys);
    for (let h = 0; h < heads; h++) {
      const at = ((b * heads + h) * queries + queries - 1) * keys;
      for (let i = 0; i < keys; i++) mean[i] += data[at + i] / heads;
    }
    return mean;
  });
}

/** The source attention of every row of every step; rows that a step did not have are zero. */
export function beamAttention(steps) {
  const slots = Math.max(...steps.map((layers) => layers[0].length));
  const [layers, keys] = [steps[0].length, steps[0][0][0].length];
  const data = new Float32Array(steps.length * slots * layers * keys);
  steps.forEach((step, s) =>
    step.forEach((rows, layer) =>
      rows.forEach((row, slot) => data.set(row, ((s * slots + slot) * layers + layer) * keys)),
    ),
  );
  return {
    axes: ["step", "slot", "layer", "key"],
    shape: [steps.length, slots, layers, keys],
    data,
  };
}
