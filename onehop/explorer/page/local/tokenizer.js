// Text ↔ ids as in onehop.text.tokenizer: SentencePiece BPE with byte fallback.

export const [PAD, UNK, BOS, EOS] = [0, 1, 2, 3];
const MARK = "\u2581"; // the beginning of a word
const KINDS = { user: 4, unused: 5, byte: 6, normal: 1 };
const TAG = /^\u2581<\/?[\p{L}\p{N}_]+>$/u;
// Python's white space and the word mark; \s of JavaScript differs in a few characters.
const SPACE = /[\t-\r\x1c-\x20\x85\xa0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000\u2581]+/g;

/** Lone surrogates, which UTF-8 cannot encode, become U+FFFD. */
const wellFormed = (text) =>
  text.replace(/[\ud800-\udbff][\udc00-\udfff]|[\ud800-\udfff]/g, (c) =>
    c.length === 2 ? c : "\ufffd",
  );

/** The normalized text: Unicode NFC, runs of white space as one space, none at the ends. */
export const normalise = (text) =>
  wellFormed(text).normalize("NFC").replace(SPACE, " ").replace(/^ | $/g, "");

/** Decode bytes as UTF-8; each invalid byte becomes U+FFFD. */
function charactersOf(bytes) {
  const strict = new TextDecoder("utf-8", { fatal: true, ignoreBOM: true });
  let text = "";
  for (let i = 0; i < bytes.length;) {
    const first = bytes[i];
    const length = first < 0x80 ? 1 : first < 0xe0 ? 2 : first < 0xf0 ? 3 : 4;
    try {
      text += strict.decode(Uint8Array.from(bytes.slice(i, i + length)));
      i += length;
    } catch {
      text += "\ufffd";
      i += 1;
    }
  }
  return text;
}

export class Tokenizer {
  #ids = new Map();
  #bytes = [];
  #tags = new Map();
  #reserved = [];

  /** `pieces` are [piece, score, kind] in the order of ids; `unknown` is the text of the unknown piece. */
  constructor({ pieces, unknown }) {
    this.pieces = pieces;
    this.unknown = unknown;
    pieces.forEach(([piece, , kind], id) => {
      if (kind === KINDS.byte) this.#bytes[parseInt(piece.slice(3, 5), 16)] = id;
      if ([KINDS.normal, KINDS.user, KINDS.unused].includes(kind)) this.#ids.set(piece, id);
      if (kind === KINDS.user) this.#reserved.push(piece);
    });
    this.#reserved.sort((a, b) => b.length - a.length); // longest match first
    for (let id = EOS + 1; id < pieces.length && TAG.test(pieces[id][0]); id++)
      this.#tags.set(
        id,
        [...pieces[id][0]].flatMap((character) => this.#known(character)),
      );
  }

  token = (id) => this.pieces[id][0];
  tokens = (ids) => ids.map(this.token);

  /** The id of a piece, or the ids of its bytes. */
  #known(piece) {
    const id = this.#ids.get(piece);
    if (id !== undefined) return [id];
    if (!this.#bytes.length) return [UNK];
    return [...new TextEncoder().encode(piece)].map((byte) => this.#bytes[byte]);
  }

  /** Ids of a text, without special tokens; tags in the text are ordinary text. */
  encode(text) {
    const plain = normalise(text);
    if (!plain) return [];
    const symbols = this.#symbols(MARK + plain.replaceAll(" ", MARK));
    const ids = this.#merged(symbols).flatMap((piece) => this.#known(piece));
    return ids.flatMap((id) => this.#tags.get(id) ?? [id]);
  }

  /** A text as characters, with reserved pieces in one part. */
  #symbols(text) {
    const symbols = [];
    for (let i = 0; i < text.length;) {
      const user = this.#reserved.find((piece) => text.startsWith(piece, i));
      const piece = user ?? String.fromCodePoint(text.codePointAt(i));
      symbols.push({ piece, frozen: user !== undefined });
      i += piece.length;
    }
    return symbols;
  }

  /** Merge neighbours, the best-scored pair first and ties from the left, until no pair is a piece. */
  #merged(symbols) {
    symbols.forEach((symbol, i) => Object.assign(symbol, { before: i - 1, after: i + 1 }));
    const last = symbols.length;
    const heap = new Heap((a, b) => b.score - a.score || a.left - b.left);
    const offer = (left, right) => {
      if (left < 0 || right >= last || symbols[left].frozen || symbols[right].frozen) return;
      const piece = symbols[left].piece + symbols[right].piece;
      const id = this.#ids.get(piece);
      if (id !== undefined) heap.push({ left, right, piece, score: this.pieces[id][1] });
    };
    for (let i = 0; i + 1 < last; i++) offer(i, i + 1);
    for (let best = heap.pop(); best; best = heap.pop()) {
      const { left, right, piece } = best;
      const [a, b] = [symbols[left], symbols[right]];
      if (!a.piece || !b.piece || a.piece + b.piece !== piece || a.after !== right) continue;
      a.piece = piece;
      b.piece = "";
      a.after = b.after;
      if (b.after < last) symbols[b.after].before = left;
      offer(a.before, left);
      offer(left, a.after);
    }
    return symbols.map((symbol) => symbol.piece).filter(Boolean);
  }

  /** The text of ids, without special tokens. */
  decode(ids) {
    let [text, bytes] = ["", []];
    for (const id of [...ids.filter((i) => ![PAD, BOS, EOS].includes(i)), null]) {
      const [piece, , kind] = id === null ? [""] : this.pieces[id];
      if (kind === KINDS.byte) {
        bytes.push(parseInt(piece.slice(3, 5), 16));
        continue;
      }
      text += charactersOf(bytes);
      bytes = [];
      const shown = id === UNK ? this.unknown : piece.replaceAll(MARK, " ");
      // Only the piece at the beginning of the text loses its leading space.
      text += text === "" && id !== UNK ? shown.replace(/^ /, "") : shown;
    }
    return text;
  }
}

class Heap {
  #items = [];
  #order;

  constructor(order) {
    this.#order = order;
  }

  push(item) {
    const items = this.#items;
    let i = items.push(item) - 1;
    for (let up = (i - 1) >> 1; i > 0 && this.#order(item, items[up]) < 0; up = (i - 1) >> 1) {
      items[i] = items[up];
      i = up;
    }
    items[i] = item;
  }

  pop() {
    const items = this.#items;
    const top = items[0];
    const item = items.pop();
    if (!items.length) return top;
    let i = 0;
    for (;;) {
      let down = 2 * i + 1;
      if (down >= items.length) break;
      if (down + 1 < items.length && this.#order(items[down + 1], items[down]) < 0) down += 1;
      if (this.#order(item, items[down]) <= 0) break;
      items[i] = items[down];
      i = down;
    }
    items[i] = item;
    return top;
  }
}
