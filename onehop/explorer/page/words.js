// Words made of pieces, as far as the page shows words.

import { mean, sum } from "onehop/maths.js";
import { CONTINUED, beginsWord, piece, textOf } from "onehop/text.js";

const hasLetters = (token) =>
  token === CONTINUED || (/[\p{L}\p{N}]/u.test(token) && !/^<.*>$/.test(token));

/** Whether a piece goes on with the word before it; punctuation stands for itself. A lone space belongs to what follows. */
const goesOn = (tokens, i) =>
  i > 0 &&
  !beginsWord(tokens[i]) &&
  (tokens[i] === CONTINUED ||
    tokens[i - 1] === "▁" ||
    (hasLetters(tokens[i]) && hasLetters(tokens[i - 1])));

/** The places of the pieces that make up the word at a place. */
export function wordAt(tokens, place) {
  let [first, last] = [place, place];
  while (goesOn(tokens, first)) first--;
  while (last + 1 < tokens.length && goesOn(tokens, last + 1)) last++;
  return Array.from({ length: last - first + 1 }, (_, i) => first + i);
}

export const written = (tokens, places) => textOf(places.map((i) => tokens[i]));

/** All words of a list of pieces, as places; punctuation stands for itself. */
export const allWords = (tokens) =>
  tokens.flatMap((_, i) => (wordAt(tokens, i)[0] === i ? [wordAt(tokens, i)] : []));

export const inWords = (view) => view.dial("page.words", "") === "yes";

/** What bars of weights show, of pieces or of words: names, and how a row of weights is added up for them. */
export function barsOf(view, keys) {
  if (!inWords(view)) return { names: keys.map(piece), added: (row) => Array.from(row) };
  const groups = allWords(keys);
  return {
    names: groups.map((places) => written(keys, places)),
    added: (row) => groups.map((places) => sum(places.map((j) => row[j]))),
  };
}

/**
 * Rows of weights between pieces as rows between words: what goes to the pieces of a word is added, what comes from them
 * is averaged, so that a row still adds up to 1.
 */
export function merged(rows, queries, keys) {
  const [asking, asked] = [allWords(queries), allWords(keys)];
  return {
    asking,
    asked,
    queries: asking.map((word) => written(queries, word)),
    keys: asked.map((word) => written(keys, word)),
    rows: asking.map((word) =>
      asked.map((places) => mean(word.map((i) => sum(places.map((j) => rows[i][j]))))),
    ),
  };
}
