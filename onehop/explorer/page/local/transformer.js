// The forward pass of onehop.model.transformer in JavaScript. Each quantity has the same name and passes a tap (name,
// value) → value. Tensors are { shape, data }, batch first.

export const tensor = (shape, data) => ({
  shape,
  data: data ?? new Float32Array(shape.reduce((a, b) => a * b, 1)),
});

export const map = ({ shape, data }, change) => tensor(shape, data.map(change));

const add = (a, b) => map(a, (x, i) => x + b.data[i]);

/** Repeat a tensor along the batch. */
export function repeatBatch({ shape, data }, rows) {
  const out = new Float32Array(rows * data.length);
  for (let row = 0; row < rows; row++) out.set(data, row * data.length);
  return tensor([rows, ...shape.slice(1)], out);
}

/** [batch, length, heads · d] to [batch, heads, length, d]. */
function splitHeads({ shape: [batch, length, width], data }, heads) {
  const d = width / heads;
  const out = tensor([batch, heads, length, d]);
  for (let b = 0; b < batch; b++)
    for (let l = 0; l < length; l++)
      for (let h = 0; h < heads; h++) {
        const from = (b * length + l) * width + h * d;
        out.data.set(data.subarray(from, from + d), ((b * heads + h) * length + l) * d);
      }
  return out;
}

/** [batch, heads, length, d] to [batch, length, heads · d]. */
function mergeHeads({ shape: [batch, heads, length, d], data }) {
  const out = tensor([batch, length, heads * d]);
  for (let b = 0; b < batch; b++)
    for (let h = 0; h < heads; h++)
      for (let l = 0; l < length; l++) {
        const from = ((b * heads + h) * length + l) * d;
        out.data.set(data.subarray(from, from + d), ((b * length + l) * heads + h) * d);
      }
  return out;
}

/** q kᵀ; keys with one batch row are broadcast to all queries. */
function dotProducts(q, k) {
  const [batch, heads, queries, d] = q.shape;
  const [rows, , keys] = k.shape;
  const out = tensor([batch, heads, queries, keys]);
  let index = 0;
  for (let b = 0; b < batch; b++)
    for (let h = 0; h < heads; h++) {
      const first = ((rows === 1 ? 0 : b) * heads + h) * keys * d;
      for (let i = 0; i < queries; i++) {
        const at = ((b * heads + h) * queries + i) * d;
        for (let j = 0; j < keys; j++) {
          let sum = 0;
          for (let c = 0; c < d; c++) sum += q.data[at + c] * k.data[first + j * d + c];
          out.data[index++] = sum;
        }
      }
    }
  return out;
}

/** Weights times v. */
function weightedSum(weights, v) {
  const [batch, heads, queries, keys] = weights.shape;
  const [rows, , , d] = v.shape;
  const out = tensor([batch, heads, queries, d]);
  for (let b = 0; b < batch; b++)
    for (let h = 0; h < heads; h++) {
      const first = ((rows === 1 ? 0 : b) * heads + h) * keys * d;
      for (let i = 0; i < queries; i++) {
        const row = (b * heads + h) * queries + i;
        for (let j = 0; j < keys; j++) {
          const weight = weights.data[row * keys + j];
          if (weight === 0) continue;
          for (let c = 0; c < d; c++) out.data[row * d + c] += weight * v.data[first + j * d + c];
        }
      }
    }
  return out;
}

/** Softmax over the last axis; a row of only −∞ becomes zeros. */
export function softmax({ shape, data }) {
  const width = shape.at(-1);
  const out = tensor(shape);
  for (let at = 0; at < data.length; at += width) {
    let most = -Infinity;
    for (let i = at; i < at + width; i++) if (data[i] > most || data[i] !== data[i]) most = data[i];
    if (most === -Infinity) continue;
    let sum = 0;
    for (let i = at; i < at + width; i++) sum += Math.exp(data[i] - most);
    for (let i = at; i < at + width; i++) out.data[i] = Math.exp(data[i] - most) / sum;
  }
  return out;
}

/** −∞ where a key comes after its query. */
function causalMask({ shape, data }) {
  const [queries, keys] = shape.slice(-2);
  return tensor(
    shape,
    data.map((x, i) => (i % keys > Math.floor(i / keys) % queries ? -Infinity : x)),
  );
}

/** Append the keys or values of new positions to the cached ones. */
function appendPositions(past, more) {
  if (!past) return more;
  const [batch, heads, length, d] = past.shape;
  const extra = more.shape[2];
  const out = tensor([batch, heads, length + extra, d]);
  for (let row = 0; row < batch * heads; row++) {
    const to = row * (length + extra) * d;
    out.data.set(past.data.subarray(row * length * d, (row + 1) * length * d), to);
    out.data.set(more.data.subarray(row * extra * d, (row + 1) * extra * d), to + length * d);
  }
  return out;
}

