// What there is to find out about a translation: is it right where somebody knows, and where did the model hesitate?

import { argmax } from "onehop/maths.js";
import { beginsWord, piece } from "onehop/text.js";

const PRONOUN = /^▁(er|sie|es)$/;
const ARTICLES = { er: "der", sie: "die", es: "das" };
const hasLetters = (token) => /\p{L}/u.test(token);

/**
 * Whether the pronoun for “it” is right, judged on the translation on show. The measured list says what “it” means in its
 * sentences and which pronoun German then needs; of other sentences and languages nobody knows, and the verdict is null.
 */
export function verdict(trace, measured) {
  const known = measured.coreference?.sentences.find((s) => s.source === trace.source.text);
  if (!known || trace.model.source !== "en" || trace.model.target !== "de") return null;
  const written = trace.target.output_tokens;
  const step = written.findIndex((token, i) => i > 0 && PRONOUN.test(token));
  if (step < 0 || !trace.target.text.toLowerCase().includes(known.german.toLowerCase()))
    return null;
  const [pronoun, needed] = [piece(written[step]), known.expected];
  const english = known.noun.map((i) => piece(known.tokens[i])).join("");
  return {
    step,
    right: pronoun === needed,
    written: pronoun,
    needed,
    english,
    german: `${ARTICLES[needed]} ${known.german}`,
  };
}

const APOSTROPHE = /^['’]/;

/** Whether a word of its own begins at a place. French drops a vowel before the next word, which decides whether it does. */
function startsWord({ target, model }, step) {
  const tokens = target.output_tokens;
  if (model.target !== "fr") return beginsWord(tokens[step]);
  const isCut = APOSTROPHE.test(tokens[step + 1] ?? "");
  return !isCut && (beginsWord(tokens[step]) || APOSTROPHE.test(tokens[step - 1] ?? ""));
}

/** The word at which the two likeliest pieces were nearest to each other; null where no word was written. */
export function doubt(trace) {
  const words = trace.steps
    .map((s, step) => ({ step, first: s.top[0], second: s.top[1] }))
    .filter(({ step, second }) => {
      const token = trace.target.output_tokens[step];
      return second && startsWord(trace, step) && hasLetters(token) && !/^<.*>$/.test(token);
    });
  if (!words.length) return null;
  return words[argmax(words.map(({ first, second }) => second.p - first.p))];
}

/** The place of the noun that “it” means, where the measured list knows the sentence; else null. */
export const nounOf = (trace, measured) =>
  measured.coreference?.sentences.find((s) => s.source === trace.source.text)?.noun[0] ?? null;

/** Where the page opens: on the word that was judged, else on the one that was most in doubt. */
export const mystery = (trace, measured) =>
  verdict(trace, measured)?.step ?? doubt(trace)?.step ?? 0;

/** The source piece that the head which aligns best looks at while a piece is written. */
export function linked(trace, step) {
  const { layer, head } = trace.aligner;
  return argmax(
    Array.from(trace.tensor(`${trace.path("cross", layer)}.weights`).at({ head, query: step })),
  );
}
