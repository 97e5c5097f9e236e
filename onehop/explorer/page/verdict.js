// What is known about a translation: whether its pronoun is right, and where the model was least certain.

import { argmax } from "onehop/maths.js";
import { beginsWord, piece } from "onehop/format.js";
import { allWords } from "onehop/words.js";

const PRONOUN = /^▁(er|sie|es)$/;
const ARTICLES = { er: "der", sie: "die", es: "das" };
const hasLetters = (token) => /\p{L}/u.test(token);

/**
 * Whether the pronoun for “it” is right. The measured list has sentences with the noun that “it” means and the
 * pronoun that German needs; for any other sentence or language the verdict is null.
 */
export function pronounVerdict(trace, measured) {
  const sentence = measured.coreference?.sentences.find((s) => s.source === trace.source.text);
  if (!sentence || trace.model.source !== "en" || trace.model.target !== "de") return null;
  const written = trace.target.output_tokens;
  const step = written.findIndex((token, i) => i > 0 && PRONOUN.test(token));
  if (step < 0 || !trace.target.text.toLowerCase().includes(sentence.german.toLowerCase()))
    return null;
  const [pronoun, needed] = [piece(written[step]), sentence.expected];
  const english = sentence.noun.map((i) => piece(sentence.tokens[i])).join("");
  return {
    step,
    right: pronoun === needed,
    written: pronoun,
    needed,
    english,
    german: `${ARTICLES[needed]} ${sentence.german}`,
  };
}

const APOSTROPHE = /^['’]/;

/** Whether a piece begins a word. In French “l” in “l’eau” does not count; the piece after the apostrophe does. */
function startsWord({ target, model }, step) {
  const tokens = target.output_tokens;
  if (model.target !== "fr") return beginsWord(tokens[step]);
  const isCut = APOSTROPHE.test(tokens[step + 1] ?? "");
  return !isCut && (beginsWord(tokens[step]) || APOSTROPHE.test(tokens[step - 1] ?? ""));
}

/**
 * The word where the two most probable pieces were closest, with the most probable other piece; null if no word was
 * written.
 */
export function leastCertain(trace) {
  const words = trace.steps
    .map((s, step) => ({ step, first: s.top[0], second: s.top[1] }))
    .filter(({ step, second }) => {
      const token = trace.target.output_tokens[step];
      return second && startsWord(trace, step) && hasLetters(token) && !/^<.*>$/.test(token);
    });
  if (!words.length) return null;
  const { step, first, second } =
    words[argmax(words.map(({ first, second }) => second.p - first.p))];
  const { chosen } = trace.steps[step]; // the beam may have preferred another piece than the first
  return { step, written: chosen, rival: first.id === chosen.id ? second : first };
}

/**
 * The words of the source that “it” and its noun are, as indices of their pieces; null if the measured list does not
 * have the sentence. A model may cut the words into other pieces than the one that was measured.
 */
export function pronounAndNoun({ source }, measured) {
  const sentence = measured.coreference?.sentences.find((s) => s.source === source.text);
  if (!sentence) return null;
  const [own, listed] = [source.tokens, sentence.tokens].map(allWords);
  const wordOf = (index) => own[listed.findIndex((word) => word.includes(index))];
  const [pronoun, noun] = [wordOf(sentence.it[0]), wordOf(sentence.noun[0])];
  return pronoun && noun ? { pronoun, noun } : null;
}

/** The step that the page opens on: the judged pronoun, else the least certain word. */
export const openingStep = (trace, measured) =>
  pronounVerdict(trace, measured)?.step ?? leastCertain(trace)?.step ?? 0;

/** The source piece with the largest weight of the best-aligning head at a step. */
export function alignedSource(trace, step) {
  const { layer, head } = trace.aligner;
  return argmax(
    Array.from(trace.tensor(`${trace.path("cross", layer)}.weights`).at({ head, query: step })),
  );
}