/** Some rows of a batch. */
function selectRows({ shape, data }, rows) {
  const size = data.length / shape[0];
  const out = tensor([rows.length, ...shape.slice(1)]);
  rows.forEach((row, i) => out.data.set(data.subarray(row * size, (row + 1) * size), i * size));
  return out;
}

/** The error function to seven digits (Abramowitz and Stegun 7.1.26). */
function erf(x) {
  const t = 1 / (1 + 0.3275911 * Math.abs(x));
  const poly =
    ((((1.061405429 * t - 1.453152027) * t + 1.421413741) * t - 0.284496736) * t + 0.254829592) * t;
  return Math.sign(x) * (1 - poly * Math.exp(-x * x));
}

const ACTIVATIONS = {
  relu: (x) => (x < 0 ? 0 : x),
  swish: (x) => x / (1 + Math.exp(-x)),
  gelu: (x) => 0.5 * x * (1 + erf(x / Math.SQRT2)),
};

/** PE(pos, 2i) = sin(pos / 10000^(2i/d)), PE(pos, 2i+1) = cos of the same angle. */
function sinusoids(length, d) {
  const table = new Float32Array(length * d);
  for (let position = 0; position < length; position++)
    for (let i = 0; i < d; i += 2) {
      const angle = position * 10000 ** (-i / d);
      table[position * d + i] = Math.sin(angle);
      table[position * d + i + 1] = Math.cos(angle);
    }
  return table;
}

export class Transformer {
  constructor(settings, weights) {
    this.settings = settings;
    this.weights = weights;
    this.output = settings.tied ? "embedding.weight" : "output.weight";
  }

  /** The position table with at least `length` rows; sinusoids can be extended. */
  positions(side, length) {
    const { d_model: d, positions } = this.settings;
    if (positions === "learned") return this.weights.floats(`${side}_input.positions`);
    if (!(this.table?.length >= length * d)) this.table = sinusoids(2 * length, d);
    return this.table;
  }

  /** Embeddings times √d_model, plus positions from `first` on. */
  input(side, rows, first, tap) {
    const { d_model: d, tied } = this.settings;
    const table = side === "source" || tied ? "embedding.weight" : "target_embedding.weight";
    const length = rows[0].length;
    const embeddings = tensor([rows.length, length, d]);
    rows.flat().forEach((id, i) => embeddings.data.set(this.weights.row(table, id), i * d));
    const root = Math.sqrt(d);
    const embedded = tap(`${side}_input.embeddings`, embeddings);
    const scaled = tap(
      `${side}_input.scaled`,
      map(embedded, (x) => x * root),
    );
    const positions = this.positions(side, first + length);
    return tap(
      `${side}_input.positioned`,
      map(scaled, (x, i) => x + positions[first * d + (i % (length * d))]),
    );
  }

  linear(x, path) {
    const bias = this.weights.has(`${path}.bias`) ? this.weights.floats(`${path}.bias`) : null;
    const data = this.weights.linear(x.data, `${path}.weight`, bias);
    return tensor([...x.shape.slice(0, -1), this.weights.shape(`${path}.weight`)[0]], data);
  }

  norm({ shape, data }, path) {
    const d = shape.at(-1);
    const [gain, bias] = [
      this.weights.floats(`${path}.weight`),
      this.weights.floats(`${path}.bias`),
    ];
    const epsilon = this.settings.norm_epsilon ?? 1e-5;
    const out = tensor(shape);
    for (let at = 0; at < data.length; at += d) {
      let [mean, variance] = [0, 0];
      for (let i = 0; i < d; i++) mean += data[at + i] / d;
      for (let i = 0; i < d; i++) variance += (data[at + i] - mean) ** 2 / d;
      const scale = 1 / Math.sqrt(variance + epsilon);
      for (let i = 0; i < d; i++)
        out.data[at + i] = (data[at + i] - mean) * scale * gain[i] + bias[i];
    }
    return out;
  }

  queries = (x, path, tap) =>
    tap(`${path}.q`, splitHeads(this.linear(x, `${path}.w_q`), this.settings.n_heads));

  keysAndValues(memory, path, tap) {
    const heads = this.settings.n_heads;
    return {
      k: tap(`${path}.k`, splitHeads(this.linear(memory, `${path}.w_k`), heads)),
      v: tap(`${path}.v`, splitHeads(this.linear(memory, `${path}.w_v`), heads)),
    };
  }

