// The head sweep's result for one word: how much each head's ablation changes its probability.

import { headName } from "onehop/headgrid.js";
import { maxOf, sum } from "onehop/maths.js";
import { joinPieces, wordAt } from "onehop/words.js";

export const TOP_HEADS = 10;

/** The piece indices of the word in question: the cursor's word, or the word at `step`. */
export const wordInQuestion = (view, step = null) =>
  wordAt(
    view.trace.target.output_tokens,
    step ?? (view.cursor.side === "target" ? view.cursor.index : view.selection.step),
  );

/**
 * A head's attention row while a piece is written. Encoder heads have no such row, so the source word's row is used.
 */
function attentionRow(view, { role, layer, head }, step) {
  const weights = view.trace.tensor(`${view.trace.path(role, layer)}.weights`);
  const query = role === "encoder" ? view.selection.source : step;
  return Array.from(weights.at({ head, query }));
}

/** Every head with the change of the word's log-probability without it, and its largest attention weight. */
export function headEffects(view, word = wordInQuestion(view)) {
  return view.sweep.parts.flatMap(({ role, layer, effect, top }) =>
    effect.map((effects, head) => {
      const row = attentionRow(view, { role, layer, head }, word[0]);
      return {
        role,
        layer,
        head,
        effect: sum(word.map((step) => effects[step])),
        topWithout: top[head][word[0]],
        row,
        maxWeight: maxOf(row),
      };
    }),
  );
}

export const sortedByEffect = (heads) => [...heads].sort((a, b) => a.effect - b.effect);

/** How many of the heads with the sharpest attention are also among those with the largest effect. */
function overlapSize(heads) {
  const topNames = (by) => new Set([...heads].sort(by).slice(0, TOP_HEADS).map(headName));
  const byWeight = topNames((a, b) => b.maxWeight - a.maxWeight);
  return [...topNames((a, b) => Math.abs(b.effect) - Math.abs(a.effect))].filter((name) =>
    byWeight.has(name),
  ).length;
}

/**
 * The result of a finished sweep for one word; null before its end. Each of the `flipping` heads alone changes the
 * first choice.
 */
export function sweepResult(view, step = null) {
  if (view.sweep.state !== "done") return null;
  const word = wordInQuestion(view, step);
  const heads = headEffects(view, word);
  const { top, chosen } = view.trace.steps[word[0]];
  const isFirstChoice = top[0].id === chosen.id; // the beam may have preferred another token
  const flipping = isFirstChoice ? heads.filter((h) => h.topWithout[0][0] !== chosen.token) : [];
  const [strongest, second] = sortedByEffect(heads);
  const flips = flipping.some((h) => headName(h) === headName(strongest));
  const standsOut = flips && strongest.effect < 2 * (second?.effect ?? 0);
  const before = Math.exp(sum(word.map((i) => Math.log(view.trace.steps[i].chosen.p))));
  return {
    word,
    text: joinPieces(view.trace.target.output_tokens, word),
    heads,
    strongest,
    flipping,
    flips,
    standsOut,
    isFirstChoice,
    before,
    after: before * Math.exp(strongest.effect),
    overlap: overlapSize(heads),
    answer: standsOut ? "one" : flipping.length ? "several" : "none",
  };
}

export const headOffEdit = ({ role, layer, head }) => `head=off@${role}.${layer}.${head}`;

/** Whether the page can translate with an edit: a server makes any, an exported file holds some. */
export const canMake = ({ backend, about }, edit) =>
  backend.kind === "live" || about.edits.some(({ edits }) => edits.includes(edit));

/** A readable name of an edit: that of its switch if it has one. */
export function editLabel({ about }, edit) {
  const offered = about.edits.find(({ edits }) => edits.join() === edit);
  if (offered) return offered.label;
  const [, role, layer, head] = edit.match(/^head=off@(\w+)\.(\d+)\.(\d+)$/) ?? [];
  return role ? `${headName({ role, layer: Number(layer), head: Number(head) })} off` : edit;
}
