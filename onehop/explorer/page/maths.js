// The mathematics that the page computes itself. Vectors are arrays or typed arrays.

export const range = (length) => Array.from({ length }, (_, i) => i);
export const sum = (values) => values.reduce((a, b) => a + b, 0);
export const mean = (values) => (values.length ? sum(values) / values.length : 0);
export const maxOf = (values) => values.reduce((a, b) => Math.max(a, b), -Infinity);
export const argmax = (values) => values.reduce((best, x, i) => (x > values[best] ? i : best), 0);

export function dot(a, b) {
  let total = 0;
  for (let i = 0; i < a.length; i++) total += a[i] * b[i];
  return total;
}

export const norm = (a) => Math.sqrt(dot(a, a));

/** Softmax; −∞ becomes exactly 0, and a row of only −∞ becomes zeros, as in the model. */
export function softmax(scores) {
  const top = maxOf(Array.from(scores));
  if (top === -Infinity) return Array.from(scores, () => 0);
  const powers = Array.from(scores, (x) => Math.exp(x - top));
  const total = sum(powers);
  return powers.map((x) => x / total);
}

export const matmul = (a, b) =>
  a.map((row) => b[0].map((_, j) => sum(row.map((x, i) => x * b[i][j]))));
export const transpose = (m) => m[0].map((_, j) => m.map((row) => row[j]));

/** Entropy in bits: 0 for a single token, log₂ n for n equal ones. */
export const entropy = (weights) =>
  -sum(Array.from(weights, (p) => (p > 0 ? p * Math.log2(p) : 0)));

/** The Frobenius norm of the softmax's derivative, diag(p) − p pᵀ. */
export function softmaxGradient(weights) {
  const squares = sum(weights.map((p) => p * p));
  return Math.sqrt(Math.max(0, squares - 2 * sum(weights.map((p) => p ** 3)) + squares * squares));
}

export function weightedSum(weights, vectors) {
  const out = new Float64Array(vectors[0].length);
  weights.forEach((w, j) => {
    for (let d = 0; d < out.length; d++) out[d] += w * vectors[j][d];
  });
  return out;
}

/** The `count` values with the largest magnitudes. */
export const largestByMagnitude = (values, count) =>
  [...values].sort((a, b) => Math.abs(b) - Math.abs(a)).slice(0, count);
