// The weights of a safetensors file. They stay in their stored format, such as int8 with a scale a row; a product
// converts a few rows at a time to floats.

import { MODULE, ROWS } from "./kernel.js";

const PAGE = 65536;
const BLOCK = 4; // rows of a matrix that the kernel processes at a time
const PADDING = 64; // the kernel reads and writes up to the next multiple of eight

const NAMES = { F32: Float32Array, I8: Int8Array, U8: Uint8Array, BF16: Uint16Array };

/** The stored tensors by name with offsets, dtypes and shapes. */
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

/** Memory for a file of so many bytes. Work buffers come after the file. */
export function allocate(bytes) {
  const memory = new WebAssembly.Memory({ initial: Math.ceil((bytes + PADDING) / PAGE) });
  return { memory, file: new Uint8Array(memory.buffer, 0, bytes) };
}

export class Weights {
  #memory;
  #kernel = null;
  #tensors;
  #start;
  #end;
  #floats = new Map();

  /** Open the file in this memory. Without SIMD, products are computed in JavaScript. */
  static async open({ memory, file }) {
    const weights = new Weights(memory, file);
    for (const fused of [true, false])
      try {
        const { instance } = await WebAssembly.instantiate(MODULE(fused), { onehop: { memory } });
        weights.#kernel = instance.exports;
        break;
      } catch {
        // Older browsers are slower and compute the same numbers.
      }
    return weights;
  }

  constructor(memory, file) {
    const { tensors, start } = headerOf(file);
    this.#memory = memory;
    this.#tensors = tensors;
    this.#start = start;
    this.#end = Math.ceil((file.length + PADDING) / 16) * 16;
  }

  /** Whether products use WebAssembly SIMD. */
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

  /** A whole tensor as floats, cached: for vectors and small tables. */
  floats(name) {
    if (!this.#floats.has(name)) {
      const { dtype, values } = this.#stored(name);
      const rows = dtype === "I8" ? this.#rows(name, 0, this.shape(name)[0]) : null;
      this.#floats.set(name, rows ?? (dtype === "BF16" ? fromBfloat16(values) : values.slice()));
    }
    return this.#floats.get(name);
  }

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

  column(name, column) {
    const [height, width] = this.shape(name);
    const { dtype, values } = this.#stored(name);
    const cells = Array.from({ length: height }, (_, i) => values[i * width + column]);
    if (dtype === "BF16") return fromBfloat16(Uint16Array.from(cells));
    const scale = dtype === "I8" ? this.#stored(`${name}.scale`).values : null;
    return Float32Array.from(cells, (x, i) => (scale ? x * scale[i] : x));
  }

  /** x Wᵀ + b for the rows of x, which is flat. */
  linear(x, name, bias = null) {
    const [height, width] = this.shape(name);
    const count = x.length / width;
    const y = new Float32Array(count * height);
    const whole = this.#kernel && width % BLOCK === 0 ? height - (height % BLOCK) : 0;
    if (whole) this.#linearByKernel(x, name, y, count, whole);
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

  /** The product with the first `rows` rows of W, by the kernel. */
  #linearByKernel(x, name, y, count, rows) {
    const [height, width] = this.shape(name);
    const bytes = 4 * width;
    const at = { x: this.#end, w: this.#end + 4 * x.length };
    at.y = at.w + BLOCK * bytes + PADDING;
    this.#grow(at.y + 4 * count * rows);
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
    const product = new Float32Array(this.#memory.buffer, at.y, count * rows);
    for (let m = 0; m < count; m++) y.set(product.subarray(m * rows, (m + 1) * rows), m * height);
  }

  #grow(bytes) {
    const more = bytes - this.#memory.buffer.byteLength;
    if (more > 0) this.#memory.grow(Math.ceil(more / PAGE));
  }
}
