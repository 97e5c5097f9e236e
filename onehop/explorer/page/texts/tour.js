// What the tour says at each stop, one or two sentences; `f` holds the facts of the sentence on show.

import { html } from "onehop/vendor/lit-html.js";
import { called } from "onehop/headgrid.js";
import { percent, piece } from "onehop/text.js";

const q = (text) => html`“<bdi>${text}</bdi>”`;
const word = (f) => (f.word ? q(f.word) : "the word");

const GENDERS = {
  de: { er: "masc.", sie: "fem.", es: "neuter" },
  fr: { il: "masc.", elle: "fem." },
};
const ARTICLES = { de: ["der", "die", "das"], fr: ["le", "la"] };
const LONG = { "masc.": "masculine", "fem.": "feminine", neuter: "neuter" };
const gender = (pronoun) => LONG[GENDERS.de[pronoun]];

const question = (f) =>
  f.judged
    ? html`German has three words for “it”, by the gender of the noun. “It” is the
      ${f.judged.english}, which is ${gender(f.judged.needed)}: ${q(f.judged.needed)}.
      ${f.judged.right ? html`The model wrote exactly that. Which part of it knew?` : html`The model wrote ${q(f.judged.written)}, the ${gender(f.judged.written)} one. Which part of it is to blame?`}`
    : html`The model hesitated most at ${word(f)}. The small English words below the translation
      show what came from where. Who decided this one?`;

const looked = ({ looked: at, weight, language, worst }) =>
  html`It looked most at ${q(at)} (${weight}).
  ${
    worst.role === "decoder" && ARTICLES[language]?.includes(at.toLowerCase())
      ? "That is an article in the model's own translation, and articles show a gender. This kind of head cannot see the English at all."
      : worst.role === "decoder"
        ? "That is a word which the model itself had written. This kind of head cannot see the source at all."
        : worst.role === "cross"
          ? "That is a word of the source sentence."
          : "It did its work while the source was read, before a word was written."
  }`;

const sweeping = (f) =>
  html`Every head is switched off in turn: ${f.sweep.parts.length} of ${f.sweep.total || "…"}
  attentions are done.`;

const accused = (f) =>
  f.found.answer === "none"
    ? html`No head alone changes ${q(f.found.text)}. The strongest, with the ring, is
      ${f.found.head}: ${f.found.before} becomes ${f.found.after}.`
    : html`${f.found.answer === "one" ? "One head stands out" : "Several heads matter, this one most"},
      the dark cell with the ring: ${f.found.head}. Without it, the probability of
      ${q(f.found.text)} goes from ${f.found.before} to ${f.found.after}, and ${q(f.found.instead)}
      takes the lead.`;

/** Whether the pronoun is right now, for those who do not read the language. */
const judgement = ({ judged }) =>
  judged
    ? html`Its word for “it” is now ${q(judged.written)}, which is
      ${judged.right ? "right" : "wrong"}.`
    : "";

const proof = (f) => {
  if (!f.live)
    return html`This file cannot switch off any head, so here the positions are gone: read what
      becomes of the sentence. <code>onehop explore</code> can do the rest.`;
  if (!f.found) return sweeping(f);
  if (f.busy) return html`The model translates again without ${f.found.head} …`;
  return f.base === f.now
    ? html`Without ${f.found.head} the model still writes the same. One head was not enough: the
      search found another way to the same words.`
    : html`Without ${f.found.head} the model writes: ${q(f.now)} ${judgement(f)} This is the proof,
      and no picture of weights could have given it.`;
};

