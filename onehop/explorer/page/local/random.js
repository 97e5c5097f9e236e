// The permutation of torch.randperm for a seed: MT19937 and the Fisher–Yates shuffle.

/** Random integers below 2^32. */
function* mersenne(seed) {
  const state = new Uint32Array(624);
  state[0] = seed;
  for (let i = 1; i < 624; i++)
    state[i] = Math.imul(1812433253, state[i - 1] ^ (state[i - 1] >>> 30)) + i;
  for (let i = 0; ; i = (i + 1) % 624) {
    const y = (state[i] & 0x80000000) | (state[(i + 1) % 624] & 0x7fffffff);
    state[i] = state[(i + 397) % 624] ^ (y >>> 1) ^ (y & 1 ? 0x9908b0df : 0);
    let x = state[i];
    x ^= x >>> 11;
    x ^= (x << 7) & 0x9d2c5680;
    x ^= (x << 15) & 0xefc60000;
    yield (x ^ (x >>> 18)) >>> 0;
  }
}

/** The numbers from 0 to n − 1 in the order of a seed. */
export function permutation(n, seed) {
  const order = Array.from({ length: n }, (_, i) => i);
  const numbers = mersenne(seed);
  for (let i = 0; i < n - 1; i++) {
    const other = i + (Number(numbers.next().value) % (n - i));
    [order[i], order[other]] = [order[other], order[i]];
  }
  return order;
}
