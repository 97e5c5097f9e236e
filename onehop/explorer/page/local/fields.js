// Fields of a trace, each computed from its arguments alone, as onehop.interpret.trace_fields and embedding_space have them.

import { largest } from "./search.js";
import { softmax } from "./transformer.js";

const CLOUD = 600;
const MARKS = 4; // padding, unknown, beginning and end: no words
const NEIGHBOURS = 8;
const LENS_TOP = 3;

const [TOKENS, WEIGHTS] = [
  ["token", "d_model"],
  ["head", "query", "key"],
];
/** The axes of each quantity, by the last part of its name. */
export const AXES = {
  ...Object.fromEntries(
    ["embeddings", "scaled", "positioned", "skip", "residual", "norm", "output"].map((name) => [
      name,
      TOKENS,
    ]),
  ),
  ...Object.fromEntries(
    ["scores", "scaled_scores", "masked_scores", "weights"].map((name) => [name, WEIGHTS]),
  ),
  q: ["head", "query", "d_k"],
  k: ["head", "key", "d_k"],
  v: ["head", "key", "d_v"],
  head_outputs: ["head", "query", "d_v"],
  concatenation: ["query", "h_d_v"],
  projection: ["query", "d_model"],
  hidden: ["token", "d_ff"],
  logits: ["token", "vocabulary"],
};

/** Tensors as the page reads them: where each lies in one run of bytes, and those bytes. */
export function pack(tensors) {
  const entries = Object.entries(tensors);
  const places = {};
  let offset = 0;
  for (const [name, { axes, shape, data }] of entries) {
    places[name] = { axes, shape, type: "float32", offset, bytes: data.byteLength };
    offset += data.byteLength;
  }
  const blob = new Uint8Array(offset);
  for (const [name, { data }] of entries)
    blob.set(new Uint8Array(data.buffer, data.byteOffset, data.byteLength), places[name].offset);
  return { tensors: places, blob };
}

export const range = (n) => Array.from({ length: n }, (_, i) => i);

/** Arrays one behind the other. */
export function joined(arrays) {
  const whole = new Float32Array(arrays.reduce((sum, a) => sum + a.length, 0));
  let at = 0;
  for (const array of arrays) {
    whole.set(array, at);
    at += array.length;
  }
  return whole;
}

/** Rows as one array in which columns come first. */
export function transposed(rows) {
  const whole = new Float32Array(rows.length * rows[0].length);
  rows.forEach((row, i) => row.forEach((x, j) => (whole[j * rows.length + i] = x)));
  return whole;
}

export function length(vector) {
  let sum = 0;
  for (const x of vector) sum += x * x;
  return Math.sqrt(sum);
}

function variance(numbers) {
  let [mean, sum] = [0, 0];
  for (const x of numbers) mean += x / numbers.length;
  for (const x of numbers) sum += (x - mean) ** 2;
  return sum / numbers.length;
}

/** For each attention, the tensors that its queries, and its keys and values, were made from. */
export function attentionInputs({ norm, n_encoder_layers, n_decoder_layers }) {
  const own = norm === "pre" ? "norm" : "skip";
  const memory =
    norm === "pre" ? "encoder.norm" : `encoder.layers.${n_encoder_layers - 1}.feed_add_norm.norm`;
  const inputs = {};
  for (const [stack, layers] of [
    ["encoder", n_encoder_layers],
    ["decoder", n_decoder_layers],
  ])
    for (const path of range(layers).map((i) => `${stack}.layers.${i}`)) {
      const name = `${path}.self_add_norm.${own}`;
      inputs[`${path}.self_attention`] = { query: name, memory: name };
      if (stack === "decoder")
        inputs[`${path}.cross_attention`] = { query: `${path}.cross_add_norm.${own}`, memory };
    }
  return inputs;
}

/** The cross-attention head that gives most weight to the token which the alignment links to each written one. */
export function aligner({ n_decoder_layers, n_heads }, recorder) {
  const weights = range(n_decoder_layers).map((i) =>
    recorder.get(`decoder.layers.${i}.cross_attention.weights`),
  );
  const [, , queries, keys] = weights[0].shape;
  const at = (layer, head, query, key) =>
    weights[layer].data[(head * queries + query) * keys + key];
  const aligning = Math.max(n_decoder_layers - 2, 0);
  const linked = range(queries).map((query) => {
    const mean = range(keys).map((key) =>
      range(n_heads).reduce((sum, head) => sum + at(aligning, head, query, key), 0),
    );
    return largest(mean, 1)[0];
  });
  const all = range(n_decoder_layers).map((layer) =>
    range(n_heads).map(
      (head) => linked.reduce((sum, key, query) => sum + at(layer, head, query, key), 0) / queries,
    ),
  );
  const best = largest(all.flat(), 1)[0];
  const [layer, head] = [Math.floor(best / n_heads), best % n_heads];
  return { role: "cross", layer, head, share: all[layer][head], all };
}

