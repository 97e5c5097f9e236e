// What the sweep found out about a word: which heads it hangs on.

import { called } from "onehop/headgrid.js";
import { largest, sum } from "onehop/maths.js";
import { wordAt, written } from "onehop/words.js";

export const COMPARED = 10;

/** The word in question: the places of the pieces of the cursor's word, or of the one at a step. */
export const wordOf = (view, step = null) =>
  wordAt(
    view.trace.target.output_tokens,
    step ?? (view.cursor.side === "target" ? view.cursor.place : view.selection.step),
  );

/** What an attention looks from while a piece is written; the encoder has no such row: its row is the source word's. */
function look(view, { role, layer, head }, step) {
  const weights = view.trace.tensor(`${view.trace.path(role, layer)}.weights`);
  const query = role === "encoder" ? view.selection.source : step;
  return Array.from(weights.at({ head, query }));
}

/** Every head with the effect of its absence on the word, and how much of its look goes to one place. */
export function suspects(view, word = wordOf(view)) {
  return view.sweep.parts.flatMap(({ role, layer, effect, top }) =>
    effect.map((effects, head) => {
      const row = look(view, { role, layer, head }, word[0]);
      return {
        role,
        layer,
        head,
        effect: sum(word.map((step) => effects[step])),
        instead: top[head][word[0]],
        row,
        sharp: largest(row),
      };
    }),
  );
}

export const strongestFirst = (heads) => [...heads].sort((a, b) => a.effect - b.effect);

/** How many of the heads that look most sharply are among those that matter most. */
function shared(heads) {
  const first = (by) => new Set([...heads].sort(by).slice(0, COMPARED).map(called));
  const sharp = first((a, b) => b.sharp - a.sharp);
  return [...first((a, b) => Math.abs(b.effect) - Math.abs(a.effect))].filter((name) =>
    sharp.has(name),
  ).length;
}

/**
 * The verdict of a finished sweep, for whatever was found; null before its end. `turning` heads make the model prefer
 * another first piece, each alone. `answer` is one, several or none.
 */
export function finding(view, step = null) {
  if (view.sweep.state !== "done") return null;
  const word = wordOf(view, step);
  const heads = suspects(view, word);
  const { top, chosen } = view.trace.steps[word[0]];
  const isFirstChoice = top[0].id === chosen.id; // the beam may have preferred another
  const turning = isFirstChoice ? heads.filter((h) => h.instead[0][0] !== chosen.token) : [];
  const [worst, second] = strongestFirst(heads);
  const turns = turning.some((h) => called(h) === called(worst));
  const alone = turns && worst.effect < 2 * (second?.effect ?? 0);
  const before = Math.exp(sum(word.map((i) => Math.log(view.trace.steps[i].chosen.p))));
  return {
    word,
    text: written(view.trace.target.output_tokens, word),
    heads,
    worst,
    turning,
    turns,
    alone,
    isFirstChoice,
    before,
    after: before * Math.exp(worst.effect),
    shared: shared(heads),
    answer: alone ? "one" : turning.length ? "several" : "none",
  };
}

/** The edit that switches a head off. */
export const offEdit = ({ role, layer, head }) => `head=off@${role}.${layer}.${head}`;
