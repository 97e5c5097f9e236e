// A search that is watched: every step's logits, and where each row of the beam looked in the source.

import { changesThePast, editTap } from "./edits.js";
import { joined, range } from "./fields.js";
import { logSoftmax, search } from "./search.js";
import { values } from "./transformer.js";

/** Translate ids as the model reads them, under edits. `each` is awaited before every step and may end the search. */
export async function watchedSearch(model, source, longest, options, edits, each) {
  const edit = editTap(edits, model.settings);
  const [logits, looked] = [[], []];
  let layers = [];
  const tap = (name, raw) => {
    const value = edit(name, raw);
    if (name.endsWith("cross_attention.weights")) layers.push(lastRowsAveraged(value));
    if (name === "logits") {
      logits.push(lastRows(value));
      looked.push(layers);
      layers = [];
    }
    return value;
  };
  const step = (changesThePast(edits) ? rerunStep : cachedStep)(model, source, tap);
  const next = (tokens, parents) => {
    step(tokens, parents);
    return logits.at(-1).map(logSoftmax);
  };
  return { ...(await search(next, longest, options, each)), logits, looked, options };
}

/** Each row's keys and values are remembered. */
function cachedStep(model, source, tap) {
  const past = model.begin(source, tap);
  return (tokens, parents) => void model.step(tokens, parents, past, tap);
}

/** Every row's whole past is computed anew: right even where later tokens change it. */
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
    model.logits(values([rows, 1, d], joined(last)), tap);
  };
}

/** The last position of each batch row. */
function lastRows({ shape: [batch, length, width], data }) {
  return range(batch).map((b) => {
    const end = (b + 1) * length * width;
    return data.slice(end - width, end);
  });
}

/** Where the last position of each row looked, its heads averaged. */
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

/** Where every row of every step of the beam looked; rows that a step did not have are zero. */
export function lookedAt(steps) {
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
