// Popular claims, and how the page states its evidence.

import { html } from "onehop/vendor/lit-html.js";
import { counted } from "onehop/format.js";

const quoted = (text) => html`“<bdi>${text}</bdi>”`;

export const CLAIMS = {
  title: "What explainers say, and what this model does",
  prefix: "Explainers say:",
  here: {
    live: "In this model, in this sentence:",
    recorded: "As recorded:",
    of: (model) => `As recorded with the model ${model}:`,
  },
  answers: { yes: "yes", no: "no", partly: "partly", open: "open", unmeasured: "not measured yet" },
  measure: "Measure it",
  waiting: "The model is translating …",
  missing: "This copy has no measurement of it.",
  count: (yes, partly, no, open) =>
    `Of ${yes + partly + no + open} claims ${counted(yes, "holds", "hold")}, ${counted(partly, "holds", "hold")} in part, and ${counted(no, "does", "do")} not.${open ? ` ${counted(open, "is", "are")} open.` : ""}`,

  distance: {
    from: "recorded",
    statement: "a word far away is as easy to reach as a neighbour.",
    evidence: (distance, attention, lstm, recurrent) =>
      `Over ${distance} words, attention passes on ${attention} times the gradient that a neighbour gets. For an LSTM it is ${lstm}, for a plain recurrence ${recurrent}. The layers are untrained.`,
  },
  alike: {
    from: "live",
    statement: "a word looks at words that are like it.",
    evidence: (share, chance) =>
      `${share} of all encoder rows look most at themselves or at the word whose vector is most like theirs. Chance would give ${chance}.`,
  },
  root: {
    from: "live",
    statement: html`without the root of d<sub>k</sub> the softmax would put everything on one word.`,
    evidence: (scaled, unscaled) =>
      `The largest weight of a row is ${scaled} on average. From the same scores, undivided, it would be ${unscaled}.`,
  },
  blend: {
    from: "live",
    statement: "the output is mostly the word that is attended to.",
    evidence: (share, average) =>
      `In ${share} of all rows the output points where the first word's value points, with a cosine above 0.9. On average it is ${average}.`,
  },
  cost: {
    from: "recorded",
    statement: "attention is too slow for long texts, since its cost grows with the square.",
    evidence: ({ d, n, longest, words }) =>
      n === null
        ? `At a width of ${d} it was the faster layer at every length up to ${longest}. This sentence has ${words} pieces.`
        : `At a width of ${d} it is slower than a recurrent layer from ${n} pieces on. This sentence has ${words}.`,
  },
  meaning: {
    from: "live",
    statement: "in the encoder a pronoun takes on the meaning of its noun.",
    evidence: ({ pronoun, nearest, near, noun, far }) =>
      html`After the encoder, the vector of ${quoted(pronoun)} is nearest to that of
      ${quoted(nearest)} (cosine ${near}). To ${quoted(noun)} it has ${far}.`,
    unknown: "No pronoun with a known noun is in this sentence.",
  },
  jobs: {
    from: "recorded",
    statement: "each head has a job of its own.",
    evidence: (known, all, resting) =>
      `${known} of ${all} self-attention heads follow a pattern that one can name, in at least four sentences of five. Another ${resting} only look at the first token or the end mark.`,
  },
  coreference: {
    from: "recorded",
    statement: "an encoder head links “it” to the noun that it means.",
    evidence: (head, share, sentences) =>
      `The best candidate is ${head}. The noun is its first choice in ${share} of ${sentences} sentences.`,
  },
  looks: {
    from: "live",
    statement: "the heads that look at a word are the heads that use it.",
    evidence: (compared, shared, word) =>
      html`The ${compared} heads that look most sharply and the ${compared} with the largest effect
      on ${quoted(word)} have ${shared} in common.`,
  },
  one: {
    from: "live",
    statement: "one head decides.",
    evidence: ({ answer, text, head, before, after, instead, chance, flipping, all }) =>
      answer === "none"
        ? html`No head alone turns ${quoted(text)} into another word. The strongest is ${head}:
          ${before} becomes ${after}.`
        : html`Without ${head} the probability of ${quoted(text)} falls from ${before} to ${after},
          and the first choice is ${quoted(instead)} (${chance}).
          ${
            answer === "one" && flipping > 1
              ? html`Of the other ${all - 1} heads, ${flipping - 1} also
                ${flipping === 2 ? "changes" : "change"} it, each with less than half the effect.`
              : html`Of ${all} heads, ${flipping} ${flipping === 1 ? "changes" : "change"} it when
                switched off alone.`
          }`,
  },
  spare: {
    from: "recorded",
    statement: "most heads can be removed.",
    evidence: ({ removed, all, metric, before, after }) =>
      `${removed} of ${all} heads can go before a twentieth of the score is lost: ${before} ${metric} becomes ${after}.`,
  },
  order: {
    from: "live",
    statement: "without positions a sentence is a bag of words.",
    evidence: (text, same) =>
      same
        ? "The translation stays the same without them."
        : html`Without them the model writes: ${quoted(text)}`,
  },
  lengths: {
    from: "recorded",
    statement: "sinusoids let the model read texts longer than any in training.",
    evidence: ({ trained, within, beyond, from }) =>
      `Training saw at most ${trained} pieces. Just below that the score is ${within} BLEU, from ${from} pieces on ${beyond}.`,
  },
  correction: {
    from: "live",
    statement: "a sub-layer makes a small correction to the stream.",
    evidence: (share, all) =>
      `In ${share} of ${all} cases what is added is shorter than the stream it is added to.`,
  },
  late: {
    from: "live",
    statement: "the word is decided at the very top.",
    evidence: ({ word, from, layers, before, chance }) =>
      from === null
        ? html`${quoted(word)} is not the first choice even after layer ${layers}: the beam
          preferred it.`
        : html`${quoted(word)} is the first choice from layer ${from} of ${layers}
          on.${before === null ? "" : html` One layer earlier it is ${quoted(before)} (${chance}).`}`,
  },
  greedy: {
    from: "live",
    statement: "the likeliest next word is not always the right one to take.",
    evidence: (against, steps, beam) =>
      `The search kept ${counted(beam, "hypothesis", "hypotheses")}. ${
        against
          ? `Of ${counted(steps, "written piece")}, ${counted(against, "was", "were")} not the likeliest at that step.`
          : `Each of the ${steps} written pieces was the likeliest at its step.`
      }`,
  },
  warmup: {
    from: "recorded",
    statement: "the original order of the norms needs a gentle start.",
    evidence: (post, pre) =>
      `Without warm-up the loss ends ${post} higher with the paper's order, and ${pre} higher with the norm in front.`,
  },
};