/** After a decoder layer, what would be written if it were the last: read through the output matrix. */
export function lensAfter(model, recorder, layer, candidates, choice) {
  const path = `decoder.layers.${layer}.feed_add_norm`;
  const state =
    model.settings.norm === "pre"
      ? model.norm(recorder.get(`${path}.residual`), "decoder.last_norm")
      : recorder.get(`${path}.norm`);
  const p = softmax(model.logits(state, (_, value) => value));
  const width = p.shape.at(-1);
  return candidates.map((ids, i) => {
    const row = p.data.subarray(i * width, (i + 1) * width);
    return {
      candidates: ids.map((id) => row[id]),
      top: largest(row, Math.min(LENS_TOP, width)).map((id) => choice(id, row[id])),
    };
  });
}

const ADDED = {
  self: ["self_attention", "projection"],
  cross: ["cross_attention", "projection"],
  feed: ["feed_forward", "output"],
};

/** For each sub-layer, how long the stream's vectors are, how long what it adds, and the angle between them. */
export function additions(recorder) {
  const found = [];
  for (const [name, stream] of recorder) {
    const parts = name.match(
      /^((encoder|decoder)\.layers\.(\d+))\.(self|cross|feed)_add_norm\.skip$/,
    );
    if (!parts) continue;
    const [, path, stack, layer, around] = parts;
    const [sublayer, quantity] = ADDED[around];
    const added = recorder.get(`${path}.${sublayer}.${quantity}`);
    const d = stream.shape.at(-1);
    const rows = range(stream.shape[1]).map((i) =>
      [stream, added].map(({ data }) => data.subarray(i * d, (i + 1) * d)),
    );
    const cosine = ([a, b]) =>
      a.reduce((sum, x, i) => sum + x * b[i], 0) / Math.max(length(a) * length(b), 1e-8);
    found.push({
      name: `${path}.${sublayer}`,
      stack,
      layer: Number(layer),
      sublayer,
      stream: rows.map(([a]) => length(a)),
      added: rows.map(([, b]) => length(b)),
      cosine: rows.map(cosine),
    });
  }
  return found;
}

/** The variance of q·k in every head beside that of q's and k's components. */
export function scoreVariance(recorder) {
  const found = {};
  for (const name of recorder.keys()) {
    if (!name.endsWith(".scores")) continue;
    const path = name.slice(0, -".scores".length);
    const part = (kind, head) => {
      const { shape, data } = recorder.get(`${path}.${kind}`);
      const size = data.length / shape[1];
      return variance(data.subarray(head * size, (head + 1) * size));
    };
    found[path] = range(recorder.get(name).shape[1]).map((head) =>
      Object.fromEntries(["scores", "q", "k"].map((kind) => [kind, part(kind, head)])),
    );
  }
  return found;
}

/** An embedding matrix with its two principal components, which were found when the site was written. */
export class Space {
  #weights;
  #norms = null;
  matrix;
  mean;
  plane;
  explained;
  points;

  constructor(weights, { matrix, mean, plane, explained }) {
    this.#weights = weights;
    Object.assign(this, { matrix, mean, plane, explained });
  }

  get #size() {
    return this.#weights.shape(this.matrix)[0];
  }

  /** A vector's point on the plane; of embeddings that were multiplied by `scale`, so is the middle. */
  place(vector, scale = 1) {
    const point = [0, 0];
    vector.forEach((x, i) => {
      point[0] += (x - scale * this.mean[i]) * this.plane[i][0];
      point[1] += (x - scale * this.mean[i]) * this.plane[i][1];
    });
    return point;
  }

  /** The pieces that were merged first, which are the most frequent, as a background. */
  cloudIds = () => range(this.#size).slice(MARKS + 256, MARKS + 256 + CLOUD);
  cloud = () =>
    (this.points ??= this.cloudIds().map((id) => this.place(this.#weights.row(this.matrix, id))));

  /** For each id the pieces with the largest cosine to it, itself and the marks left out. */
  nearest(ids, token) {
    this.#norms ??= Float32Array.from(range(this.#size), (id) =>
      Math.max(length(this.#weights.row(this.matrix, id)), 1e-12),
    );
    const norms = this.#norms;
    const count = Math.min(NEIGHBOURS, this.#size - MARKS - 1);
    const rows = joined(ids.map((id) => this.#weights.row(this.matrix, id)));
    const products = this.#weights.linear(rows, this.matrix);
    return ids.map((own, i) => {
      const cosines = products
        .subarray(i * this.#size, (i + 1) * this.#size)
        .map((x, id) => (id < MARKS || id === own ? -2 : x / norms[id] / norms[own]));
      return largest(cosines, count).map((id) => ({
        id,
        token: token(id),
        cosine: cosines[id],
        xy: this.place(this.#weights.row(this.matrix, id)),
      }));
    });
  }
}
