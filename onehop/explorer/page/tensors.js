// A trace as figures read it: tensors by name with named axes, decoded on first use.

import { joinByteTokens } from "onehop/format.js";

const PATHS = {
  encoder: (layer) => `encoder.layers.${layer}.self_attention`,
  decoder: (layer) => `decoder.layers.${layer}.self_attention`,
  cross: (layer) => `decoder.layers.${layer}.cross_attention`,
};

export const ROLE_NAMES = { encoder: "encoder self", decoder: "decoder self", cross: "cross" };
/** The names in sentences. */
export const ATTENTION_NAMES = {
  encoder: "encoder self-attention",
  decoder: "decoder self-attention",
  cross: "cross-attention",
};

export function float16ToNumber(bits) {
  const sign = bits & 0x8000 ? -1 : 1;
  const exponent = (bits >> 10) & 0x1f;
  const fraction = bits & 0x3ff;
  if (exponent === 0) return sign * 2 ** -24 * fraction;
  if (exponent === 31) return fraction ? NaN : sign * Infinity;
  return sign * 2 ** (exponent - 25) * (1024 + fraction);
}

/** The bytes of a base64 text; a model in the browser provides bytes. */
export function bytesOf(base64) {
  if (base64 instanceof Uint8Array) return base64;
  if (Uint8Array.fromBase64) return Uint8Array.fromBase64(base64);
  const text = atob(base64);
  const bytes = new Uint8Array(text.length);
  for (let i = 0; i < text.length; i++) bytes[i] = text.charCodeAt(i);
  return bytes;
}

let floats = null; // the value of every 16-bit float

/** The numbers of one tensor in a blob (little-endian, as on every browser's machine). */
export function numbersOf(blob, { type, offset, shape }) {
  const count = shape.reduce((a, b) => a * b, 1);
  const start = blob.byteOffset + offset;
  const copy = blob.buffer.slice(start, start + count * (type === "float32" ? 4 : 2));
  if (type === "float32") return new Float32Array(copy);
  floats ??= Float32Array.from({ length: 2 ** 16 }, (_, bits) => float16ToNumber(bits));
  const halves = new Uint16Array(copy);
  const numbers = new Float32Array(count);
  for (let i = 0; i < count; i++) numbers[i] = floats[halves[i]];
  return numbers;
}

export class Tensor {
  constructor(header, data) {
    this.axes = header.axes;
    this.shape = header.shape;
    this.data = data;
  }

  /** The vector or number at these indices of the leading axes: `weights.at({ head: 1, query: 4 })`. */
  at(indices) {
    let offset = 0;
    let stride = this.data.length;
    let depth = 0;
    for (; depth < this.axes.length && this.axes[depth] in indices; depth++) {
      stride /= this.shape[depth];
      offset += indices[this.axes[depth]] * stride;
    }
    if (depth !== Object.keys(indices).length)
      throw new RangeError(`axes ${this.axes} have no ${Object.keys(indices)}`);
    return depth === this.axes.length
      ? this.data[offset]
      : this.data.subarray(offset, offset + stride);
  }

  /** The last two axes as rows, at these indices of the axes before them. */
  rows(indices = {}) {
    const flat = this.at(indices);
    const width = this.shape.at(-1);
    return Array.from({ length: flat.length / width }, (_, i) =>
      flat.subarray(i * width, (i + 1) * width),
    );
  }
}

/** One translation with its recorded tensors. */
export class Trace {
  #decoded = new Map();
  #blobs = new Map();

  constructor(json) {
    this.json = json;
    this.model = json.model;
    this.settings = json.model.settings;
    this.source = { ...json.source, tokens: joinByteTokens(json.source.tokens) };
    this.target = {
      ...json.target,
      input_tokens: joinByteTokens(json.target.input_tokens),
      output_tokens: joinByteTokens(json.target.output_tokens),
    };
    this.steps = json.steps ?? [];
    this.edits = json.edits ?? [];
  }

  /** Whether all analyses and tensors are loaded; a partial trace has what the top of the page needs. */
  get isComplete() {
    return !this.json.isPartial;
  }

  get heads() {
    return this.settings.n_heads;
  }

  layers(role) {
    return role === "encoder" ? this.settings.n_encoder_layers : this.settings.n_decoder_layers;
  }

  /** The cross-attention head that aligns best. */
  get aligner() {
    return this.json.aligner;
  }

  /** The query tokens; a decoder row is named after the token that it writes. */
  queries(role) {
    return role === "encoder" ? this.source.tokens : this.target.output_tokens;
  }

  /** The key tokens; the decoder's are its inputs. */
  keys(role) {
    return role === "decoder" ? this.target.input_tokens : this.source.tokens;
  }

  /** `queries` as the tokenizer names them, for tables and Python. */
  queryPieces(role) {
    return role === "encoder" ? this.json.source.tokens : this.json.target.output_tokens;
  }

  /** `keys` as the tokenizer names them. */
  keyPieces(role) {
    return role === "decoder" ? this.json.target.input_tokens : this.json.source.tokens;
  }

  path(role, layer) {
    return PATHS[role](layer);
  }

  has(name) {
    return name in this.json.tensors;
  }

  tensor(name) {
    if (!this.#decoded.has(name)) {
      // An exported file repeats the opening's few tensors at its start, where they are available at once.
      const packed = name in (this.json.opening?.tensors ?? {}) ? this.json.opening : this.json;
      const header = packed.tensors[name];
      if (!header) throw new RangeError(`The trace has no tensor ${name}.`);
      if (!this.#blobs.has(packed)) this.#blobs.set(packed, bytesOf(packed.blob));
      this.#decoded.set(name, new Tensor(header, numbersOf(this.#blobs.get(packed), header)));
    }
    return this.#decoded.get(name);
  }

  /** A quantity of the selected attention: `trace.part(selection, "q")`. */
  part({ role, layer }, quantity) {
    return this.tensor(`${this.path(role, layer)}.${quantity}`);
  }
}
