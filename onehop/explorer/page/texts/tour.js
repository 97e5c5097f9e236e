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
      ${f.judged.right ? html`The model wrote just that. Who knew?` : html`The model wrote ${q(f.judged.written)}, the ${gender(f.judged.written)} one. Who is to blame?`}`
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
    ? html`No head alone changes ${q(f.found.text)}. The strongest is ${f.found.head}:
      ${f.found.before} becomes ${f.found.after}.`
    : html`Without ${f.found.head}, ${q(f.found.text)} falls from ${f.found.before} to
      ${f.found.after}, and ${q(f.found.instead)} takes the lead.`;

const proof = (f) => {
  if (!f.live)
    return html`This file cannot switch off any head, so here the positions are gone: read what
      becomes of the sentence. <code>onehop explore</code> can do the rest.`;
  if (!f.found) return sweeping(f);
  if (f.busy) return html`The model translates again without ${f.found.head} …`;
  return f.base === f.now
    ? html`Without ${f.found.head} the model still writes the same. One head was not enough: the
      search found another way to the same words.`
    : html`${q(f.now)} That is what the model writes without ${f.found.head}. It is the proof, and
      no picture of weights could have given it.`;
};

export const TOUR = {
  label: "Tour",
  of: (stop, all) => `Stop ${stop} of ${all}`,
  back: "Back",
  next: "Next",
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
      text: html`Older networks passed one small summary from word to word. ${f.n} pieces mean
      ${f.n - 1} hands, and at each of them something is lost.`,
    }),
    (f) => ({
      title: "A word is a point",
      text: html`Each piece becomes ${f.s.d_model} numbers from a table. The row of ${q(f.pronoun)}
      is the same in every sentence, so its meaning must come from other words.`,
    }),
    (f) => ({
      title: "A query meets the keys",
      text: html`While the model writes ${word(f)}, it asks a question. Each bar is how well one
      source word answers it. Press space to watch.`,
    }),
    () => ({
      title: "The softmax makes shares",
      text: "The fits compete for shares of one whole. Press space to see them scaled, raised and shared out: a clear lead becomes nearly everything.",
    }),
    () => ({
      title: "The values are mixed",
      text: "Each word's value is taken by its share and added. The gold line is what the asking word takes home.",
    }),
    (f) => ({
      title: "All questions at once",
      text: html`Every row is one written piece, every column one piece of the source. This head
      works like a dictionary: its dark cells say which word came from which.`,
    }),
    () => ({
      title: "The future is hidden",
      text: "The half that writes looks back at its own words too, but only at those already there. Press space and the mask falls.",
    }),
    (f) => ({
      title: "The line-up",
      text: html`All ${f.heads} heads, each with its own way of looking. Somewhere here may stand
      the one that decided ${word(f)}. Which one would you accuse?`,
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
      text: html`After each layer the stream can be read as if it were the last. Watch the layer in
      which ${word(f)} takes the lead, or never does.`,
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
