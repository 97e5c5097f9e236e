// Words made of pieces.

import { mean, sum } from "onehop/maths.js";
import { CONTINUED, beginsWord, piece, textOf } from "onehop/format.js";

const hasLetters = (token) =>
  token === CONTINUED || (/[\p{L}\p{N}]/u.test(token) && !/^<.*>$/.test(token));

/**
 * Whether a piece continues the word before it. Punctuation is its own word; a lone space belongs to what follows.
 */
const continuesWord = (tokens, i) =>
  i > 0 &&
  !beginsWord(tokens[i]) &&
  (tokens[i] === CONTINUED ||
    tokens[i - 1] === "▁" ||
    (hasLetters(tokens[i]) && hasLetters(tokens[i - 1])));

/** The indices of the pieces of the word at an index. */
export function wordAt(tokens, index) {
  let [first, last] = [index, index];
  while (continuesWord(tokens, first)) first--;
  while (last + 1 < tokens.length && continuesWord(tokens, last + 1)) last++;
  return Array.from({ length: last - first + 1 }, (_, i) => first + i);
}

export const joinPieces = (tokens, indices) => textOf(indices.map((i) => tokens[i]));

/** All words of a list of pieces, as indices. */
export const allWords = (tokens) =>
  tokens.flatMap((_, i) => (wordAt(tokens, i)[0] === i ? [wordAt(tokens, i)] : []));

export const inWords = (view) => view.dial("page.words", "") === "yes";

/** The names of bars, of pieces or of words, and a function that sums a row of weights for them. */
export function barData(view, keys) {
  if (!inWords(view)) return { names: keys.map(piece), sumByWord: (row) => Array.from(row) };
  const groups = allWords(keys);
  return {
    names: groups.map((indices) => joinPieces(keys, indices)),
    sumByWord: (row) => groups.map((indices) => sum(indices.map((j) => row[j]))),
  };
}

/**
 * Weights between pieces as weights between words: those to a word's pieces are summed, those from them averaged. So
 * each row still sums to 1.
 */
export function mergeWords(rows, queries, keys) {
  const [queryWords, keyWords] = [allWords(queries), allWords(keys)];
  return {
    queryWords,
    keyWords,
    queries: queryWords.map((word) => joinPieces(queries, word)),
    keys: keyWords.map((word) => joinPieces(keys, word)),
    rows: queryWords.map((word) =>
      keyWords.map((indices) => mean(word.map((i) => sum(indices.map((j) => rows[i][j]))))),
    ),
  };
}
