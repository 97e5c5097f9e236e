// The weights of a model file, which is a safetensors file: a header in JSON, then the numbers. They stay as they are
// stored, int8 with a scale a row, and a few rows at a time become floats for a product.

import { MODULE, ROWS } from "./kernel.js";

const PAGE = 65536;
const BLOCK = 4; // rows of a matrix that the kernel takes at a time
const SLACK = 64; // the kernel reads and writes up to the next multiple of eight

const NAMES = { F32: Float32Array, I8: Int8Array, U8: Uint8Array, BF16: Uint16Array };

/** The stored tensors by name: where each lies in the file, in which format and shape. */
function headerOf(bytes) {
  const length = Number(new DataView(bytes.buffer, bytes.byteOffset).getBigUint64(0, true));
  const { __metadata__: _, ...tensors } = JSON.parse(
    new TextDecoder().decode(bytes.slice(8, 8 + length)),
  );
  return { tensors, start: 8 + length };
}

/** bfloat16 is the upper half of a float32. */
function fromBfloat16(bits) {
  const wide = new Uint32Array(bits.length);
  for (let i = 0; i < bits.length; i++) wide[i] = bits[i] << 16;
  return new Float32Array(wide.buffer);
}

/** Memory for a file of so many bytes: the file is read into it, and what is computed lies behind it. */
export function room(bytes) {
  const memory = new WebAssembly.Memory({ initial: Math.ceil((bytes + SLACK) / PAGE) });
  return { memory, file: new Uint8Array(memory.buffer, 0, bytes) };
}

export class Weights {
  #memory;
  #kernel = null;
  #tensors;
  #start;
  #end;
  #plain = new Map();

  /** Read the file that lies in this memory. Without SIMD the products are computed in JavaScript. */
  static async open({ memory, file }) {
    const weights = new Weights(memory, file);
    for (const fused of [true, false])
      try {
        const { instance } = await WebAssembly.instantiate(MODULE(fused), { onehop: { memory } });
        weights.#kernel = instance.exports;
        break;
      } catch {
        // an older browser: slower, and the same numbers
      }
    return weights;
  }

  constructor(memory, file) {
    const { tensors, start } = headerOf(file);
    this.#memory = memory;
    this.#tensors = tensors;
    this.#start = start;
    this.#end = Math.ceil((file.length + SLACK) / 16) * 16;
  }

  /** Whether products are computed by WebAssembly SIMD. */
  get isFast() {
    return this.#kernel !== null;
  }

  has = (name) => name in this.#tensors;

  shape(name) {
    return this.#tensors[name].shape;
  }

  #stored(name) {
    const { dtype, shape, data_offsets } = this.#tensors[name];
    const size = shape.reduce((a, b) => a * b, 1);
    const offset = this.#start + data_offsets[0];
    return { dtype, offset, values: new NAMES[dtype](this.#memory.buffer, offset, size) };
  }

  /** A vector, or a small table that is wanted whole, as floats. */
  plain(name) {
    if (!this.#plain.has(name)) {
      const { dtype, values } = this.#stored(name);
      const rows = dtype === "I8" ? this.#rows(name, 0, this.shape(name)[0]) : null;
      this.#plain.set(name, rows ?? (dtype === "BF16" ? fromBfloat16(values) : values.slice()));
    }
    return this.#plain.get(name);
  }

  /** One row of a matrix. */
  row = (name, row) => this.#rows(name, row, row + 1);

  #rows(name, first, last) {
    const width = this.shape(name)[1];
    const { dtype, values } = this.#stored(name);
    const part = values.subarray(first * width, last * width);
    if (dtype === "BF16") return fromBfloat16(part);
    if (dtype === "F32") return part.slice();
    const scale = this.#stored(`${name}.scale`).values;
    const floats = new Float32Array(part.length);
    for (let i = 0; i < floats.length; i++)
      floats[i] = part[i] * scale[first + Math.floor(i / width)];
    return floats;
  }

  /** One column of a matrix. */
  column(name, column) {
    const [height, width] = this.shape(name);
    const { dtype, values } = this.#stored(name);
    const cells = Array.from({ length: height }, (_, i) => values[i * width + column]);
    if (dtype === "BF16") return fromBfloat16(Uint16Array.from(cells));
    const scale = dtype === "I8" ? this.#stored(`${name}.scale`).values : null;
    return Float32Array.from(cells, (x, i) => (scale ? x * scale[i] : x));
  }

  /** x Wᵀ + b for rows x of W's width, one after the other in one array. */
  linear(x, name, bias = null) {
    const [height, width] = this.shape(name);
    const count = x.length / width;
    const y = new Float32Array(count * height);
    const whole = this.#kernel && width % BLOCK === 0 ? height - (height % BLOCK) : 0;
    if (whole) this.#fast(x, name, y, count, whole);
    for (let n = whole; n < height; n++) {
      const row = this.row(name, n);
      for (let m = 0; m < count; m++) {
        let sum = 0;
        for (let i = 0; i < width; i++) sum += x[m * width + i] * row[i];
        y[m * height + n] = sum;
      }
    }
    if (bias)
      for (let m = 0; m < count; m++) for (let n = 0; n < height; n++) y[m * height + n] += bias[n];
    return y;
  }

  /** The same for the first rows of W, by the kernel. */
  #fast(x, name, y, count, rows) {
    const [height, width] = this.shape(name);
    const bytes = 4 * width;
    const at = { x: this.#end, w: this.#end + 4 * x.length };
    at.y = at.w + BLOCK * bytes + SLACK;
    this.#reserve(at.y + 4 * count * rows);
    const kernel = this.#kernel;
    const { dtype, offset } = this.#stored(name);
    const scale = dtype === "I8" ? this.#stored(`${name}.scale`).offset : 0;
    new Float32Array(this.#memory.buffer, at.x, x.length).set(x);
    for (let n = 0; n < rows; n += BLOCK) {
      let w = at.w;
      if (dtype === "F32") w = offset + n * bytes;
      else if (dtype === "BF16")
        new Float32Array(this.#memory.buffer, w, BLOCK * width).set(this.#rows(name, n, n + BLOCK));
      else
        for (let c = n; c < n + BLOCK; c++)
          kernel.unpack(offset + c * width, scale + 4 * c, w + (c - n) * bytes, width);
      let m = 0;
      for (; m + ROWS <= count; m += ROWS)
        kernel.several(at.x + m * bytes, w, at.y + 4 * (m * rows + n), bytes, 4 * rows);
      for (; m < count; m++)
        kernel.one(at.x + m * bytes, w, at.y + 4 * (m * rows + n), bytes, 4 * rows);
    }
    const found = new Float32Array(this.#memory.buffer, at.y, count * rows);
    for (let m = 0; m < count; m++) y.set(found.subarray(m * rows, (m + 1) * rows), m * height);
  }

  #reserve(bytes) {
    const more = bytes - this.#memory.buffer.byteLength;
    if (more > 0) this.#memory.grow(Math.ceil(more / PAGE));
  }
}