export const TOUR = {
  label: "Tour",
  of: (stop, all) => `Stop ${stop} of ${all}`,
  back: "Back",
  next: "Next",
  play: "Play",
  leave: "Leave",
  keys: "← → move, space plays, Esc leaves",
  found: ({ answer, text, worst, before, after, at, language }) => ({
    answer,
    text,
    worst,
    looked: piece(at),
    weight: percent(Math.max(...worst.row), 0),
    language,
    head: called(worst),
    before: percent(before, 0),
    after: percent(after, 0),
    instead: piece(worst.instead[0][0]),
  }),
  stops: [
    (f) => ({ title: html`Who told it to write ${word(f)}?`, text: question(f) }),
    (f) => ({
      title: "Reading left to right",
      text: html`Older networks passed one small summary from word to word. From the first of ${f.n}
      pieces to the last it takes ${f.n - 1} steps, and at each something is lost.`,
    }),
    (f) => ({
      title: "A word is a point",
      text: html`The text is cut into pieces, mostly whole words. Each becomes ${f.s.d_model}
      numbers from a table. Those of ${q(f.pronoun)} are the same in every sentence, so its meaning
      must come from other words.`,
    }),
    (f) => ({
      title: "A query meets the keys",
      text: html`The model looks at other words with ${f.heads} small units, called heads. This is
      one of them, while ${word(f)} is written: each bar says how well a source word fits its
      question. Press space to watch.`,
    }),
    () => ({
      title: "The softmax makes shares",
      text: "The softmax turns these fits into shares that add up to 100 %. Press space to follow it: a clear lead takes nearly everything.",
    }),
    () => ({
      title: "The values are mixed",
      text: "Each source word offers a list of numbers, its value. The values are added by their shares. The gold line is the sum, and the head passes it on.",
    }),
    (f) => ({
      title: "All questions at once",
      text: html`Every row is one written piece, every column one piece of the source. This head
      works like a dictionary: its dark cells say which word came from which.`,
    }),
    () => ({
      title: "The future is hidden",
      text: "The half of the model that writes also looks back at its own words, but only at those already written. Press space and the mask falls over the rest.",
    }),
    (f) => ({
      title: "The line-up",
      text: html`Here are all ${f.heads} heads, each with its own way of looking. One of them may
      have decided ${word(f)}. Which one would you accuse?`,
    }),
    (f) => ({
      title: "Switch them off",
      text: f.found ? accused(f) : sweeping(f),
    }),
    (f) => ({
      title: "Where it looked",
      text: f.found
        ? html`This is ${f.found.head} at the moment of decision. ${looked(f.found)}`
        : sweeping(f),
    }),
    (f) => ({
      title: "When the mind is made up",
      text: html`A layer is one round of looking and computing, and ${f.s.n_decoder_layers} of them
      write. After each, one can ask which word would come next. Watch where ${word(f)} takes the
      lead, or never does.`,
    }),
    (f) => ({ title: "The proof", text: proof(f) }),
    (f) => ({
      title: "The whole machine",
      text: html`${f.s.n_encoder_layers} layers read, ${f.s.n_decoder_layers} write. The cells are
      the heads, coloured by what the word loses without them. Open a layer to go inside.`,
    }),
    () => ({
      title: "What holds, and what does not",
      text: "Here is every popular claim with its verdict for this model. Now type a sentence of your own: the page will find its story.",
    }),
  ],
};

export const GLOSS = {
  unclear: "·",
  nothing: "nothing at all",
  tip: (gloss, share) => `${gloss}: ${share} of the look at all words`,
  pronouns: GENDERS,
  source:
    "The small English words were measured: each is the word that the cross-attention looked at, every head counted by how well it aligns. Only the gender of a pronoun comes from a list. A dot means that no word was clear.",
  notes: {
    de: {
      title: "German in one minute.",
      text: html`Every noun is masculine, feminine or neuter, whatever it means:
        <i lang="de">der Hund</i>, the dog; <i lang="de">die Straße</i>, the street;
        <i lang="de">das Tier</i>, the animal. A pronoun takes the gender of its noun:
        <b lang="de">er</b>, <b lang="de">sie</b>, <b lang="de">es</b>. All three are “it” in
        English.`,
    },
    fr: {
      title: "French in one minute.",
      text: html`Every noun is masculine or feminine, whatever it means: <i lang="fr">le chien</i>,
        the dog; <i lang="fr">la rue</i>, the street. A pronoun takes the gender of its noun:
        <b lang="fr">il</b> or <b lang="fr">elle</b>. Both are “it” in English.`,
    },
  },
};
