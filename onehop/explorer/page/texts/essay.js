// The essay: one argument in chapters. Prose stands before the figure whose name it bears. `f` holds the facts of the
// sentence and the model on show, so that no sentence here is true of one translation alone.

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
  if (!f.judged)
    return html`<p>
      Why did the model write ${strong(f.word)}? It read ${q(f.source)}, and at this word it
      hesitated more than anywhere else.
      ${f.second ? html`The other candidate was ${q(f.second)}, with ${f.secondChance} against ${f.chance}.` : ""}
      Somewhere among ${f.numbers} numbers stands the reason. This page looks for it.
    </p>`;
  const { written, needed, english, german, right } = f.judged;
  return html`<p>
      Who told the model to write ${strong(written)}? In ${q(f.source)} the word “it” means the
      ${english}. In German that is ${q(german)}, and the pronoun must be ${q(needed)}.
      ${
        right
          ? html`The model wrote just that. But did it know why, or was it lucky?`
          : html`The model wrote ${q(written)}, which points at something else. That is a mistake,
            and somebody made it.`
      }
    </p>
    <p>
      Most explainers open with such a sentence. They show a picture in which “it” looks at its
      noun, and leave it there. We will not take the picture's word for it. We have the model, every
      number that it computed, and a switch for each of its parts.
    </p>`;
};

export const CHAPTERS = {
  case: { eyebrow: "The case", title: "One word, and nobody knows why" },
  tools: { eyebrow: "Before the first rung", title: "Three small tools" },
  "rung-1": { eyebrow: "Rung 1", title: "Words become vectors" },
  "rung-2": { eyebrow: "Rung 2", title: "Query, key, value" },
  "rung-3": { eyebrow: "Rung 3", title: "Scores" },
  "rung-4": { eyebrow: "Rung 4", title: "Scale and softmax" },
  "rung-5": { eyebrow: "Rung 5", title: "Weighted values" },
  "rung-6": { eyebrow: "Rung 6", title: "The matrix" },
  "rung-7": { eyebrow: "Rung 7", title: "Many heads: the line-up" },
  "rung-8": { eyebrow: "Rung 8", title: "Positions" },
  "rung-9": { eyebrow: "Rung 9", title: "The whole machine, and the proof" },
};

/** What a chapter hands over to the next. */
export const CLUES = {
  case: () =>
    html`Whatever decided the word could reach every other word directly. Distance is no alibi.`,
  "rung-1": (f) =>
    html`At the start a word's vector knows only which word it is. What ${q(f.pronoun)} means must
    come in later, from other words.`,
  "rung-2": () =>
    html`Information moves only where a query meets a key. Whoever decided the word had to ask for
    something.`,
  "rung-3": () =>
    html`Each score is one number from two vectors. Every question that was asked can be read off.`,
  "rung-4": () =>
    html`After the softmax the questions compete. A head can look hard at one word or idle over all
    of them.`,
  "rung-5": () =>
    html`A large weight says that something was fetched. It does not say that anybody needed it.`,
  "rung-6": () =>
    html`The decoder sees the whole source, and of its own words only those before. The culprit can
    sit on either road.`,
  "rung-7": (f) =>
    !f.found
      ? html`The line-up stands ready. Switch the heads off in figure ${f.label("decides")}, and the
        name of the strongest appears here.`
      : f.found.answer === "none"
        ? html`No single head decides ${q(f.found.text)}. The strongest is ${f.found.head}, and
          others step in when it is gone.`
        : html`${f.found.head} has the largest hold on ${q(f.found.text)}. Without it the first
          choice is ${q(f.found.instead)} (${f.found.chance}).`,
  "rung-8": () =>
    html`Order is added, not built in. What depends on “the word five places back” depends on this.`,
  "rung-9": (f) =>
    !f.found
      ? html`The case is open until the heads have been switched off in figure
        ${f.label("decides")}.`
      : f.found.answer === "none"
        ? html`The case closes without a single culprit: the word has several supports. That is an
          answer too.`
        : html`The case closes with an experiment, not with a picture: take ${f.found.head} out, and
          the word changes.`,
};

