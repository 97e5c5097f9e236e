// All texts of the page; another language would be another object of this form. Numbers come in already formatted.
// Long texts are in texts/.

import { html, nothing } from "onehop/vendor/lit-html.js";
import { CLAIMS } from "onehop/texts/claims.js";
import { CODA_TEXTS, QUESTIONS, REFERENCES } from "onehop/texts/coda.js";
import { CHAPTERS, CONCLUSIONS, PROSE } from "onehop/texts/essay.js";
import { STATUS } from "onehop/texts/status.js";
import { GLOSS, TOUR } from "onehop/texts/tour.js";

const quoted = (text) => html`“<bdi>${text}</bdi>”`;
const strongly = (text) =>
  html`“<strong><bdi>${text}</bdi></strong
    >”`;

export const TEXTS = {
  chapters: CHAPTERS,
  prose: PROSE,
  conclusions: CONCLUSIONS,
  conclusionLabel: "What we know now",
  claims: CLAIMS,
  tour: TOUR,
  gloss: GLOSS,
  status: STATUS,
  frame: {
    table: "as table",
    python: "copy as Python",
    link: "link",
    svg: "SVG",
    png: "PNG",
    copied: "copied",
    forbidden: "copying is not allowed here",
  },
  compare: {
    with: "Compare with",
    placeholder: "another sentence",
    begin: "Compare",
    withTrained: "the unedited model",
    withModel: (name) => `the model ${name}`,
    absent: (name) =>
      `The model ${name} is not open here: onehop explore --compare ${name} opens it.`,
    end: "Stop comparing",
    same: "No number differs.",
    largest: "They differ most in:",
    onlyLeft: "Only on the left:",
    onlyRight: "Only on the right:",
    name: (text, edits) => (edits.length ? `${text} (${edits.join(", ")})` : text),
  },
  pronouns: { en: "it", de: "es", fr: "il" }, // one of each language that has no meaning without its noun
  bar: {
    shows: "Shown",
    summary: ({ role, layer, head, token }) => `${role} · layer ${layer} · head ${head} · ${token}`,
    change: (summary) => `Selected: ${summary}. Change it`,
    words: "whole words",
  },
  words: {
    merged: "Pieces of a word are merged: looks at them are added, looks from them averaged.",
  },
  player: { play: "Play", stop: "Stop", back: "Step back", next: "Step", again: "From the start" },
  coda: { ...CODA_TEXTS, list: QUESTIONS, sources: REFERENCES },
  recordedScore: (model, right, all) =>
    `Of ${all} recorded sentences the model ${model} gets ${right} right.`,
  opening: {
    eyebrow: "onehop: inside a Transformer",
    headline: (word) => html`Who told the model to write ${quoted(word)}?`,
    noHeadline: "Look inside a Transformer",
    lead: ({ source, target, right, word }) =>
      `A Transformer read this ${source ? `${source} sentence` : "sentence"} and wrote the ${target} one${
        right === undefined
          ? ""
          : right
            ? ", with the right word for “it”"
            : ", with a wrong word in it"
      }. See every number it computed, switch off its parts, and ${
        !word
          ? "see what each does"
          : right === false
            ? "find the one that made the mistake"
            : "find the one that decided"
      }.`,
    about: "About this translation",
    alone: html`This file holds one sentence and works without a network. To look inside a sentence
      of your own, run <code>onehop explore</code>.`,
    written: (language) => `${language}, written by the edited model`,
    glossed: (label) => `${label}; below each word, its English counterpart by attention`,
    theme: { dark: "light theme", light: "dark theme" }, // what the button leads to
    tour: "Take the tour",
    tourKey: (stops) => `${stops} short stops. Press t to start, then the arrow keys.`,
    right: "right",
    wrong: "wrong",
    unjudged: "not judged",
    doubtful: "doubtful",
    confidence: (chance) =>
      `Chance that the whole translation is good, estimated from the model's own probabilities: ${chance}.`,
    unnoticed: (chance) =>
      `It did not notice: its own probabilities give the whole translation a ${chance} chance of being good.`,
    judged: ({ english, german, needed, neededChance, written, writtenChance }) =>
      html`“It” means the ${english}, in German <i lang="de">${german}</i>, so “it” must become
        <strong lang="de">${needed}</strong>. The model wrote
        <strong lang="de">${written}</strong
        >${writtenChance ? `, with a probability of ${writtenChance}` : ""}${
          neededChance ? html`; <strong lang="de">${needed}</strong> had ${neededChance}` : ""
        }.`,
    nobody: "No reference says whether this translation is right.",
    doubt: ({ written, chance, rival, rivalChance }) =>
      html`The model hesitated most at ${strongly(written)}, with a probability of ${chance};
      ${quoted(rival)} had ${rivalChance}.`,
    whoDecided: "Which head decided that?",
    whoDecidedWrongly: "Which head made this mistake?",
    breakIt: "Break the model and read what it writes",
    language: (read, reads) =>
      `This looks like ${read}, and the model was trained to read ${reads}. What follows may be nonsense.`,
    wroteNothing: "The model wrote nothing and ended the sentence.",
    aligner: ({ layer, head, share }) =>
      `shades: cross-attention, layer ${layer}, head ${head}, which aligns best here (${share} of its weight on the aligned word)`,
    lookedFrom: (word) =>
      html`Shaded: where one of the model's heads looked while it wrote ${quoted(word)}.`,
    lookedAt: (word) =>
      html`Shaded: the written words at which one of the model's heads looked at ${quoted(word)}.`,
    endMark:
      "A head is a part that looks from one word at others. Point at any word; </s> marks the end.",
    sentence: "The sentence; choose a piece to see what looked at it",
    translation: "The translation; choose a piece to see where it looked",
  },
  embeddings: {
    nearNoun: ({ pronoun, noun, cosine, nearest, largest }) =>
      html`Is ${quoted(pronoun)} near ${quoted(noun)}, which it means? Their cosine is
        <strong>${cosine}</strong>.
        ${nearest === null ? "No other word of the sentence is nearer." : html`Of this sentence's words ${quoted(nearest)} is nearest (${largest}).`}`,
  },
  projections: {
    component: "Component",
    column: (component) => `column ${component} of W`,
    turned: "lies on its side",
    sum: ({ component, concept, terms, largest, total }) =>
      html`Component ${component} of the ${concept} is the sum of ${terms} products: each number of
        the input times the number below it in column ${component} of W. The largest are ${largest}.
        Together they make <strong>${total}</strong>.`,
    bias: "The bias is added to it.",
  },
  paths: {
    kept: (vectors, d) =>
      vectors === 1
        ? `Kept of the sentence: one vector of ${d} numbers, whatever its length.`
        : `Kept of the sentence: ${vectors} vectors of ${d} numbers.`,
    each: "Each word has one of its own.",
    shared: (n, share) => `Shared evenly among ${n} words, that is ${share} numbers for each.`,
    share: (word, numbers) => `word ${word}: ${numbers} numbers`,
    steps: (word, steps) => `word ${word}: ${steps} ${steps === 1 ? "step" : "steps"} from word 1`,
  },
  breaking: {
    headOnShow: "the selected head off",
    onlyHeadOnShow: "only the selected head, in its attention",
    strongest: (head) => `the strongest head off: ${head}`,
    nothing: "Nothing is broken. Throw a switch, or start with one of these:",
    preset: "take the positions away",
    presetHead: "switch off the strongest head",
    why: {
      "scale=off":
        "Undivided scores are far apart, so each head puts nearly all its weight on one word and hears nobody else.",
      scale:
        "With another divisor every look is sharper or blurrier than the layers above were trained for.",
      "mask=off":
        "Every position now mixes in words that are not written yet, and the model never learned to read them.",
      "positions=off":
        "Without positions the sentence is a bag of words: who does what to whom has to be guessed.",
      "positions=shuffled":
        "The encoder believes another word order, so it translates a sentence that nobody said.",
      "head=off":
        "This head's output is zero, so whatever it alone had fetched is missing in the layers above.",
      "head=only":
        "One head must do the work of all in this attention, and what the others fetched is gone.",
      "heads=averaged":
        "All heads look where they look on average, so none can look at one word alone any more.",
      "residual=off":
        "Each sub-layer was trained to make a correction; alone, the corrections are all that is left of the words.",
      "norm=off":
        "The vectors grow from layer to layer, and later layers get numbers of a size they have never seen.",
    },
  },
  scores: {
    player: "A query meets one key after the other",
    met: (query, key, score) => html`${quoted(query)} meets ${quoted(key)}: ${score}`,
    waiting: "not yet met",
    products: (key, count, largest, score) =>
      `${key}: ${count} products, the largest ${largest}; together ${score}`,
    hint: "Point at a bar to see its largest products; the machine in chapter 9 draws all of them.",
  },
  softmax: {
    player: "The softmax, step by step",
    stages: (divisor = "") => [
      "the scores, as they are",
      `divided by ${divisor}`,
      "e to the power of each",
      "each divided by the sum: shares",
    ],
  },
  blend: {
    player: "The values are weighed and summed",
    added: (key, weight) => html`${weight} × ${quoted(key)} is added`,
    none: "nothing is added yet",
    stack: "Weighted and stacked;",
    sum: "in gold the sum, the output of",
    stackLabel: "The weighted values stacked for each component, and their sum",
    rest: (count) => `the other ${count} together`,
  },
  mask: {
    player: "The mask falls, row by row",
    fallen: (row, hidden) => html`the row of ${quoted(row)}: ${hidden} later positions get −∞`,
    none: "nothing is hidden yet",
    headings: ["Scores", "After the mask", "Weights"],
    legend: ["score above 0", "score below 0", "weight"],
  },
  residual: {
    river:
      "The stream from layer to layer, as wide as its vector is long, and what each sub-layer adds",
    stream: "the stream",
    post: "After each addition a norm sets the stream's length anew.",
    pre: "No norm stands in the stream, so it grows with what flows in.",
    tip: (layer, name, stream, added, cosine) =>
      `layer ${layer}, ${name}: adds ${added} to a stream of ${stream}, cosine ${cosine}`,
    inLayer: (layer, added) =>
      `In layer ${layer}, ${added.map(([name, share, cosine], i) => `${name} adds ${share}${i ? "" : " of the stream's length"} (cosine ${cosine})`).join(", ")}.`,
    adds: (added, stream, narrow) =>
      narrow ? `+${added} to ${stream}` : `adds ${added} to ${stream}`,
  },
  beam: {
    finished: "Finished hypotheses, best first",
    unfinished: "No hypothesis was finished before the longest length.",
    columns: ["hypothesis", "score", "log-probability", "pieces"],
    player: "The beam grows, step by step",
    grown: (step, word) => html`step ${step}: the translation goes on with ${quoted(word)}`,
    none: "only the start sign",
  },
  decides: {
    title: "Which head decides?",
    picker: "The word in question",
    start: (heads) => `Switch off each of the ${heads} heads in turn`,
    idle: "The translation stays; only its probability is computed again.",
    cancelled: "Cancelled.",
    cancel: "Cancel",
    progress: (done, total) => `${done} of ${total} attentions`,
    byLook: (source) =>
      html`By look: the largest weight while the word is written (encoder: from ${quoted(source)})`,
    byEffect: "By effect: what the word loses when the head is off",
    byEffectShort: "What the word loses without the head",
    grids: { look: "by look", effect: "by effect" },
    gridsLabel: "Which grid",
    lookLabel: "All heads by how sharply they look",
    effectLabel: "All heads by their effect on the word",
    look: (share, key) => `${share} on “${key}”`,
    effect: (effect, piece, chance) => `${effect} without it, then “${piece}” ${chance}`,
    less: (most) => `log-probability falls without it, at most by ${most}`,
    more: "rises without it",
    ring: "ring: the strongest; shades: square roots",
    answers: { one: "one head", several: "several heads", none: "no single head" },
    decides: (head, word) => html`One head decides ${quoted(word)}: <strong>${head}</strong>.`,
    strongest: (head, word) => html`The strongest for ${quoted(word)} is <strong>${head}</strong>.`,
    falls: (before, after) =>
      html`Without it the word's probability goes from ${before} to <strong>${after}</strong>, and`,
    flips: (piece, chance) => html`the model would rather write ${strongly(piece)} (${chance}).`,
    stays: (piece) => html`the model's first choice is ${quoted(piece)}.`,
    notFirst:
      "The word was not the model's first choice here; the beam preferred it for what follows.",
    flipping: (count, heads, alone) =>
      alone
        ? `Of the other ${heads - 1} heads, ${count - 1} also turn the choice when they alone are off, each with less than half this effect.`
        : `${count} of ${heads} heads turn the choice when they alone are off.`,
    noOther: (heads) => `No other of the ${heads} heads turns the choice.`,
    noneTurns: (heads) =>
      `None of the ${heads} heads turns the choice alone: the word has more than one support.`,
    overlap: (count, common) =>
      html`The ${count} heads that look most sharply and the ${count} with the largest effect have
        <strong>${common}</strong> in common.`,
    looks: (head, word) => html`Where ${head} looks from ${quoted(word)}`,
    show: "Show it everywhere",
    proof: "Translate without it",
    early: "The server ended the answer early. Try again.",
    caption:
      "A head's effect is the change in the log-probability of the word, given the same words before it, when that head alone puts out zeros. A look is not a cause: the two pictures need not agree.",
  },
  lens: {
    title: "When is the word known? The logit lens",
    picker: "The word in question",
    axis: "after decoder layer; below it, its first choice",
    most: (layer, layers) => html`Most changes in <strong>layer ${layer}</strong> of ${layers}`,
    changes: (before, after) =>
      html`: before it the first choice is ${strongly(before[0])} (${before[1]}), after it
      ${strongly(after[0])} (${after[1]}).`,
    becomes: (after) => html`, where the first choice becomes ${strongly(after[0])} (${after[1]}).`,
    overrules: "The last layer overrules those below it.",
    written: (piece, chance) => html`Written in the end: ${quoted(piece)} (${chance}).`,
    caption: (tied) =>
      `The vector after each layer, put through the ${tied ? "tied " : ""}output matrix as if that layer were the last. Only the last layer was trained to be read so: an early layer's numbers show a tendency, not a belief.`,
  },
  neurons: {
    title: "Which neurons fire, and what they write",
    picker: "Token",
    layer: "Layer",
    of: (stack) => `of the ${stack}`,
    fires: (word, count, all, share) =>
      html`At ${strongly(word)}, <strong>${count}</strong> of ${all} neurons are above zero,
        ${share}.`,
    field: (count) => `${count} neurons, darker fires more`,
    neuron: (number, value) => `neuron ${number}: ${value}`,
    strongest: (count) => `The ${count} that fire most`,
    reading: "Reading what they write …",
    columns: ["neuron", "fires", "adds a vector of length", "towards", "away from"],
    encoder:
      "No output matrix reads the encoder's vectors, so what its neurons write has no words.",
    caption: ({ d_model, d_ff, activation }) =>
      `Each position on its own: ${d_model} numbers become ${d_ff}, ${activation === "relu" ? "those below zero are set to zero" : `bent by ${activation}`}, and each one left adds its own vector to the stream. What it writes towards is read directly through the output matrix, past the layers above; many neurons mean nothing that one can name.`,
  },
  machine: {
    title: "The whole machine, at work",
    whole: "whole machine",
    layer: (stack, layer) => `${stack}, layer ${layer}`,
    family: {
      label: "The same parts in",
      transformer: "Encoder and decoder: it reads one text and writes another.",
      bert: "BERT keeps the encoder. Every position sees all others, and a word that was hidden is guessed where it stood.",
      gpt: "GPT keeps the decoder without its cross-attention: it reads only what it has written, and goes on.",
      vit: "ViT keeps the encoder and feeds it the patches of an image in place of words; an extra token gathers the answer.",
    },
    ratio: (encoder, decoder) =>
      html`Feed-forward against attention in one layer:
        <strong data-ratio="encoder">${encoder}</strong> times the parameters in the encoder,
        <strong data-ratio="decoder">${decoder}</strong> in the decoder, which has two attentions.`,
    tied: (size) =>
      size
        ? `The matrix of ${size} stands in three places (both embeddings and the linear layer) and is counted once: to read a piece and to write one are mirror images.`
        : nothing,
    inAll: (count) => html`In all: <strong>${count}</strong> parameters.`,
    captions: {
      whole: (swept) =>
        `Read from the bottom. A cell is a head, coloured ${swept ? "by what the word under the cursor loses without it (figure “Which head decides?”)" : "by how sharply it looks from the word under the cursor"}; the green bar is the share of neurons that fire, beside the fullest layer's. Beside the decoder stands what each layer would write. Dashed: the residual path. A layer opens; every other box leads to its figure.`,
      layer: (pre) =>
        `Solid beside each box: the residual path, which adds what came in to what the sub-layer made. Numbers are lengths of the vectors at the cursor's word. ${pre ? "This model normalises before each sub-layer." : "This model normalises after each addition, as the paper does."} Escape goes back.`,
      head: "One row of the attention matrix, as it is computed: the query meets each key, the softmax makes shares, the shares weigh the values. Escape goes back.",
      dot: "A dot product, component by component. The three combs have scales of their own. Escape goes back.",
    },
  },
};
