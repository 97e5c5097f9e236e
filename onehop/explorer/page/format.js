// How numbers and tokens are displayed.

/** A number with a true minus sign and a fixed number of digits; very small ones as powers of ten. */
export function number(x, digits = 3) {
  if (x === -Infinity) return "−∞";
  if (x === Infinity) return "∞";
  if (!Number.isFinite(x)) return "not a number";
  if (x !== 0 && Math.abs(x) < 10 ** -digits) return power(x);
  return x.toFixed(digits).replace(/^-/, "−");
}

/** 0.00012 as 1.2·10⁻⁴. */
export function power(x, digits = 1) {
  const [fraction, exponent] = x.toExponential(digits).split("e");
  const raised = [...String(Number(exponent))]
    .map((c) => (c === "-" ? "⁻" : "⁰¹²³⁴⁵⁶⁷⁸⁹"[Number(c)]))
    .join("");
  return `${fraction.replace(/^-/, "−")}·10${raised}`;
}

/** 0.1234 as “12.3%”. A share that would round to zero becomes “<0.1%”. */
export function percent(p, digits = 1) {
  const least = 10 ** -digits;
  return p > 0 && 100 * p < least / 2
    ? `<${least.toFixed(digits)}%`
    : `${(100 * p).toFixed(digits)}%`;
}

/** “1 head”, “2 heads”: the number with the form of the noun that goes with it. */
export const counted = (n, one, many = `${one}s`) => `${count(n)} ${n === 1 ? one : many}`;
export const count = (n) => n.toLocaleString("en-US");

/** 63045632 as 63.0M, and up to 9,999 all digits. */
export function short(n) {
  if (Number.isInteger(n) && Math.abs(n) < 10_000) return count(n);
  for (const [size, letter] of /** @type {[number, string][]} */ ([
    [1e9, "G"],
    [1e6, "M"],
    [1e3, "k"],
  ])) {
    if (Math.abs(n) >= size) return `${(n / size).toFixed(n / size < 100 ? 1 : 0)}${letter}`;
  }
  return String(n);
}

/** A piece without the mark of a word's beginning; a lone mark as “␣”. */
export function piece(token) {
  const shown = token.replace(/^▁/, "");
  return shown === "" ? "␣" : shown;
}

const BYTE = /^<0x([0-9A-F]{2})>$/;
export const CONTINUED = "‥";

/**
 * Tokens with byte tokens joined: the character is at its first byte, and CONTINUED at the others. Invalid bytes
 * stay.
 */
export function joinByteTokens(tokens) {
  const shown = [...tokens];
  for (let i = 0; i < tokens.length; i++) {
    const first = Number.parseInt(tokens[i].match(BYTE)?.[1], 16);
    const length = first >= 0xf0 ? 4 : first >= 0xe0 ? 3 : first >= 0xc0 ? 2 : 1;
    const bytes = tokens.slice(i, i + length).map((t) => Number.parseInt(t.match(BYTE)?.[1], 16));
    if (Number.isNaN(first) || bytes.some(Number.isNaN)) continue;
    const text = new TextDecoder().decode(new Uint8Array(bytes));
    if (text.includes("\ufffd")) continue;
    shown.splice(i, length, text, ...Array(length - 1).fill(CONTINUED));
    i += length - 1;
  }
  return shown;
}

export const textOf = (tokens) =>
  tokens
    .filter((token) => token !== CONTINUED)
    .map((token) => token.replace(/^▁/, ""))
    .join("") || "␣";

export const beginsWord = (token) =>
  token.startsWith("▁") || (/^<.*>$/.test(token) && !BYTE.test(token));

/** A piece cut to a label's length. */
export function clipped(token, length = 12) {
  const characters = [...piece(token)];
  return characters.length > length
    ? `${characters.slice(0, length - 1).join("")}…`
    : characters.join("");
}
