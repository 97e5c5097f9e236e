// The forward pass of onehop.model.transformer in JavaScript: the same quantities under the same names, each through a
// tap (name, value) → value. A value is { shape, data } with the batch first.

/** Values of a shape. */
export const values = (shape, data) => ({
  shape,
  data: data ?? new Float32Array(shape.reduce((a, b) => a * b, 1)),
});

/** Each number changed by itself. */
export const mapped = ({ shape, data }, change) => values(shape, data.map(change));

const added = (a, b) => mapped(a, (x, i) => x + b.data[i]);

/** The same values so many times, one after the other in the batch. */
export function repeated({ shape, data }, rows) {
  const whole = new Float32Array(rows * data.length);
  for (let row = 0; row < rows; row++) whole.set(data, row * data.length);
  return values([rows, ...shape.slice(1)], whole);
}

/** [batch, length, heads · d] as [batch, heads, length, d]. */
function split({ shape: [batch, length, width], data }, heads) {
  const d = width / heads;
  const out = values([batch, heads, length, d]);
  for (let b = 0; b < batch; b++)
    for (let l = 0; l < length; l++)
      for (let h = 0; h < heads; h++) {
        const from = (b * length + l) * width + h * d;
        out.data.set(data.subarray(from, from + d), ((b * heads + h) * length + l) * d);
      }
  return out;
}

/** The inverse. */
function joined({ shape: [batch, heads, length, d], data }) {
  const out = values([batch, length, heads * d]);
  for (let b = 0; b < batch; b++)
    for (let h = 0; h < heads; h++)
      for (let l = 0; l < length; l++) {
        const from = ((b * heads + h) * length + l) * d;
        out.data.set(data.subarray(from, from + d), ((b * length + l) * heads + h) * d);
      }
  return out;
}

/** q kᵀ; keys of one batch row serve all queries. */
function products(q, k) {
  const [batch, heads, queries, d] = q.shape;
  const [rows, , keys] = k.shape;
  const out = values([batch, heads, queries, keys]);
  let place = 0;
  for (let b = 0; b < batch; b++)
    for (let h = 0; h < heads; h++) {
      const first = ((rows === 1 ? 0 : b) * heads + h) * keys * d;
      for (let i = 0; i < queries; i++) {
        const at = ((b * heads + h) * queries + i) * d;
        for (let j = 0; j < keys; j++) {
          let sum = 0;
          for (let c = 0; c < d; c++) sum += q.data[at + c] * k.data[first + j * d + c];
          out.data[place++] = sum;
        }
      }
    }
  return out;
}

