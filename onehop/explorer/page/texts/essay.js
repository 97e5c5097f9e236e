// The essay in chapters. Each figure has the prose before it. `f` holds facts of the current sentence and model, so
// that the text is true for any translation.

import { html } from "onehop/vendor/lit-html.js";
import { attention, multiHead, projections, rootOfKey, rootOfModel } from "onehop/formulas.js";

const q = (text) => html`“<bdi>${text}</bdi>”`;
const strong = (text) =>
  html`“<strong><bdi>${text}</bdi></strong
    >”`;

const opening = (f) => {
  if (!f.word)
    return html`<p>
      The model read ${q(f.source)} and wrote nothing. Choose another sentence at the top, and this
      page finds a question in its translation.
    </p>`;
  if (!f.verdict)
    return html`<p>
      Why did the model write ${strong(f.word)}? It read ${q(f.source)}, and at this word it
      hesitated more than anywhere else.
      ${f.second ? html`The other candidate was ${q(f.second)}, with ${f.secondChance} against ${f.chance}.` : ""}
      The reason lies somewhere among the model's ${f.parameters} parameters. This page looks for
      it.
    </p>`;
  const { written, needed, english, german, right } = f.verdict;
  return html`<p>
      Who told the model to write ${strong(written)}? In ${q(f.source)} the word “it” means the
      ${english}. In German that is ${q(german)}, and the pronoun must be ${q(needed)}.
      ${
        right
          ? html`The model wrote exactly that. But did it know why, or was it lucky?`
          : html`The model wrote ${q(written)}, which points at something else. That is a mistake,
            and some part of the model made it.`
      }
    </p>
    <p>
      Most explainers open with such a sentence. They show a picture in which “it” looks at its
      noun, and stop there. A picture is not yet a proof. We have the model, every number that it
      computed, and a switch for each of its parts.
    </p>`;
};

export const CHAPTERS = {
  introduction: { eyebrow: "Introduction", title: "One word, and nobody knows why" },
  tools: { eyebrow: "Before chapter 1", title: "Three small tools" },
  "chapter-1": { eyebrow: "Chapter 1", title: "Words become vectors" },
  "chapter-2": { eyebrow: "Chapter 2", title: "Query, key, value" },
  "chapter-3": { eyebrow: "Chapter 3", title: "Scores" },
  "chapter-4": { eyebrow: "Chapter 4", title: "Scale and softmax" },
  "chapter-5": { eyebrow: "Chapter 5", title: "Weighted values" },
  "chapter-6": { eyebrow: "Chapter 6", title: "The matrix" },
  "chapter-7": { eyebrow: "Chapter 7", title: "Many heads" },
  "chapter-8": { eyebrow: "Chapter 8", title: "Positions" },
  "chapter-9": { eyebrow: "Chapter 9", title: "The whole machine, and the proof" },
};

/** Each chapter's conclusion. */
export const CONCLUSIONS = {
  introduction: () =>
    html`Whatever decided the word could reach every other word directly. No word can be ruled out
    for being far away.`,
  "chapter-1": (f) =>
    html`At the start a word's vector knows only which word it is. What ${q(f.pronoun)} means here
    must come from other words, later on.`,
  "chapter-2": () =>
    html`Words exchange information only where a query meets a key. Whatever decided the word had to
    ask for something.`,
  "chapter-3": () =>
    html`Each score is one number, computed from two vectors. So we can read every question that was
    asked.`,
  "chapter-4": () =>
    html`The softmax turns scores into shares of one whole. A head can put all its weight on one
    word, or spread it over all of them.`,
  "chapter-5": () =>
    html`A large weight says that something was fetched. It does not say that the result depended on
    it.`,
  "chapter-6": () =>
    html`The decoder sees the whole source, and of its own words those already written. The decision
    can have come from either.`,
  "chapter-7": (f) =>
    !f.finding
      ? html`No head has been tested yet. Switch the heads off in figure ${f.label("decides")}, and
        the strongest one is named here.`
      : f.finding.answer === "none"
        ? html`No single head decides ${q(f.finding.text)}. The strongest is ${f.finding.head}, and
          the word stays when it is gone.`
        : html`One head has the largest hold on ${q(f.finding.text)}: ${f.finding.head}. Without it
          the first choice is ${q(f.finding.instead)} (${f.finding.chance}).`,
  "chapter-8": () =>
    html`Word order is not built in: it is added to the vectors. Every head that looks for “the word
    before” depends on it.`,
  "chapter-9": (f) =>
    !f.finding
      ? html`The question is open until the heads have been switched off in figure
        ${f.label("decides")}.`
      : f.finding.answer === "none"
        ? html`No single head decides the word: several support it. That is an answer too.`
        : html`The answer is an experiment, not a picture: take ${f.finding.head} out, and the word
          changes.`,
};

