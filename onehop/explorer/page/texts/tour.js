// The texts of the tour, one or two sentences a stop; `f` holds facts of the current sentence.

import { html } from "onehop/vendor/lit-html.js";
import { headName } from "onehop/headgrid.js";
import { percent, piece } from "onehop/format.js";

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
  f.verdict
    ? html`German has three words for “it”, by the gender of the noun. “It” is the
      ${f.verdict.english}, which is ${gender(f.verdict.needed)}: ${q(f.verdict.needed)}.
      ${f.verdict.right ? html`The model wrote exactly that. Which part of it knew?` : html`The model wrote ${q(f.verdict.written)}, the ${gender(f.verdict.written)} one. Which part of it decided that?`}`
    : html`The model hesitated most at ${word(f)}. The small English words below the translation
      show what came from where. Who decided this one?`;

const lookedAt = ({ attended, weight, language, strongest }) =>
  html`It looked most at ${q(attended)} (${weight}).
  ${
    strongest.role === "decoder" && ARTICLES[language]?.includes(attended.toLowerCase())
      ? "That is an article in the model's own translation, and articles show a gender. This kind of head cannot see the English at all."
      : strongest.role === "decoder"
        ? "That is a word which the model itself had written. This kind of head cannot see the source at all."
        : strongest.role === "cross"
          ? "That is a word of the source sentence."
          : "It did its work while the source was read, before a word was written."
  }`;

const sweeping = (f) =>
  html`Every head is switched off in turn: ${f.sweep.parts.length} of ${f.sweep.total || "…"}
  attentions are done.`;

const strongestHead = (f) =>
  f.finding.answer === "none"
    ? html`No head alone changes ${q(f.finding.text)}. The strongest, with the ring, is
      ${f.finding.head}: ${f.finding.before} becomes ${f.finding.after}.`
    : html`${f.finding.answer === "one" ? "One head stands out" : "Several heads matter, this one most"},
      the cell with the ring: ${f.finding.head}. Without it, the probability of ${q(f.finding.text)}
      goes from ${f.finding.before} to ${f.finding.after}, and ${q(f.finding.instead)} takes the
      lead.`;

/** Whether the new pronoun is right, for readers who do not know the language. */
const judgement = ({ verdict }) =>
  verdict
    ? html`Its word for “it” is now ${q(verdict.written)}, which is
      ${verdict.right ? "right" : "wrong"}.`
    : "";

const proof = (f) => {
  if (!f.finding) return sweeping(f);
  if (!f.canProve)
    return html`This file cannot switch off ${f.finding.head}, so here the positions are gone: read
      what becomes of the sentence. <code>onehop explore</code> can do the rest.`;
  if (f.busy) return html`The model translates again without ${f.finding.head} …`;
  return f.base === f.now
    ? html`Without ${f.finding.head} the model still writes the same. One head was not enough: the
      search found another way to the same words.`
    : html`Without ${f.finding.head} the model writes: ${q(f.now)} ${judgement(f)} This is the
      proof, and no picture of weights could have given it.`;
};

export const TOUR = {
  label: "Tour",
  of: (stop, all) => `Stop ${stop} of ${all}`,
  back: "Back",
  next: "Next",
  play: "Play",
  leave: "Leave",
  keys: "← → move, space plays, Esc leaves",
  finding: ({ answer, text, strongest, before, after, attended, language }) => ({
    answer,
    text,
    strongest,
    attended: piece(attended),
    weight: percent(Math.max(...strongest.row), 0),
    language,
    head: headName(strongest),
    before: percent(before, 0),
    after: percent(after, 0),
    instead: piece(strongest.topWithout[0][0]),
  }),
  stops: [
    (f) => ({ title: html`Who told it to write ${word(f)}?`, text: question(f) }),
    (f) => ({
      title: "Reading left to right",
      text: html`Older networks passed one small summary from word to word. From the first of
      ${f.sourceLength} pieces to the last it takes ${f.sourceLength - 1} steps, and at each
      something is lost.`,
    }),
    (f) => ({
      title: "A word is a point",
      text: html`The text is cut into pieces, mostly whole words. Each becomes ${f.settings.d_model}
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
      text: "The softmax turns these fits into shares that add up to 100%. Press space to follow it: a clear lead takes nearly everything.",
    }),
    () => ({
      title: "The values are mixed",
      text: "Each source word offers a list of numbers, its value. The values are added by their shares. The gold line is the sum, and the head passes it on.",
    }),
    () => ({
      title: "All questions at once",
      text: html`Every row is one written piece, every column one piece of the source. This head
      works like a dictionary: its dark cells say which word came from which.`,
    }),
    () => ({
      title: "The future is hidden",
      text: "The half of the model that writes also looks back at its own words, but only at those already written. Press space and the mask falls over the rest.",
    }),
    (f) => ({
      title: "All heads",
      text: html`Here are all ${f.heads} heads, each with its own way of looking. One of them may
      have decided ${word(f)}. Which one would you guess?`,
    }),
    (f) => ({
      title: "Switch them off",
      text: f.finding ? strongestHead(f) : sweeping(f),
    }),
    (f) => ({
      title: "Where it looked",
      text: f.finding
        ? html`This is ${f.finding.head} at the moment of decision. ${lookedAt(f.finding)}`
        : sweeping(f),
    }),
    (f) => ({
      title: "When the mind is made up",
      text: html`A layer is one round of looking and computing, and ${f.settings.n_decoder_layers}
      of them write. After each, one can ask which word would come next. Watch where ${word(f)}
      takes the lead, or never does.`,
    }),
    (f) => ({ title: "The proof", text: proof(f) }),
    (f) => ({
      title: "The whole machine",
      text: html`${f.settings.n_encoder_layers} layers read, ${f.settings.n_decoder_layers} write.
      The cells are the heads, coloured by what the word loses without them. Open a layer to go
      inside.`,
    }),
    (f) => ({
      title: "What holds, and what does not",
      text: html`Here is every popular claim with its verdict for this model.
      ${f.live ? "Now type a sentence of your own: the page will find its story." : html`<code>onehop explore</code> opens a sentence of your own.`}`,
    }),
  ],
};

export const GLOSS = {
  unclear: "·",
  nothing: "nothing at all",
  tip: (gloss, share) => `${gloss}: ${share} of the look at all words`,
  pronouns: GENDERS,
  source:
    "The small English words were measured: each is the word that the cross-attention looked at, every head counted by how well it aligns. Only the gender of a pronoun comes from a list. A dot means that the look is spread over several words, or that another word looks at the same one more.",
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
