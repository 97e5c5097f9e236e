// Word by word in the reader's language: under each foreign word stands the word that was looked at.

import { html, nothing } from "onehop/vendor/lit-html.js";
import { range, sum } from "onehop/maths.js";
import { beginsWord, number } from "onehop/text.js";
import { TEXTS } from "onehop/texts.js";
import { written } from "onehop/words.js";

const T = TEXTS.gloss;
const CLEAR = 0.25; // less of a word's look on one word says nothing
const isWord = (token) => /[\p{L}\p{N}]/u.test(token) && !/^<.*>$/.test(token);

/** The side that is glossed: the foreign one, where the other is English. */
export const glossedSide = ({ model }) => (model.target === "en" ? "source" : "target");

/** Pieces grouped as a text groups them, by the spaces: a word and the comma behind it stand together. */
export function groupsOf(tokens) {
  const groups = [];
  tokens.forEach((token, i) => {
    if (beginsWord(token) || !groups.length) groups.push([]);
    groups.at(-1).push(i);
  });
  return groups;
}

/** The words of a list of pieces as a text has them, without the punctuation around them. */
const wordsOf = (tokens) =>
  groupsOf(tokens)
    .map((group) => {
      const inside = group.map((i) => isWord(tokens[i]));
      return group.slice(inside.indexOf(true), inside.lastIndexOf(true) + 1);
    })
    .filter((group) => group.some((i) => isWord(tokens[i])));

/** For each group of a side its gloss and how sure it is; `weight(i, j)` is the look between piece i and piece j of the other. */
export function glossesOf(tokens, others, weight, language) {
  const words = wordsOf(others);
  return groupsOf(tokens).map((group) => {
    const own = group.filter((i) => isWord(tokens[i]));
    if (!own.length || !words.length) return { group, gloss: "", share: 0 };
    const shares = words.map((word) => sum(own.flatMap((i) => word.map((j) => weight(i, j)))));
    const best = shares.indexOf(Math.max(...shares));
    const share = shares[best] / (sum(shares) || 1);
    const text = written(tokens, own).toLowerCase();
    const mark = T.pronouns[language]?.[text];
    const gloss = share < CLEAR ? T.unclear : written(others, words[best]);
    return { group, gloss: mark && share >= CLEAR ? `${gloss} (${mark})` : gloss, share };
  });
}

/** The cross-attention of all heads in one matrix, each head counted by how well it aligns; `rows(layer, head)` gives one. */
export function looked(aligner, layers, rows) {
  const heads = layers.flatMap((layer) =>
    aligner.all[layer].map((share, head) => [layer, head, share]),
  );
  const first = rows(...heads[0]);
  const all = first.map((row) => new Float64Array(row.length));
  for (const [layer, head, share] of heads) {
    rows(layer, head).forEach((row, i) => row.forEach((w, j) => (all[i][j] += share * share * w)));
  }
  return all;
}

const kept = new WeakMap();

/** Where a translation looked; before the page is whole, and in a long sentence's trace, the heads of fewer layers are there. */
function lookedIn(trace, whole) {
  const name = (layer) => `${trace.path("cross", layer)}.weights`;
  const layers = whole
    ? range(trace.layers("cross")).filter((layer) => trace.has(name(layer)))
    : [trace.aligner.layer];
  return looked(trace.aligner, layers, (layer, head) => trace.tensor(name(layer)).rows({ head }));
}

/** The glosses of the translation on show, of whichever side is foreign. */
export function glossed(trace, whole = true) {
  const known = kept.get(trace);
  if (known?.whole === whole) return known.glosses;
  const rows = lookedIn(trace, whole);
  const [source, target] = [trace.source.tokens, trace.target.output_tokens];
  const glosses =
    glossedSide(trace) === "target"
      ? glossesOf(target, source, (i, j) => rows[i][j], trace.model.target)
      : glossesOf(source, target, (i, j) => rows[j][i], trace.model.source);
  kept.set(trace, { whole, glosses });
  return glosses;
}

export const glossLine = ({ gloss = "", share = 0 }) =>
  html`<small
    class="gloss"
    lang="en"
    data-gloss=${gloss}
    .tip=${gloss ? T.tip(gloss, number(share, 2)) : null}
    >${gloss || " "}</small
  >`;

/** A text with its glosses; `marks` says which of its words are to be marked as changed. */
export function glossedText(tokens, glosses, marks = null) {
  const groups = glosses.filter(({ group }) => group.some((i) => !/^<.*>$/.test(tokens[i])));
  if (!groups.length) return html`<em>${T.nothing}</em>`;
  return html`<span class="glossed"
    >${groups.map(({ group, ...rest }, n) => {
      const text = written(tokens, group);
      return html`<span class="word"
        >${marks?.[n] ? html`<mark class="changed"><bdi>${text}</bdi></mark>` : html`<bdi>${text}</bdi>`}${glossLine(rest)}</span
      > `;
    })}</span
  >`;
}

/** What the glosses are, and the grammar that the case turns on; said once. */
export const glossNote = (trace) => {
  const foreign = trace.model[glossedSide(trace)];
  const grammar = T.notes[foreign];
  return grammar
    ? html`<aside class="note">
        <p><b>${grammar.title}</b> ${grammar.text}</p>
        <p class="soft">${T.source}</p>
      </aside>`
    : nothing;
};