export const PROSE = {
  paths: (f) =>
    html`${opening(f)} ${f.grammarNote}
      <p>
        What kind of machine is it, and why was it built? Until 2017 most networks read a sentence
        as we do, from left to right. They kept what they had read in one vector, a list of numbers
        of fixed size, and passed it on. News of the first word had to go through every word between
        it and the last.
      </p>
      <p>
        That has two costs. A summary of fixed size must forget as the sentence grows. And word
        forty must wait until thirty-nine others are done, while most of a graphics card's ten
        thousand arithmetic units stand idle. The Transformer keeps one vector for each of the
        ${f.sourceLength} pieces instead, and lets each look at all others at once. Any two of them
        are one hop apart. The figure shows both ways, and how much of a training signal survives
        each.
      </p>`,

  refresher: () =>
    html`<p>
      Everything that follows is made of three operations. A dot product says how well two lists of
      numbers agree. A matrix product is many dot products at once. A softmax turns any numbers into
      shares of one whole. If you know them, go straight to chapter 1.
    </p>`,

  embeddings: (f) =>
    html`<p>
        A sentence is cut into pieces: frequent words whole, rare ones in parts. Each piece owns a
        row of ${f.settings.d_model} numbers in a table that was learned with everything else. This
        row is its embedding. From here on a word is a point in space, and words of like meaning
        should lie near each other.
      </p>
      <p>
        The table has one row for ${q(f.pronoun)}, the same in every sentence. So the machine cannot
        know yet what ${q(f.pronoun)} means here. First the vector is multiplied by
        ${rootOfModel(f.settings)}, so that the position, which is added next, does not drown it.
        Another root, that of d<sub>k</sub>, comes in chapter 4 and does another job.
      </p>`,

  lookup: () =>
    html`<p>
      Now the words must exchange what they know. Each piece plays three parts. It asks: that is its
      <b class="c-query">query</b>. It can be found: that is its <b class="c-key">key</b>. And it
      has something to give to whoever finds it: its <b class="c-value">value</b>. Think of a
      library. You bring a question, compare it with the titles on the spines, and read most in the
      books that fit.
    </p>`,

  projections: (f) =>
    html`<p>
        The three are made from the same vector by three learned matrices, ${f.settings.d_model} by
        ${f.settings.d_k}. Nobody wrote into them what to ask for. In training each matrix moved
        towards whatever made translations better. So “query” is our name for a direction that the
        model found useful, not a question in words.
      </p>
      ${projections()}`,

  scores: (f) =>
    html`<p>
      How well does a query fit a key? Multiply them number by number and add up. The query of the
      word at the cursor meets every key that it may see. Step through it: each bar is one dot
      product, and none waits for another.
      ${f.verdict ? html`The cursor is on ${q(f.word)}, the word in question.` : ""}
    </p>`,

  divisor: (f) =>
    html`<p>
        Scores are not shares yet. A softmax raises e to the power of each and divides by the sum.
        Before that, the scores are divided by ${rootOfKey(f.settings)}. Two figures show why. The
        first keeps this head's real scores and changes the divisor: a small one sharpens, a large
        one flattens.
      </p>
      ${attention()}`,

  dimension: (f) =>
    html`<p>
      Why the root? A sum of d random terms spreads like the root of d. With d<sub>k</sub> =
      ${f.settings.d_k} that is ${Math.sqrt(f.settings.d_k).toFixed(1)} times as wide as one term.
      Without the division, the softmax puts its weight on fewer and fewer keys, and its gradient
      shrinks${f.gradientShrinkage}. The smaller it is, the slower a layer learns where to look.
    </p>`,

  blend: () =>
    html`<p>
      Now the values come in. Each is multiplied by its share, and all are added. The sum, in gold,
      is what this head gives to the word. Step through it and watch the gold line grow. Where a
      head looks sharply, the line hardly changes after the first one or two words.
    </p>`,

  worked: () =>
    html`<p>
      Here is the same by hand, with two words and vectors of three numbers. This is all that
      attention does. Change a number, and see what else changes down to the end.
    </p>`,

  matrix: (f) =>
    html`<p>
      All queries together give a matrix. It has a row for each piece that asks, and a column for
      each piece that is asked. Two matrix products compute it, with no loop over the words. The
      page opens on ${f.aligner}, which was chosen by measuring: of all cross-attention heads it
      follows the translation best. Read it as a dictionary. Its dark cells say which word was
      translated from which.
    </p>`,

  arcs: () =>
    html`<p>
      These are the same numbers, drawn as lines. It is the picture that explainers show, with a
      pronoun tied to its noun. Choose other heads and words, and see how many different pictures
      one sentence has. Which of them would you believe?
    </p>`,

  mask: () =>
    html`<p>
      The decoder has one more rule. In training it is given the whole correct translation, so each
      position could simply copy the next word. Therefore the scores of later words are set to minus
      infinity, and the softmax turns them into exactly zero. Let the mask fall row by row.
    </p>`,

  complexity: (f) =>
    html`<p>
      Comparing every word with every other is not free. It takes n² dot products of d numbers each.
      A recurrence takes n steps of d² multiplications, one after the other. Sentences are short and
      vectors wide: here n is ${f.sourceLength} and d is ${f.settings.d_model}. So attention is the
      cheaper one, up to some length.
    </p>`,

  heads: (f) =>
    html`<p>
        One softmax can look well at one thing only. So every attention has ${f.settings.n_heads} of
        them, called heads, at about the cost of one. Each has matrices of its own,
        ${f.settings.d_k} wide instead of ${f.settings.d_model}. Their outputs are put side by side,
        and a last matrix W<sup>O</sup>
        mixes them.
      </p>
      ${multiHead(f.settings)}
      <p>
        The whole model has ${f.heads} heads. Here they all are, each with its own pattern. Some
        look at the neighbouring word, some at the full stop, some nowhere in particular. One of
        them may have decided our word. Guess before you go on.
      </p>`,

  decides: (f) =>
    html`<p>
        A head that looked at a word need not have used it. So we switch each head off, one at a
        time. Then we ask the model again how probable ${f.word ? q(f.word) : "the word"} is, given
        the same words before it. If the probability falls, the head was needed. If another word
        takes the lead, the head decided.
      </p>
      <p>
        There are two grids below. The first shades the heads by how sharply they look, the second
        by what their absence costs. If looking meant deciding, the two would have the same dark
        cells.
      </p>`,

  patterns: () =>
    html`<p>
      Do heads have jobs? Here is a count instead of a story. For each pattern that one can name,
      the figure shows in what share of a few hundred sentences each head follows it. Some heads are
      as regular as clockwork. But looking at the neighbour or at the end mark is only a habit.
      Whether the translation needs it, only the switch can say.
    </p>`,

  coreference: (f) =>
    html`<p>
        “It” can mean the cat, the street or the animal. English need not decide. German must,
        because its nouns have genders. ${f.recordedScore ?? ""}
        ${f.pair === "en-de" ? "" : "That is another model than the one on show: the list below is English into German."}
      </p>
      <p>
        If an encoder head did the linking, one cell of the figure would stand out. Compare it with
        what the switch has said: the pronoun may just as well be copied from the gender of a word
        that was already written.
      </p>`,

  pruning: () =>
    html`<p>
      There is one more test. If every head were a specialist, none could be spared. So the weakest
      ones are removed, a few at a time, and a test set is translated after each cut. The curve
      stays flat for a while and then falls off.
    </p>`,

  positions: (f) =>
    html`<p>
        Something is missing. Shuffle the words, and every sum so far is the same: “dog bites man”
        equals “man bites dog”. So each position has a vector of its own, which is added to the
        embedding. Its numbers are sines and cosines, like the hands of ${f.settings.d_model / 2}
        clocks of different speed. A step of k places turns every hand by the same angle, wherever
        it starts.
      </p>
      ${f.sinusoids}`,

  lengths: () =>
    html`<p>
      A formula has a value for every position, even for those that no training sentence reached.
      Whether the layers above can use it there is another question, and it can be measured.
    </p>`,

  machine: (f) =>
    html`<p>
      Now we put the parts together. Attention lets the words exchange information. A feed-forward
      network then works on each word alone. A residual path leads around both: what came in is
      added to what came out, and the sum is normalised. That is a layer.
      ${f.settings.n_encoder_layers} of them read the source, and ${f.settings.n_decoder_layers}
      write the translation and look at the source as they do. Zoom in from the whole to one dot
      product, and out again.
    </p>`,

  residual: () =>
    html`<p>
      Because the input is added back, a sub-layer need not repeat what is known. It only adds what
      should change. The vector runs through the machine like a river, and each sub-layer is a
      tributary. How large the tributaries are can be measured.
    </p>`,

  neurons: () =>
    html`<p>
      After the attention comes the feed-forward network, which treats each position alone. Many of
      its neurons stay at zero for a given word. Each one that fires adds a vector of its own, which
      makes some words more likely and others less.
    </p>`,

  lens: (f) =>
    html`<p>
      The stream can be read after any layer. Put its vector through the output matrix, as if that
      layer were the last, and see when the word is known.
      ${f.word ? html`For ${q(f.word)} this shows in which layer the decision falls. One would expect the layer of the head that the switch has found, or one above it.` : ""}
    </p>`,

  beam: () =>
    html`<p>
      At the top there is a score for every piece of the vocabulary. A softmax turns them into
      probabilities of the next piece. The best first word is not always the beginning of the best
      sentence. So the search keeps a few beginnings at a time. Let the tree grow step by step, and
      see which branches are dropped.
    </p>`,

  breaking: (f) =>
    html`<p>
        Now comes the proof. The sweep kept the words before our word fixed. Here the broken model
        translates on its own, from the start.
        ${
          f.finding && f.finding.answer !== "none"
            ? html`Switch off ${f.finding.head}: does ${q(f.finding.text)} become
              ${q(f.finding.instead)}?`
            : html`Switch off the head that the sweep has named, and read the translation.`
        }
        Then break larger parts, and see from the damage what each is for.
      </p>
      <p>
        A good experiment changes one thing only. “Compare with”, below the translation, puts a
        second sentence beside this one in every figure. When “tired” becomes “wide”, does anything
        change apart from that word?
      </p>`,

  family: () =>
    html`<p>
      Four choices remain: where the norm stands, how sure the model should be, how fast it learns
      at first, and which half is kept. BERT, GPT and the image models differ in the last one.
    </p>`,

  warmup: () =>
    html`<p>
      The paper starts its training with tiny steps. Whether that is needed depends on where the
      norm stands, as four short trainings show.
    </p>`,

  results: () =>
    html`<p>
      In 2017 this machine translated better than every system before it, and cost less to train.
      That is why nearly every language model is built from it today. So it is worth knowing which
      of the claims about it are true.
    </p>`,
};
