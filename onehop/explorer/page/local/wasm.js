// A small WebAssembly assembler: instructions as text in, the bytes of a module out. So the page needs no build step.

const [I32, V128] = [0x7f, 0x7b];
const NUMBER = Symbol("a number follows");
const PLACE = Symbol("a memory offset may follow, as +16");
const LANES = Symbol("the four lanes of a shuffle follow");

const OPS = {
  loop: [0x03, 0x40],
  end: [0x0b],
  br_if: [0x0d, NUMBER],
  "local.get": [0x20, NUMBER],
  "local.set": [0x21, NUMBER],
  "local.tee": [0x22, NUMBER],
  "i32.const": [0x41, NUMBER],
  "i32.lt_s": [0x48],
  "i32.add": [0x6a],
  "i32.mul": [0x6c],
  "v128.load": [0xfd, 0x00, 0x02, PLACE],
  "v128.load8x8_s": [0xfd, 0x01, 0x00, PLACE],
  "v128.load32_splat": [0xfd, 0x09, 0x02, PLACE],
  "v128.store": [0xfd, 0x0b, 0x02, PLACE],
  "i8x16.shuffle": [0xfd, 0x0d, LANES],
  "i32x4.extend_low_i16x8_s": [0xfd, 0xa7, 0x01],
  "i32x4.extend_high_i16x8_s": [0xfd, 0xa8, 0x01],
  "f32x4.add": [0xfd, 0xe4, 0x01],
  "f32x4.mul": [0xfd, 0xe6, 0x01],
  "f32x4.convert_i32x4_s": [0xfd, 0xfa, 0x01],
  "f32x4.relaxed_madd": [0xfd, 0x85, 0x02],
};

/** Signed LEB128; numbers from 0 to 63 have the same unsigned form. */
function leb(number) {
  const bytes = [];
  for (;;) {
    const byte = number & 0x7f;
    number >>= 7;
    const done = (number === 0 && !(byte & 0x40)) || (number === -1 && byte & 0x40);
    bytes.push(done ? byte : byte | 0x80);
    if (done) return bytes;
  }
}

/** Unsigned LEB128. */
const length = (n) => (n < 128 ? [n] : [(n & 0x7f) | 0x80, ...length(n >> 7)]);
const vector = (items) => [...length(items.length), ...items.flat()];
const section = (id, items) => {
  const body = vector(items);
  return [id, ...length(body.length), ...body];
};
const text = (string) => vector([...new TextEncoder().encode(string)]);

/** The bytes of one function's instructions; `names` maps each `$local` to its index. */
function instructions(code, names) {
  const words = code.trim().split(/\s+/);
  const value = (word) => (word.startsWith("$") ? names.indexOf(word.slice(1)) : Number(word));
  const bytes = [];
  for (let i = 0; i < words.length; i++) {
    if (!(words[i] in OPS)) throw new SyntaxError(`There is no instruction ${words[i]}.`);
    for (const part of OPS[words[i]]) {
      if (part === NUMBER) bytes.push(...leb(value(words[++i])));
      else if (part === PLACE)
        bytes.push(...length(words[i + 1]?.startsWith("+") ? Number(words[++i]) : 0));
      else if (part === LANES)
        for (let lane = 0; lane < 4; lane++) {
          const first = 4 * Number(words[++i]);
          bytes.push(first, first + 1, first + 2, first + 3);
        }
      else bytes.push(part);
    }
  }
  return bytes;
}

/**
 * A module of functions over an imported memory. Parameters and `ints` are i32, `vectors` are v128; nothing is
 * returned.
 */
export function assemble(functions) {
  const code = functions.map(({ params, ints, vectors, code }) => {
    const names = [...params, ...ints, ...vectors];
    const locals = vector([
      [...length(ints.length), I32],
      [...length(vectors.length), V128],
    ]);
    const body = [...locals, ...instructions(code, names), 0x0b];
    return [...length(body.length), ...body];
  });
  return new Uint8Array([
    ...[0x00, 0x61, 0x73, 0x6d, 1, 0, 0, 0],
    ...section(
      1,
      functions.map(({ params }) => [0x60, ...vector(params.map(() => [I32])), 0]),
    ),
    ...section(2, [[...text("onehop"), ...text("memory"), 0x02, 0x00, 0x01]]),
    ...section(
      3,
      functions.map((_, i) => [i]),
    ),
    ...section(
      7,
      functions.map(({ name }, i) => [...text(name), 0x00, i]),
    ),
    ...section(10, code),
  ]);
}
