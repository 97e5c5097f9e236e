// A trace as figures read it: tensors by name with named axes, decoded when first asked for.

import { shownTokens } from "onehop/text.js";

const PATHS = {
  encoder: (layer) => `encoder.layers.${layer}.self_attention`,
  decoder: (layer) => `decoder.layers.${layer}.self_attention`,
  cross: (layer) => `decoder.layers.${layer}.cross_attention`,
};

export const ROLE_NAMES = { encoder: "encoder self", decoder: "decoder self", cross: "cross" };

/** A 16-bit float's value. */
export function halfToFloat(bits) {
  const sign = bits & 0x8000 ? -1 : 1;
  const exponent = (bits >> 10) & 0x1f;
  const fraction = bits & 0x3ff;
  if (exponent === 0) return sign * 2 ** -24 * fraction;
  if (exponent === 31) return fraction ? NaN : sign * Infinity;
  return sign * 2 ** (exponent - 25) * (1024 + fraction);
}

/** The bytes that a base64 text stands for; a model in the browser gives them as they are. */
export function bytesOf(base64) {
  if (base64 instanceof Uint8Array) return base64;
  if (Uint8Array.fromBase64) return Uint8Array.fromBase64(base64);
  const text = atob(base64);
  const bytes = new Uint8Array(text.length);
  for (let i = 0; i < text.length; i++) bytes[i] = text.charCodeAt(i);
  return bytes;
}

let floats = null; // the value of every 16-bit float

/** The numbers of one tensor in a blob (little-endian, as every browser's machine is). */
export function numbersOf(blob, { type, offset, shape }) {
  const count = shape.reduce((a, b) => a * b, 1);
  const start = blob.byteOffset + offset;
  const copy = blob.buffer.slice(start, start + count * (type === "float32" ? 4 : 2));
  if (type === "float32") return new Float32Array(copy);
  floats ??= Float32Array.from({ length: 2 ** 16 }, (_, bits) => halfToFloat(bits));
  const halves = new Uint16Array(copy);
  const numbers = new Float32Array(count);
  for (let i = 0; i < count; i++) numbers[i] = floats[halves[i]];
  return numbers;
}

/** One recorded quantity. */
export class Tensor {
  constructor(header, data) {
    this.axes = header.axes;
    this.shape = header.shape;
    this.data = data;
  }

  /** The vector or number at these places of the leading axes: `weights.at({ head: 1, query: 4 })`. */
  at(place) {
    let offset = 0;
    let stride = this.data.length;
    let depth = 0;
    for (; depth < this.axes.length && this.axes[depth] in place; depth++) {
      stride /= this.shape[depth];
      offset += place[this.axes[depth]] * stride;
    }
    if (depth !== Object.keys(place).length)
      throw new RangeError(`axes ${this.axes} have no ${Object.keys(place)}`);
    return depth === this.axes.length
      ? this.data[offset]
      : this.data.subarray(offset, offset + stride);
  }

  /** The last two axes as rows, at these places of the axes before them. */
  rows(place = {}) {
    const flat = this.at(place);
    const width = this.shape.at(-1);
    return Array.from({ length: flat.length / width }, (_, i) =>
      flat.subarray(i * width, (i + 1) * width),
    );
  }
}

/** One translation, with every tensor that was kept. */
export class Trace {
  #decoded = new Map();
  #blobs = new Map();

  constructor(json) {
    this.json = json;
    this.model = json.model;
    this.settings = json.model.settings;
    this.source = { ...json.source, tokens: shownTokens(json.source.tokens) };
    this.target = {
      ...json.target,
      input_tokens: shownTokens(json.target.input_tokens),
      output_tokens: shownTokens(json.target.output_tokens),
    };
    this.steps = json.steps ?? [];
    this.edits = json.edits ?? [];
  }

  /** Whether the analyses and all tensors are there; before, only what the top of the page needs. */
  get isWhole() {
    return !this.json.isPartial;
  }

  get heads() {
    return this.settings.n_heads;
  }

  layers(role) {
    return role === "encoder" ? this.settings.n_encoder_layers : this.settings.n_decoder_layers;
  }

  /** The cross-attention head that shows best which words translate which. */
  get aligner() {
    return this.json.aligner;
  }

  /** The tokens that ask; a row of the decoder bears the name of what it writes. */
  queries(role) {
    return role === "encoder" ? this.source.tokens : this.target.output_tokens;
  }

  /** The tokens that are asked; the decoder's are what it has read. */
  keys(role) {
    return role === "decoder" ? this.target.input_tokens : this.source.tokens;
  }

  /** `queries` by the names that the tokenizer gives them, as tables and Python have them. */
  queryPieces(role) {
    return role === "encoder" ? this.json.source.tokens : this.json.target.output_tokens;
  }

  /** `keys` by the names that the tokenizer gives them. */
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
      // A file repeats the few tensors of its opening in front, where they are there at once.
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
