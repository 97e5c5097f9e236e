// Words made of pieces, as far as the page shows words.

import { beginsWord, piece } from "onehop/text.js";

const hasLetters = (token) => /[\p{L}\p{N}]/u.test(token) && !/^<.*>$/.test(token);

/** Whether a piece goes on with the word before it; punctuation stands for itself. */
const goesOn = (tokens, i) =>
  i > 0 && !beginsWord(tokens[i]) && hasLetters(tokens[i]) && hasLetters(tokens[i - 1]);

/** The places of the pieces that make up the word at a place. */
export function wordAt(tokens, place) {
  let [first, last] = [place, place];
  while (goesOn(tokens, first)) first--;
  while (last + 1 < tokens.length && goesOn(tokens, last + 1)) last++;
  return Array.from({ length: last - first + 1 }, (_, i) => first + i);
}

export const written = (tokens, places) => places.map((i) => piece(tokens[i])).join("");