export const PROSE = {
  paths: (f) =>
    html`${opening(f)} ${f.note}
      <p>
        First, why there is such a machine at all. Until 2017 a network read a sentence as we do,
        from left to right. It kept what it had read in one vector of fixed size and passed that on.
        The first word reached the last through every hand between them.
      </p>
      <p>
        That has two costs. A summary of fixed size must forget as the sentence grows. And word
        forty must wait until thirty-nine others are done, so a graphics card with ten thousand
        arithmetic units stands idle. The Transformer keeps one vector for each of the ${f.n} pieces
        instead, and lets each look at all others at once. Any two of them are one hop apart. The
        figure shows both, and what is left of a training signal on the way.
      </p>`,

  refresher: () =>
    html`<p>
      Everything that follows is made of three operations. A dot product says how well two lists of
      numbers agree. A matrix product is many dot products at once. A softmax turns any numbers into
      shares of one whole. If they are old friends, go straight to the first rung.
    </p>`,

  embeddings: (f) =>
    html`<p>
        A sentence is cut into pieces: frequent words whole, rare ones in parts. Each piece owns a
        row of ${f.s.d_model} numbers in a table that was learned with everything else. This row is
        its embedding. From here on a word is a point, and to be near is to be alike.
      </p>
      <p>
        The table has one row for ${q(f.pronoun)}, the same in every sentence. So the machine cannot
        know yet what ${q(f.pronoun)} means here. Before anything else the vector is multiplied by
        ${rootOfModel(f.s)}, so that the position, which is added next, does not drown it. Another
        root, that of d<sub>k</sub>, comes on rung 4 and does another job.
      </p>`,

  lookup: () =>
    html`<p>
      Now the words must talk. Each piece plays three parts. It asks: that is its
      <b class="c-query">query</b>. It can be found: that is its <b class="c-key">key</b>. And it
      has something to give to whoever finds it: its <b class="c-value">value</b>. Think of a
      library. You bring a question, compare it with the titles on the spines, and read most in the
      books that fit.
    </p>`,

  projections: (f) =>
    html`<p>
        The three are made from the same vector by three learned matrices, ${f.s.d_model} by
        ${f.s.d_k}. Nobody wrote into them what to ask for. In training each matrix drifted to
        whatever made translations better. So “query” is our name for a direction that the model
        found useful, not a question in words.
      </p>
      ${projections()}`,

  scores: (f) =>
    html`<p>
      How well does a question fit a label? Multiply them number by number and add up. The query of
      the word at the cursor meets every key that it may see. Step through it: each bar is one
      meeting, and none waits for another.
      ${f.judged ? html`The cursor stands on ${q(f.word)}, the word in question.` : ""}
    </p>`,

  divisor: (f) =>
    html`<p>
        Scores are not shares yet. A softmax raises e to each of them and divides by the sum. Before
        that they are divided by ${rootOfKey(f.s)}. Two sliders show why. The first keeps this
        head's real scores and changes the divisor: a small one sharpens, a large one flattens.
      </p>
      ${attention()}`,

  dimension: (f) =>
    html`<p>
      Why just this root? A sum of d random terms spreads like the root of d. With d<sub>k</sub> =
      ${f.s.d_k} that is ${Math.sqrt(f.s.d_k).toFixed(1)} times as wide as one term. Undivided, the
      softmax comes down on ever fewer keys and its gradient shrinks${f.shrunk}. The smaller it is,
      the slower a layer learns where to look.
    </p>`,

  blend: () =>
    html`<p>
      Now the looking pays. Each value is taken by its share, all are added, and the sum, in gold,
      is what the word takes home. Step through it and watch the gold line grow. After the first one
      or two words it hardly changes any more where a head looks sharply.
    </p>`,

  worked: () =>
    html`<p>
      The same by hand, with two words and vectors of three numbers. This is the whole of attention:
      there is nothing else in it. Change a number and watch it travel to the end.
    </p>`,

  matrix: (f) =>
    html`<p>
      All queries at once give a matrix. It has a row for each piece that asks, and a column for
      each that is asked. Two matrix products compute it, with no loop over the words. The page
      opens on ${f.aligner}, which was found by measuring: of all cross-attention heads it follows
      the translation best. Read it as a dictionary. Its dark cells say which word was translated
      from which.
    </p>`,

  arcs: () =>
    html`<p>
      The same numbers as lines. This is the picture that explainers show, with a pronoun tied to
      its noun. Walk through heads and words with it, and see how many different pictures one
      sentence has. Which of them would you believe?
    </p>`,

  mask: () =>
    html`<p>
      The decoder has one rule more. In training the whole correct translation lies before it, and a
      word could simply copy what comes next. So all scores of later words are set to minus
      infinity, and the softmax makes exactly zero of them. Let the mask fall row by row.
    </p>`,

  complexity: (f) =>
    html`<p>
      To compare all with all is not free. It costs n² meetings of d numbers, where a recurrence
      takes n steps of d² each, one after the other. Sentences are short and vectors wide: here n is
      ${f.n} and d is ${f.s.d_model}. The trade is good, up to a length.
    </p>`,

  heads: (f) =>
    html`<p>
        One softmax can look at one thing well. So ${f.s.n_heads} of them look at once in every
        attention, at about the cost of one. Each has matrices of its own, ${f.s.d_k} wide instead
        of ${f.s.d_model}. Their outputs stand side by side, and a last matrix W<sup>O</sup>
        mixes them.
      </p>
      ${multiHead(f.s)}
      <p>
        In the whole model there are ${f.heads}. Here they stand in a row, each with its own
        pattern: the line-up. Some look straight at the neighbour, some at the full stop, some
        nowhere in particular. One of them may have decided our word. Guess before you go on.
      </p>`,

  decides: (f) =>
    html`<p>
        A witness who looked is not a culprit. So we do what one cannot do with people: switch each
        head off, alone, and ask the model again how probable ${f.word ? q(f.word) : "the word"} is,
        given the same words before it. If the probability falls, the head was needed. If another
        word takes the lead, the head decided.
      </p>
      <p>
        Two grids stand below. The first shades the heads by how sharply they look, the second by
        what their absence costs. If looking meant deciding, the two would have the same dark cells.
      </p>`,

  patterns: () =>
    html`<p>
      Do heads have jobs? Here is a count instead of a story. For each pattern that one can name,
      the figure shows in what share of a few hundred sentences each head follows it. Some are as
      regular as clockwork. But to look at the neighbour or at the end mark is a habit. Whether it
      is a job, only the switch can say.
    </p>`,

  coreference: (f) =>
    html`<p>
        “It” means the cat, or the street, or the animal. English need not decide; German must,
        because its nouns have genders. ${f.record ?? ""}
        ${f.pair === "en-de" ? "" : "That is another model than the one on show: the list below is English into German."}
      </p>
      <p>
        If an encoder head did the linking, one cell of the figure would stand out. Compare it with
        what the switch has said: the pronoun may just as well be copied from the gender of a word
        that was already written.
      </p>`,

  pruning: () =>
    html`<p>
      One more witness. If every head were a specialist, none could be spared. So remove the weakest
      ones, a dozen at a time, and translate a test set after each cut. The curve stays flat for a
      while and then falls off.
    </p>`,

  positions: (f) =>
    html`<p>
        Something is missing. Shuffle the words, and every sum so far is the same: dog bites man,
        man bites dog. So each position has a vector of its own, which is added to the embedding.
        Its numbers are sines and cosines, like the hands of ${f.s.d_model / 2} clocks of different
        speed. A step of k places turns every hand by the same angle, wherever it starts.
      </p>
      ${f.sinusoids}`,

  lengths: () =>
    html`<p>
      A formula has a value for every position, also for those that no training sentence reached.
      Whether the layers above it know what to do there is another matter, and a measurable one.
    </p>`,

  machine: (f) =>
    html`<p>
      Put it together. Attention lets the words talk; a feed-forward network then works on each of
      them alone. Around both stands a detour: what came in is added to what came out, and the sum
      is normalised. That is a layer. ${f.s.n_encoder_layers} of them read the source, and
      ${f.s.n_decoder_layers} write the translation, with an eye on the source. Zoom in from the
      whole to one dot product, and out again.
    </p>`,

  residual: () =>
    html`<p>
      Because the input is added back, a sub-layer never has to say everything. It only has to say
      what should change. The vector runs through the machine like a river, and each sub-layer is a
      tributary. How large they are can be measured.
    </p>`,

  neurons: () =>
    html`<p>
      Between the attentions each position works alone, and most of a layer's parameters work there.
      Many neurons stay silent for a given word. Those that fire each add a vector of their own, and
      that vector favours some words and opposes others.
    </p>`,

  lens: (f) =>
    html`<p>
      The river can be read at any height. Put the vector through the output matrix after each
      layer, as if it were the last, and see when the word is known.
      ${f.word ? html`For ${q(f.word)} this shows in which layer the decision falls. It should be the layer of the head that the switch has found.` : ""}
    </p>`,

  beam: () =>
    html`<p>
      At the top there is a score for every piece of the vocabulary, and a softmax over them: the
      next word. The best first word is not always the beginning of the best sentence. So the search
      keeps a few beginnings alive. Let the tree grow step by step, and see which branches die.
    </p>`,

  breaking: (f) =>
    html`<p>
      Now the proof. The sweep kept the words before our word fixed. Here the broken model
      translates from the start, on its own.
      ${
        f.found && f.found.answer !== "none"
          ? html`Switch off ${f.found.head}: does ${q(f.found.text)} become ${q(f.found.instead)}?`
          : html`Switch off the head that the sweep has named, and read what comes out.`
      }
      Then break larger things, and learn from the wreck what each part is for.
    </p>`,

  compare: () =>
    html`<p>
      A good experiment changes one thing. Put a second sentence beside the first, with one word
      exchanged, and look for what changes inside. Tired becomes wide: does anything else move than
      that one word?
    </p>`,

  family: () =>
    html`<p>
      Four choices surround the blocks: where the norm stands, how sure the model may be, how fast
      it learns at first, and which half of the machine is kept. BERT, GPT and the image models are
      answers to the last one.
    </p>`,

  warmup: () =>
    html`<p>
      The paper starts its training with tiny steps. Whether that is needed depends on where the
      norm stands, as four short trainings show.
    </p>`,

  results: () =>
    html`<p>
      In 2017 this machine translated better than every system before it, and cost less to train.
      That is why nearly everything is built from it today. It is also why it is worth knowing, of
      each claim about it, whether it is so.
    </p>`,
};
