// How numbers and tokens are written.

/** A number with a true minus sign and as many digits as it deserves. */
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

export const percent = (p, digits = 1) => `${(100 * p).toFixed(digits)} %`;
export const count = (n) => n.toLocaleString("en-US");

/** 63045632 as 63.0 M. */
export function short(n) {
  for (const [size, letter] of /** @type {[number, string][]} */ ([
    [1e9, "G"],
    [1e6, "M"],
    [1e3, "k"],
  ])) {
    if (Math.abs(n) >= size) return `${(n / size).toFixed(n / size < 100 ? 1 : 0)} ${letter}`;
  }
  return String(n);
}

/** A piece as a reader sees it: the space in front as a low bar's absence, control pieces in their brackets. */
export function piece(token) {
  const shown = token.replace(/^▁/, "");
  return shown === "" ? "␣" : shown;
}

const BYTE = /^<0x([0-9A-F]{2})>$/;
export const CONTINUED = "‥";

/**
 * Pieces with the bytes of a character that the vocabulary lacks joined: the character stands at its first byte, and the
 * others only continue it. Bytes that make no character stay as they are.
 */
export function shownTokens(tokens) {
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

/** Pieces as the text that they make. */
export const textOf = (tokens) =>
  tokens
    .filter((token) => token !== CONTINUED)
    .map((token) => token.replace(/^▁/, ""))
    .join("") || "␣";

/** Whether a piece begins a word. */
export const beginsWord = (token) =>
  token.startsWith("▁") || (/^<.*>$/.test(token) && !BYTE.test(token));

/** A piece cut to a length that fits a label. */
export function clipped(token, length = 12) {
  const characters = [...piece(token)];
  return characters.length > length
    ? `${characters.slice(0, length - 1).join("")}…`
    : characters.join("");
}
