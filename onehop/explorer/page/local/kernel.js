// The matrix product x Wᵀ in WebAssembly SIMD: nearly all of a Transformer's work.

import { assemble } from "./wasm.js";

const range = (n) => Array.from({ length: n }, (_, i) => i);
const BLOCK = 4; // rows of W at a time: their four sums fill one vector
export const ROWS = 2; // rows of x at a time

/** Dequantize a row, eight values at a time: out[i] = q[i] · scale. */
const UNPACK = {
  name: "unpack",
  params: ["q", "scale", "out", "count"],
  ints: ["end"],
  vectors: ["s", "eight"],
  code: `
    local.get $scale v128.load32_splat local.set $s
    local.get $q local.get $count i32.add local.set $end
    loop
      local.get $q v128.load8x8_s local.set $eight
      local.get $out
      local.get $eight i32x4.extend_low_i16x8_s f32x4.convert_i32x4_s local.get $s f32x4.mul v128.store
      local.get $out
      local.get $eight i32x4.extend_high_i16x8_s f32x4.convert_i32x4_s local.get $s f32x4.mul v128.store +16
      local.get $out i32.const 32 i32.add local.set $out
      local.get $q i32.const 8 i32.add local.tee $q
      local.get $end i32.lt_s br_if 0
    end`,
};

/** The horizontal sums of a row's four accumulators, as one vector. */
const horizontalSums = (r) => `
  local.get $a${r}0 local.get $a${r}1 i8x16.shuffle 0 4 1 5
  local.get $a${r}0 local.get $a${r}1 i8x16.shuffle 2 6 3 7 f32x4.add local.set $t
  local.get $a${r}2 local.get $a${r}3 i8x16.shuffle 0 4 1 5
  local.get $a${r}2 local.get $a${r}3 i8x16.shuffle 2 6 3 7 f32x4.add local.set $u
  local.get $t local.get $u i8x16.shuffle 0 1 4 5
  local.get $t local.get $u i8x16.shuffle 2 3 6 7 f32x4.add`;

/**
 * Several rows of x times four rows of W: y[r][0…3] = x[r] · w[0…3]. Rows of x and W are `width` bytes apart, those
 * of y `stride` bytes. `fused` uses fused multiply-add.
 */
function product(rows, fused) {
  const perCell = (text) => range(rows).flatMap((r) => range(BLOCK).map((c) => text(r, c)));
  const cells = perCell((r, c) => `a${r}${c}`);
  return {
    name: rows === 1 ? "one" : "several",
    params: ["x", "w", "y", "width", "stride"],
    ints: ["end", ...range(rows).map((r) => `x${r}`), ...range(BLOCK).map((c) => `w${c}`)],
    vectors: [...cells, ...range(rows).map((r) => `v${r}`), "t", "u"],
    code: `
      ${range(rows)
        .map((r) => `local.get $x local.get $width i32.const ${r} i32.mul i32.add local.set $x${r}`)
        .join(" ")}
      ${range(BLOCK)
        .map((c) => `local.get $w local.get $width i32.const ${c} i32.mul i32.add local.set $w${c}`)
        .join(" ")}
      local.get $x local.get $width i32.add local.set $end
      loop
        ${range(rows)
          .map((r) => `local.get $x${r} v128.load local.set $v${r}`)
          .join(" ")}
        ${range(BLOCK)
          .map(
            (c) => `local.get $w${c} v128.load local.set $t
              ${range(rows)
                .map((r) =>
                  fused
                    ? `local.get $t local.get $v${r} local.get $a${r}${c} f32x4.relaxed_madd local.set $a${r}${c}`
                    : `local.get $a${r}${c} local.get $t local.get $v${r} f32x4.mul f32x4.add local.set $a${r}${c}`,
                )
                .join(" ")}
              local.get $w${c} i32.const 16 i32.add local.set $w${c}`,
          )
          .join(" ")}
        ${range(rows)
          .slice(1)
          .map((r) => `local.get $x${r} i32.const 16 i32.add local.set $x${r}`)
          .join(" ")}
        local.get $x0 i32.const 16 i32.add local.tee $x0
        local.get $end i32.lt_s br_if 0
      end
      ${range(rows)
        .map(
          (r) =>
            `local.get $y local.get $stride i32.const ${r} i32.mul i32.add ${horizontalSums(r)} v128.store`,
        )
        .join(" ")}`,
  };
}

/** The module's bytes; `fused` needs relaxed SIMD, which some browsers lack. */
export const MODULE = (fused) => assemble([UNPACK, product(1, fused), product(ROWS, fused)]);
