// Fields of a trace as pure functions, as in onehop.interpret.trace_fields and embedding_space.

import { topK } from "./search.js";
import { softmax } from "./transformer.js";

const CLOUD = 600;
const SPECIAL_TOKENS = 4; // padding, unknown, start and end
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

/** Tensors as the page reads them: headers with offsets, and all data in one byte array. */
export function pack(tensors) {
  const entries = Object.entries(tensors);
  const headers = {};
  let offset = 0;
  for (const [name, { axes, shape, data }] of entries) {
    headers[name] = { axes, shape, type: "float32", offset, bytes: data.byteLength };
    offset += data.byteLength;
  }
  const blob = new Uint8Array(offset);
  for (const [name, { data }] of entries)
    blob.set(new Uint8Array(data.buffer, data.byteOffset, data.byteLength), headers[name].offset);
  return { tensors: headers, blob };
}

export const range = (n) => Array.from({ length: n }, (_, i) => i);

export function concatenate(arrays) {
  const joined = new Float32Array(arrays.reduce((sum, a) => sum + a.length, 0));
  let offset = 0;
  for (const array of arrays) {
    joined.set(array, offset);
    offset += array.length;
  }
  return joined;
}

export function transposed(rows) {
  const columns = new Float32Array(rows.length * rows[0].length);
  rows.forEach((row, i) => row.forEach((x, j) => (columns[j * rows.length + i] = x)));
  return columns;
}

export function vectorLength(vector) {
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

/** For each attention, the names of the tensors that its queries, and its keys and values, are computed from. */
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

/** The cross-attention head that gives most weight to the aligned token of each written one. */
export function aligner({ n_decoder_layers, n_heads }, recorder) {
  const weights = range(n_decoder_layers).map((i) =>
    recorder.get(`decoder.layers.${i}.cross_attention.weights`),
  );
  const [, , queries, keys] = weights[0].shape;
  const at = (layer, head, query, key) =>
    weights[layer].data[(head * queries + query) * keys + key];
  const aligning = Math.max(n_decoder_layers - 2, 0);
  const aligned = range(queries).map((query) => {
    const mean = range(keys).map((key) =>
      range(n_heads).reduce((sum, head) => sum + at(aligning, head, query, key), 0),
    );
    return topK(mean, 1)[0];
  });
  const all = range(n_decoder_layers).map((layer) =>
    range(n_heads).map(
      (head) => aligned.reduce((sum, key, query) => sum + at(layer, head, query, key), 0) / queries,
    ),
  );
  const best = topK(all.flat(), 1)[0];
  const [layer, head] = [Math.floor(best / n_heads), best % n_heads];
  return { role: "cross", layer, head, share: all[layer][head], all };
}

/** The logit lens: the predictions if a decoder layer were the last. */
export function logitLens(model, recorder, layer, candidates, choice) {
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
      top: topK(row, Math.min(LENS_TOP, width)).map((id) => choice(id, row[id])),
    };
  });
}

const ADDED = {
  self: ["self_attention", "projection"],
  cross: ["cross_attention", "projection"],
  feed: ["feed_forward", "output"],
};

/** For each sub-layer the lengths of the stream's vectors and of the added ones, and their cosine. */
export function residualAdditions(recorder) {
  const additions = [];
  for (const [name, stream] of recorder) {
    const parts = name.match(
      /^((encoder|decoder)\.layers\.(\d+))\.(self|cross|feed)_add_norm\.skip$/,
    );
    if (!parts) continue;
    const [, path, stack, layer, kind] = parts;
    const [sublayer, quantity] = ADDED[kind];
    const added = recorder.get(`${path}.${sublayer}.${quantity}`);
    const d = stream.shape.at(-1);
    const rows = range(stream.shape[1]).map((i) =>
      [stream, added].map(({ data }) => data.subarray(i * d, (i + 1) * d)),
    );
    const cosine = ([a, b]) =>
      a.reduce((sum, x, i) => sum + x * b[i], 0) /
      Math.max(vectorLength(a) * vectorLength(b), 1e-8);
    additions.push({
      name: `${path}.${sublayer}`,
      stack,
      layer: Number(layer),
      sublayer,
      stream: rows.map(([a]) => vectorLength(a)),
      added: rows.map(([, b]) => vectorLength(b)),
      cosine: rows.map(cosine),
    });
  }
  return additions;
}

/** The variance of q·k in every head, and of the components of q and k. */
export function scoreVariance(recorder) {
  const variances = {};
  for (const name of recorder.keys()) {
    if (!name.endsWith(".scores")) continue;
    const path = name.slice(0, -".scores".length);
    const part = (kind, head) => {
      const { shape, data } = recorder.get(`${path}.${kind}`);
      const size = data.length / shape[1];
      return variance(data.subarray(head * size, (head + 1) * size));
    };
    variances[path] = range(recorder.get(name).shape[1]).map((head) =>
      Object.fromEntries(["scores", "q", "k"].map((kind) => [kind, part(kind, head)])),
    );
  }
  return variances;
}

/** An embedding matrix with its two principal components, which were computed when the site was built. */
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

  /** A vector's point on the plane. For scaled embeddings the mean is scaled, too. */
  project(vector, scale = 1) {
    const point = [0, 0];
    vector.forEach((x, i) => {
      point[0] += (x - scale * this.mean[i]) * this.plane[i][0];
      point[1] += (x - scale * this.mean[i]) * this.plane[i][1];
    });
    return point;
  }

  /** The most frequent pieces, which were merged first, as a background. */
  cloudIds = () => range(this.#size).slice(SPECIAL_TOKENS + 256, SPECIAL_TOKENS + 256 + CLOUD);
  cloud = () =>
    (this.points ??= this.cloudIds().map((id) => this.project(this.#weights.row(this.matrix, id))));

  /** For each id the pieces with the largest cosine, without itself and the special tokens. */
  nearest(ids, token) {
    this.#norms ??= Float32Array.from(range(this.#size), (id) =>
      Math.max(vectorLength(this.#weights.row(this.matrix, id)), 1e-12),
    );
    const norms = this.#norms;
    const count = Math.min(NEIGHBOURS, this.#size - SPECIAL_TOKENS - 1);
    const rows = concatenate(ids.map((id) => this.#weights.row(this.matrix, id)));
    const products = this.#weights.linear(rows, this.matrix);
    return ids.map((own, i) => {
      const cosines = products
        .subarray(i * this.#size, (i + 1) * this.#size)
        .map((x, id) => (id < SPECIAL_TOKENS || id === own ? -2 : x / norms[id] / norms[own]));
      return topK(cosines, count).map((id) => ({
        id,
        token: token(id),
        cosine: cosines[id],
        xy: this.project(this.#weights.row(this.matrix, id)),
      }));
    });
  }
}
