// An interlinear gloss: under each foreign word the word that it attends to most.

import { html, nothing } from "onehop/vendor/lit-html.js";
import { argmax, range, sum } from "onehop/maths.js";
import { beginsWord, number } from "onehop/format.js";
import { TEXTS } from "onehop/texts.js";
import { joinPieces } from "onehop/words.js";

const T = TEXTS.gloss;
const [MIN_SHARE, CLEAR_SHARE] = [0.25, 0.5]; // of a word's attention: less says nothing, more says enough
const isWord = (token) => /[\p{L}\p{N}]/u.test(token) && !/^<.*>$/.test(token);

/** The side with glosses: the foreign one. */
export const glossedSide = ({ model }) => (model.target === "en" ? "source" : "target");

/** Pieces grouped at spaces: a word and the comma after it are one group. */
export function groupsOf(tokens) {
  const groups = [];
  tokens.forEach((token, i) => {
    if (beginsWord(token) || !groups.length) groups.push([]);
    groups.at(-1).push(i);
  });
  return groups;
}

/** The words of a list of pieces, without the punctuation around them. */
const wordsOf = (tokens) =>
  groupsOf(tokens)
    .map((group) => {
      const inside = group.map((i) => isWord(tokens[i]));
      return group.slice(inside.indexOf(true), inside.lastIndexOf(true) + 1);
    })
    .filter((group) => group.some((i) => isWord(tokens[i])));

/**
 * A gloss and its share for each group; `weight(i, j)` is the attention between piece i and piece j of the other
 * side. A word gets a gloss if it gives one word half of its attention, or looks at that word more than all others do.
 * So an article that looks at the verb has none.
 */
export function alignedGlosses(tokens, others, weight, language) {
  const words = wordsOf(others);
  const looks = groupsOf(tokens).map((group) => {
    const own = group.filter((i) => isWord(tokens[i]));
    if (!own.length || !words.length) return { group, own, best: null, share: 0 };
    const shares = words.map((word) => sum(own.flatMap((i) => word.map((j) => weight(i, j)))));
    const best = argmax(shares);
    return { group, own, best, share: shares[best] / (sum(shares) || 1) };
  });
  return looks.map(({ group, own, best, share }) => {
    if (best === null) return { group, gloss: "", share };
    const isStrongest = looks.every((other) => other.best !== best || other.share <= share);
    if (share < MIN_SHARE || (share < CLEAR_SHARE && !isStrongest))
      return { group, gloss: T.unclear, share };
    const mark = T.pronouns[language]?.[joinPieces(tokens, own).toLowerCase()];
    const gloss = joinPieces(others, words[best]);
    return { group, gloss: mark ? `${gloss} (${mark})` : gloss, share };
  });
}

/** The cross-attention of all heads in one matrix, weighted by how well each head aligns. */
export function combinedAttention(aligner, layers, rows) {
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

const cache = new WeakMap();

/** The available cross-attention. A partial trace, and that of a long sentence, has fewer layers. */
function attentionOf(trace, isComplete) {
  const name = (layer) => `${trace.path("cross", layer)}.weights`;
  const layers = isComplete
    ? range(trace.layers("cross")).filter((layer) => trace.has(name(layer)))
    : [trace.aligner.layer];
  return combinedAttention(trace.aligner, layers, (layer, head) =>
    trace.tensor(name(layer)).rows({ head }),
  );
}

/** The glosses of a translation on its foreign side. */
export function traceGlosses(trace, isComplete = true) {
  const cached = cache.get(trace);
  if (cached?.isComplete === isComplete) return cached.glosses;
  const rows = attentionOf(trace, isComplete);
  const [source, target] = [trace.source.tokens, trace.target.output_tokens];
  const glosses =
    glossedSide(trace) === "target"
      ? alignedGlosses(target, source, (i, j) => rows[i][j], trace.model.target)
      : alignedGlosses(source, target, (i, j) => rows[j][i], trace.model.source);
  cache.set(trace, { isComplete, glosses });
  return glosses;
}

export const glossLine = ({ gloss = "", share = 0 }) =>
  html`<small
    class="gloss"
    lang="en"
    data-gloss=${gloss}
    .tip=${gloss && gloss !== T.unclear ? T.tip(gloss, number(share, 2)) : null}
    >${gloss || " "}</small
  >`;

/** A text with its glosses; `marks` says which words are marked as changed. */
export function glossedText(tokens, glosses, marks = null) {
  const groups = glosses.filter(({ group }) => group.some((i) => !/^<.*>$/.test(tokens[i])));
  if (!groups.length) return html`<em>${T.nothing}</em>`;
  return html`<span class="glossed"
    >${groups.map(({ group, ...rest }, n) => {
      const text = joinPieces(tokens, group);
      return html`<span class="word"
        >${marks?.[n] ? html`<mark class="changed"><bdi>${text}</bdi></mark>` : html`<bdi>${text}</bdi>`}${glossLine(rest)}</span
      > `;
    })}</span
  >`;
}

/** A note on what the glosses are, and on the grammar of the foreign language. */
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