/** weights · v. */
function blended(weights, v) {
  const [batch, heads, queries, keys] = weights.shape;
  const [rows, , , d] = v.shape;
  const out = values([batch, heads, queries, d]);
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

/** A softmax over the last axis; a row of nothing but −∞ becomes zeros. */
export function softmax({ shape, data }) {
  const width = shape.at(-1);
  const out = values(shape);
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

/** Causal: −∞ where a key lies behind its query. */
function masked({ shape, data }) {
  const [queries, keys] = shape.slice(-2);
  return values(
    shape,
    data.map((x, i) => (i % keys > Math.floor(i / keys) % queries ? -Infinity : x)),
  );
}

/** Keys or values of new positions behind those of the past. */
function appended(past, more) {
  if (!past) return more;
  const [batch, heads, length, d] = past.shape;
  const extra = more.shape[2];
  const out = values([batch, heads, length + extra, d]);
  for (let row = 0; row < batch * heads; row++) {
    const to = row * (length + extra) * d;
    out.data.set(past.data.subarray(row * length * d, (row + 1) * length * d), to);
    out.data.set(more.data.subarray(row * extra * d, (row + 1) * extra * d), to + length * d);
  }
  return out;
}

/** Some rows of a batch. */
function selected({ shape, data }, rows) {
  const size = data.length / shape[0];
  const out = values([rows.length, ...shape.slice(1)]);
  rows.forEach((row, i) => out.data.set(data.subarray(row * size, (row + 1) * size), i * size));
  return out;
}

/** The error function to seven digits (Abramowitz and Stegun 7.1.26 has them). */
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

/** PE(pos, 2i) = sin(pos / 10000^(2i/d)), PE(pos, 2i+1) = cos(the same). */
export function sinusoids(length, d) {
  const table = new Float32Array(length * d);
  for (let place = 0; place < length; place++)
    for (let i = 0; i < d; i += 2) {
      const angle = place * 10000 ** (-i / d);
      table[place * d + i] = Math.sin(angle);
      table[place * d + i + 1] = Math.cos(angle);
    }
  return table;
}

export class Transformer {
  constructor(settings, weights) {
    this.settings = settings;
    this.weights = weights;
    this.output = settings.tied ? "embedding.weight" : "output.weight";
  }

  /** The table of positions, at least so long: sinusoids have no end. */
  positions(side, length) {
    const { d_model: d, positions } = this.settings;
    if (positions === "learned") return this.weights.plain(`${side}_input.positions`);
    if (!(this.table?.length >= length * d)) this.table = sinusoids(2 * length, d);
    return this.table;
  }

  /** Embeddings times √d_model, plus positions from `first` on. */
  input(side, rows, first, tap) {
    const { d_model: d, tied } = this.settings;
    const table = side === "source" || tied ? "embedding.weight" : "target_embedding.weight";
    const length = rows[0].length;
    const embeddings = values([rows.length, length, d]);
    rows.flat().forEach((id, i) => embeddings.data.set(this.weights.row(table, id), i * d));
    const root = Math.sqrt(d);
    const embedded = tap(`${side}_input.embeddings`, embeddings);
    const scaled = tap(
      `${side}_input.scaled`,
      mapped(embedded, (x) => x * root),
    );
    const positions = this.positions(side, first + length);
    return tap(
      `${side}_input.positioned`,
      mapped(scaled, (x, i) => x + positions[first * d + (i % (length * d))]),
    );
  }

  linear(x, path) {
    const bias = this.weights.has(`${path}.bias`) ? this.weights.plain(`${path}.bias`) : null;
    const data = this.weights.linear(x.data, `${path}.weight`, bias);
    return values([...x.shape.slice(0, -1), this.weights.shape(`${path}.weight`)[0]], data);
  }

  norm({ shape, data }, path) {
    const d = shape.at(-1);
    const [gain, bias] = [this.weights.plain(`${path}.weight`), this.weights.plain(`${path}.bias`)];
    const epsilon = this.settings.norm_epsilon ?? 1e-5;
    const out = values(shape);
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
    tap(`${path}.q`, split(this.linear(x, `${path}.w_q`), this.settings.n_heads));

  keysAndValues(memory, path, tap) {
    const heads = this.settings.n_heads;
    return {
      k: tap(`${path}.k`, split(this.linear(memory, `${path}.w_k`), heads)),
      v: tap(`${path}.v`, split(this.linear(memory, `${path}.w_v`), heads)),
    };
  }

  /** Equation 1 in every head, joined and projected. */
  attend(q, { k, v }, path, causal, tap) {
    const root = Math.sqrt(q.shape.at(-1));
    const scores = tap(`${path}.scores`, products(q, k));
    const scaled = tap(
      `${path}.scaled_scores`,
      mapped(scores, (x) => x / root),
    );
    const hidden = tap(`${path}.masked_scores`, causal ? masked(scaled) : scaled);
    const weights = tap(`${path}.weights`, softmax(hidden));
    const heads = tap(`${path}.head_outputs`, blended(weights, v));
    const whole = tap(`${path}.concatenation`, joined(heads));
    return tap(`${path}.projection`, this.linear(whole, `${path}.w_o`));
  }

  feedForward(x, path, tap) {
    const inner = mapped(this.linear(x, `${path}.w_1`), ACTIVATIONS[this.settings.activation]);
    return tap(`${path}.output`, this.linear(tap(`${path}.hidden`, inner), `${path}.w_2`));
  }

  /** A sub-layer with its residual connection and its norm, after it or before it. */
  addNorm(x, path, sublayer, tap) {
    const skip = tap(`${path}.skip`, x);
    if (this.settings.norm === "pre") {
      const normed = tap(`${path}.norm`, this.norm(x, `${path}.norm`));
      return tap(`${path}.residual`, added(skip, sublayer(normed)));
    }
    const residual = tap(`${path}.residual`, added(skip, sublayer(x)));
    return tap(`${path}.norm`, this.norm(residual, `${path}.norm`));
  }

  /** One layer. With a cache, x are new positions behind the cached ones, and the memory's keys are in it. */
  layer(x, path, { causal = false, memory = null, cache = null }, tap) {
    const [own, across] = [`${path}.self_attention`, `${path}.cross_attention`];
    const self = (y) => {
      const made = this.keysAndValues(y, own, tap);
      if (!cache) return this.attend(this.queries(y, own, tap), made, own, causal, tap);
      Object.assign(cache, { k: appended(cache.k, made.k), v: appended(cache.v, made.v) });
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

  /** Layers of a stack from one on, and the norm that pre-norm order puts behind them. */
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

  /** The decoder over whole rows, the future hidden from each position. */
  decode(rows, memory, tap) {
    return this.stack("decoder", this.input("target", rows, 0, tap), { causal: true, memory }, tap);
  }

  logits(x, tap) {
    const bias = this.settings.output_bias ? this.weights.plain("output_bias") : null;
    const data = this.weights.linear(x.data, this.output, bias);
    return tap(
      "logits",
      values([...x.shape.slice(0, -1), this.weights.shape(this.output)[0]], data),
    );
  }

  /** Encode a source; the decoder's layers then remember every row's keys and values. */
  begin(ids, tap) {
    const memory = this.encode(ids, tap);
    const caches = Array.from({ length: this.settings.n_decoder_layers }, (_, i) => ({
      cross: this.keysAndValues(memory, `decoder.layers.${i}.cross_attention`, tap),
    }));
    return { caches, length: 0 };
  }

  /** Logits after a new token in each row; `parents` are the rows of the step before that they go on from. */
  step(tokens, parents, past, tap) {
    if (parents && past.length)
      for (const cache of past.caches)
        Object.assign(cache, { k: selected(cache.k, parents), v: selected(cache.v, parents) });
    const rows = tokens.map((token) => [token]);
    const x = this.input("target", rows, past.length, tap);
    past.length += 1;
    return this.logits(this.stack("decoder", x, { caches: past.caches }, tap), tap);
  }
}