  /** Equation 1 in every head, concatenated and projected. */
  attend(q, { k, v }, path, causal, tap) {
    const root = Math.sqrt(q.shape.at(-1));
    const scores = tap(`${path}.scores`, dotProducts(q, k));
    const scaled = tap(
      `${path}.scaled_scores`,
      map(scores, (x) => x / root),
    );
    const maskedScores = tap(`${path}.masked_scores`, causal ? causalMask(scaled) : scaled);
    const weights = tap(`${path}.weights`, softmax(maskedScores));
    const heads = tap(`${path}.head_outputs`, weightedSum(weights, v));
    const concatenated = tap(`${path}.concatenation`, mergeHeads(heads));
    return tap(`${path}.projection`, this.linear(concatenated, `${path}.w_o`));
  }

  feedForward(x, path, tap) {
    const inner = map(this.linear(x, `${path}.w_1`), ACTIVATIONS[this.settings.activation]);
    return tap(`${path}.output`, this.linear(tap(`${path}.hidden`, inner), `${path}.w_2`));
  }

  /** A sub-layer with its residual connection, and its norm before or after it. */
  addNorm(x, path, sublayer, tap) {
    const skip = tap(`${path}.skip`, x);
    if (this.settings.norm === "pre") {
      const normed = tap(`${path}.norm`, this.norm(x, `${path}.norm`));
      return tap(`${path}.residual`, add(skip, sublayer(normed)));
    }
    const residual = tap(`${path}.residual`, add(skip, sublayer(x)));
    return tap(`${path}.norm`, this.norm(residual, `${path}.norm`));
  }

  /** One layer. With a cache, x holds only the new positions, and the memory's keys and values are cached. */
  layer(x, path, { causal = false, memory = null, cache = null }, tap) {
    const [own, across] = [`${path}.self_attention`, `${path}.cross_attention`];
    const self = (y) => {
      const made = this.keysAndValues(y, own, tap);
      if (!cache) return this.attend(this.queries(y, own, tap), made, own, causal, tap);
      Object.assign(cache, {
        k: appendPositions(cache.k, made.k),
        v: appendPositions(cache.v, made.v),
      });
      return this.attend(this.queries(y, own, tap), cache, own, false, tap);
    };
    const cross = (y) => {
      const q = this.queries(y, across, tap);
      return this.attend(
        q,
        cache?.cross ?? this.keysAndValues(memory, across, tap),
        across,
        false,
        tap,
      );
    };
    x = this.addNorm(x, `${path}.self_add_norm`, self, tap);
    if (path.startsWith("decoder")) x = this.addNorm(x, `${path}.cross_add_norm`, cross, tap);
    const feed = (y) => this.feedForward(y, `${path}.feed_forward`, tap);
    return this.addNorm(x, `${path}.feed_add_norm`, feed, tap);
  }

  /** The layers of a stack from `first` on, and the final norm of a pre-norm model. */
  stack(name, x, options, tap, first = 0) {
    const layers = this.settings[`n_${name}_layers`];
    for (let i = first; i < layers; i++) {
      const cache = options.caches?.[i];
      x = this.layer(x, `${name}.layers.${i}`, { ...options, cache }, tap);
    }
    return this.finish(name, x, tap);
  }

  finish(name, x, tap) {
    if (this.settings.norm !== "pre") return x;
    return tap(`${name}.norm`, this.norm(x, `${name}.last_norm`));
  }

  encode = (ids, tap) => this.stack("encoder", this.input("source", [ids], 0, tap), {}, tap);

  /** The decoder over whole rows with the causal mask. */
  decode(rows, memory, tap) {
    return this.stack("decoder", this.input("target", rows, 0, tap), { causal: true, memory }, tap);
  }

  logits(x, tap) {
    const bias = this.settings.output_bias ? this.weights.floats("output_bias") : null;
    const data = this.weights.linear(x.data, this.output, bias);
    return tap(
      "logits",
      tensor([...x.shape.slice(0, -1), this.weights.shape(this.output)[0]], data),
    );
  }

  /** Encode a source and start the decoder's KV caches. */
  startDecoding(ids, tap) {
    const memory = this.encode(ids, tap);
    const caches = Array.from({ length: this.settings.n_decoder_layers }, (_, i) => ({
      cross: this.keysAndValues(memory, `decoder.layers.${i}.cross_attention`, tap),
    }));
    return { caches, length: 0 };
  }

  /** The logits after a new token in each row; `parents` are the rows of the previous step that they continue. */
  step(tokens, parents, past, tap) {
    if (parents && past.length)
      for (const cache of past.caches)
        Object.assign(cache, { k: selectRows(cache.k, parents), v: selectRows(cache.v, parents) });
    const rows = tokens.map((token) => [token]);
    const x = this.input("target", rows, past.length, tap);
    past.length += 1;
    return this.logits(this.stack("decoder", x, { caches: past.caches }, tap), tap);
  }
}
