// The essay: nine rungs, what comes before and after them, and which figures stand where.

import { html } from "onehop/vendor/lit-html.js";
import * as arcs from "onehop/figures/arcs.js";
import * as beam from "onehop/figures/beam.js";
import * as blend from "onehop/figures/blend.js";
import * as breaking from "onehop/figures/breaking.js";
import * as complexity from "onehop/figures/complexity.js";
import * as coreference from "onehop/figures/coreference.js";
import * as decides from "onehop/figures/decides.js";
import * as dimension from "onehop/figures/dimension.js";
import * as divisor from "onehop/figures/divisor.js";
import * as embeddings from "onehop/figures/embeddings.js";
import * as family from "onehop/figures/family.js";
import * as heads from "onehop/figures/heads.js";
import * as lengths from "onehop/figures/lengths.js";
import * as lens from "onehop/figures/lens.js";
import * as lookup from "onehop/figures/lookup.js";
import * as machine from "onehop/figures/machine.js";
import * as mask from "onehop/figures/mask.js";
import * as matrix from "onehop/figures/matrix.js";
import * as neurons from "onehop/figures/neurons.js";
import * as patches from "onehop/figures/patches.js";
import * as paths from "onehop/figures/paths.js";
import * as patterns from "onehop/figures/patterns.js";
import * as positions from "onehop/figures/positions.js";
import * as projections from "onehop/figures/projections.js";
import * as pruning from "onehop/figures/pruning.js";
import * as refresher from "onehop/figures/refresher.js";
import * as residual from "onehop/figures/residual.js";
import * as results from "onehop/figures/results.js";
import * as scores from "onehop/figures/scores.js";
import * as warmup from "onehop/figures/warmup.js";
import * as worked from "onehop/figures/worked.js";
import { number } from "onehop/text.js";

/** How many times smaller the undivided softmax's gradient is, at this width and at the largest one measured. */
function shrunk(data, d_k) {
  const here = data?.rows.find((row) => row.d === d_k);
  if (!here) return "";
  const last = data.rows.at(-1);
  const times = ({ scaled, unscaled }) => number(scaled.gradient / unscaled.gradient, 1);
  return html`: for random vectors at d = ${d_k} it is ${number(here.unscaled.gradient, 3)} against
  ${number(here.scaled.gradient, 3)} with the root, ${times(here)} times smaller, and ${times(last)}
  times smaller at d = ${last.d}`;
}

/** Prose stands before the figure whose name it bears; it is told the model's settings and what was measured. */
export const RUNGS = [
  {
    id: "refresher-rung",
    eyebrow: "Before the first rung",
    title: "Three small tools",
    figures: [
      [
        refresher,
        (s) =>
          html`<p>
            The whole machine is built from three operations. If they are old friends, go straight
            to the first rung.
          </p>`,
      ],
    ],
  },
  {
    id: "rung-1",
    eyebrow: "Rung 1",
    title: "Words become vectors",
    figures: [
      [
        embeddings,
        (s) =>
          html`<p>
              A sentence is cut into pieces, frequent words whole and rare ones in parts. Each piece
              has a row of ${s.d_model} numbers in a learned table: its embedding. From here on a
              word is a point, and closeness is all the meaning it has.
            </p>
            <p>
              Before anything else the vector is multiplied by
              <math
                ><msqrt
                  ><msub><mi>d</mi><mtext>model</mtext></msub></msqrt
                ><mo>=</mo><mn>${Math.sqrt(s.d_model).toFixed(2)}</mn></math
              >, so that it is not drowned by the position that is added next. Another root, that of
              d<sub>k</sub>, comes on rung 4 and does another job.
            </p>`,
      ],
    ],
  },
  {
    id: "rung-2",
    eyebrow: "Rung 2",
    title: "Query, key, value",
    figures: [
      [
        lookup,
        () =>
          html`<p>
            Each token plays three parts. It asks: that is its <b class="c-query">query</b>. It can
            be found: that is its <b class="c-key">key</b>. And it has something to give once found:
            its <b class="c-value">value</b>.
          </p>`,
      ],
      [
        projections,
        (s) =>
          html`<p>
              The three are made from the same input by three learned matrices. A head's own are
              ${s.d_model} by ${s.d_k}: every head sees the whole vector, through its own narrow
              window.
            </p>
            <div class="formula">
              <math
                ><mi class="c-query">q</mi><mo>=</mo><mi>x</mi
                ><msup><mi>W</mi><mi>Q</mi></msup></math
              ><math
                ><mi class="c-key">k</mi><mo>=</mo><mi>x</mi><msup><mi>W</mi><mi>K</mi></msup></math
              ><math
                ><mi class="c-value">v</mi><mo>=</mo><mi>x</mi
                ><msup><mi>W</mi><mi>V</mi></msup></math
              >
            </div>`,
      ],
    ],
  },
  {
    id: "rung-3",
    eyebrow: "Rung 3",
    title: "Scores",
    figures: [
      [
        scores,
        () =>
          html`<p>
            How well does a question fit a label? Multiply them number by number and add up. One
            query meets every key that it may see, and no meeting waits for another.
          </p>`,
      ],
    ],
  },
  {
    id: "rung-4",
    eyebrow: "Rung 4",
    title: "Scale and softmax",
    figures: [
      [
        divisor,
        (s) =>
          html`<p>
              Scores become shares by a softmax. Before that they are divided by
              <math
                ><msqrt
                  ><msub><mi>d</mi><mi>k</mi></msub></msqrt
                ><mo>=</mo><msqrt><mn>${s.d_k}</mn></msqrt
                ><mo>=</mo><mn>${Math.sqrt(s.d_k).toFixed(2)}</mn></math
              >. Two sliders show why, and they go opposite ways. The first keeps the scores and
              changes the divisor.
            </p>
            <div class="formula">
              <math
                ><mi>Attention</mi
                ><mrow
                  ><mo>(</mo><mi class="c-query">Q</mi><mo>,</mo><mi class="c-key">K</mi><mo>,</mo
                  ><mi class="c-value">V</mi><mo>)</mo></mrow
                ><mo>=</mo><mi>softmax</mi
                ><mrow
                  ><mo>(</mo
                  ><mfrac
                    ><mrow
                      ><mi class="c-query">Q</mi
                      ><msup><mi class="c-key">K</mi><mi>T</mi></msup></mrow
                    ><msqrt
                      ><msub><mi>d</mi><mi>k</mi></msub></msqrt
                    ></mfrac
                  ><mo>)</mo></mrow
                ><mi class="c-value">V</mi></math
              >
            </div>`,
      ],
      [
        dimension,
        (s, measured) =>
          html`<p>
            The second lets the dimension grow. A dot product of d random terms spreads like
            <math
              ><msqrt><mi>d</mi></msqrt></math
            >: with d<sub>k</sub> = ${s.d_k} that is ${Math.sqrt(s.d_k).toFixed(1)} times as wide as
            one term. Undivided, the softmax comes down on ever fewer keys and its gradient
            shrinks${shrunk(measured.dimension, s.d_k)}. The smaller it is, the slower a layer
            learns where to look.
          </p>`,
      ],
    ],
  },
  {
    id: "rung-5",
    eyebrow: "Rung 5",
    title: "Weighted values",
    figures: [
      [
        blend,
        () =>
          html`<p>
            The weights are shares of a mixture. Each value is taken by its share, all are added,
            and the sum, in gold, is what the token takes home.
          </p>`,
      ],
      [
        worked,
        () =>
          html`<p>
            The same by hand, with two words and vectors of three. Change a number and watch it
            travel.
          </p>`,
      ],
    ],
  },
  {
    id: "rung-6",
    eyebrow: "Rung 6",
    title: "The matrix",
    figures: [
      [
        matrix,
        () =>
          html`<p>
            All queries at once give a matrix: a row for each token that asks, a column for each
            that is asked. It is computed in two matrix products, with no loop over the words.
          </p>`,
      ],
      [
        arcs,
        () =>
          html`<p>
            The same numbers as lines. Any token reaches any other directly: one hop, however far
            apart they stand.
          </p>`,
      ],
      [
        paths,
        () =>
          html`<p>
            Before, networks read one word after another and carried a summary along. What the first
            word had to say to the last passed through every hand between.
          </p>`,
      ],
      [
        mask,
        () =>
          html`<p>
            The decoder must not see what it has yet to write. In training the whole translation
            lies before it, so the scores of later words are set to −∞: the softmax makes exactly
            zero of them.
          </p>`,
      ],
      [
        complexity,
        () =>
          html`<p>
            Comparing all with all is not free. It costs n² meetings of d numbers, where a
            recurrence costs n steps of d². Sentences are short and vectors wide, so the trade is
            good, up to a length.
          </p>`,
      ],
    ],
  },
  {
    id: "rung-7",
    eyebrow: "Rung 7",
    title: "Many heads",
    figures: [
      [
        heads,
        (s) =>
          html`<p>
              One softmax can look at one thing well. So ${s.n_heads} of them look at once, each
              with matrices of its own, ${s.d_k} wide instead of ${s.d_model}, at about the cost of
              one. Their outputs stand side by side and a last matrix, W<sup>O</sup>, mixes them.
            </p>
            <div class="formula">
              <math
                ><mi>MultiHead</mi><mo>=</mo><mi>Concat</mi><mo>(</mo
                ><msub><mi class="c-output">head</mi><mn>1</mn></msub
                ><mo>,</mo><mo>…</mo><mo>,</mo
                ><msub><mi class="c-output">head</mi><mn>${s.n_heads}</mn></msub
                ><mo>)</mo><msup><mi>W</mi><mi>O</mi></msup></math
              >
            </div>`,
      ],
      [
        decides,
        () =>
          html`<p>
            Which of them made the model write this word? To look at where a head looks is not
            enough. Switch each one off, alone, and ask how probable the word still is.
          </p>`,
      ],
      [
        patterns,
        () =>
          html`<p>
            Do heads have jobs? Here is a count rather than a story: how often each head follows a
            pattern that one can name.
          </p>`,
      ],
      [
        coreference,
        () =>
          html`<p>
            “It” means the cat, or the street, or the animal. English need not decide; German must.
          </p>`,
      ],
      [pruning, () => html`<p>If heads were all specialists, none could be spared.</p>`],
    ],
  },
  {
    id: "rung-8",
    eyebrow: "Rung 8",
    title: "Positions",
    figures: [
      [
        positions,
        (s) =>
          html`<p>
              Nothing so far knows the order of the words: shuffle them and the sums are the same.
              So each position has a vector of its own, added to the embedding: sines and cosines,
              like the hands of ${s.d_model / 2} clocks of different speed.
            </p>
            <div class="formula">
              <math
                ><msub
                  ><mi class="c-position">PE</mi
                  ><mrow><mi>pos</mi><mo>,</mo><mn>2</mn><mi>i</mi></mrow></msub
                ><mo>=</mo><mi>sin</mi><mo>(</mo
                ><mfrac
                  ><mi>pos</mi
                  ><msup
                    ><mn>10000</mn
                    ><mrow><mn>2</mn><mi>i</mi><mo>/</mo><mn>${s.d_model}</mn></mrow></msup
                  ></mfrac
                ><mo>)</mo></math
              ><math
                ><msub
                  ><mi class="c-position">PE</mi
                  ><mrow><mi>pos</mi><mo>,</mo><mn>2</mn><mi>i</mi><mo>+</mo><mn>1</mn></mrow></msub
                ><mo>=</mo><mi>cos</mi><mo>(</mo><mtext>the same</mtext><mo>)</mo></math
              >
            </div>`,
      ],
      [
        lengths,
        () =>
          html`<p>
            A formula has a value for every position, also for those that no training sentence ever
            reached. Whether the layers above it know what to do there is another matter.
          </p>`,
      ],
    ],
  },
  {
    id: "rung-9",
    eyebrow: "Rung 9",
    title: "The whole block and the translation",
    figures: [
      [
        machine,
        () =>
          html`<p>
            Attention lets the tokens talk; a feed-forward network then works on each alone. Around
            both: add what came in, and normalise. That is a layer. Layers on layers, twice, with
            the decoder looking across, are the machine.
          </p>`,
      ],
      [
        residual,
        () =>
          html`<p>
            Because the input is added back, a sub-layer never has to say everything. It makes a
            correction. How large, is a matter of measuring.
          </p>`,
      ],
      [
        neurons,
        () =>
          html`<p>
            Between the attentions each position works alone, and most of a layer's parameters work
            there.
          </p>`,
      ],
      [
        lens,
        () =>
          html`<p>
            The stream can be read at any height. Put it through the output matrix after each layer,
            and see when the word is known, and when the mind changes.
          </p>`,
      ],
      [
        beam,
        () =>
          html`<p>
            At the top, a score for every piece of the vocabulary and a softmax: the next word. The
            search keeps a few beginnings alive, because the best first word is not always the
            beginning of the best sentence.
          </p>`,
      ],
      [breaking, () => html`<p>The best way to see what a part is for is to take it out.</p>`],
      [
        family,
        () =>
          html`<p>
            Four choices that surround the blocks, and what others made of the same ones.
          </p>`,
      ],
      [
        warmup,
        () =>
          html`<p>
            The paper starts its training gently. Whether that is needed depends on where the norm
            stands.
          </p>`,
      ],
      [
        results,
        () =>
          html`<p>In 2017 this was better than every system before it, and cheaper to train.</p>`,
      ],
    ],
  },
];

const QUESTIONS = [
  [
    "Why not give the position as a single number?",
    html`One number is one direction among hundreds, and it grows without end. Sines and cosines
    stay between −1 and 1, fill every dimension, and make a step of k places the same rotation
    wherever it starts, which a matrix can learn to undo.`,
  ],
  [
    "Why the root of d_k, and not d_k itself?",
    html`The spread of a sum of d_k independent terms is its standard deviation, and that is the
    root. Dividing by d_k would shrink the scores too far: every key would look alike. Figure 4.1
    lets you try.`,
  ],
  [
    "Are the two square roots the same?",
    html`No. √d_model enlarges embeddings before positions are added; √d_k shrinks scores before the
    softmax. One is about the balance of two sums, the other about the spread of one.`,
  ],
  [
    "Is this GPT?",
    html`GPT keeps the decoder's masked self-attention and leaves away the encoder and the
    cross-attention. BERT keeps the encoder. The blocks are these.`,
  ],
  [
    "Do heads specialise?",
    html`Some do, sometimes: rung 7 counts it for this model. Many others can be removed with little
    loss, so a tidy story about one head is a tendency, not a rule.`,
  ],
  [
    "Is attention an explanation?",
    html`It says what was mixed, not why. The values carry more than the word they stand at, and
    later layers mix again. Breaking a part and reading the translation says more.`,
  ],
];

const REFERENCES = [
  [
    "Vaswani, Shazeer, Parmar, Uszkoreit, Jones, Gomez, Kaiser, Polosukhin: Attention Is All You Need. 2017",
    "https://arxiv.org/abs/1706.03762",
  ],
  [
    "Bahdanau, Cho, Bengio: Neural Machine Translation by Jointly Learning to Align and Translate. 2014",
    "https://arxiv.org/abs/1409.0473",
  ],
  [
    "Luong, Pham, Manning: Effective Approaches to Attention-based Neural Machine Translation. 2015",
    "https://arxiv.org/abs/1508.04025",
  ],
  [
    "He, Zhang, Ren, Sun: Deep Residual Learning for Image Recognition. 2015",
    "https://arxiv.org/abs/1512.03385",
  ],
  ["Ba, Kiros, Hinton: Layer Normalization. 2016", "https://arxiv.org/abs/1607.06450"],
  [
    "Press, Wolf: Using the Output Embedding to Improve Language Models. 2016",
    "https://arxiv.org/abs/1608.05859",
  ],
  [
    "Xiong and others: On Layer Normalization in the Transformer Architecture. 2020",
    "https://arxiv.org/abs/2002.04745",
  ],
  [
    "Michel, Levy, Neubig: Are Sixteen Heads Really Better than One? 2019",
    "https://arxiv.org/abs/1905.10650",
  ],
  [
    "Voita, Talbot, Moiseev, Sennrich, Titov: Analyzing Multi-Head Self-Attention. 2019",
    "https://arxiv.org/abs/1905.09418",
  ],
  ["Devlin, Chang, Lee, Toutanova: BERT. 2018", "https://arxiv.org/abs/1810.04805"],
  [
    "Brown and others: Language Models are Few-Shot Learners. 2020",
    "https://arxiv.org/abs/2005.14165",
  ],
  [
    "Dosovitskiy and others: An Image is Worth 16x16 Words. 2020",
    "https://arxiv.org/abs/2010.11929",
  ],
];

export const CODA = {
  figure: patches,
  heading: html`<p class="eyebrow">Beside the ladder</p>
    <h2 id="beside">Images as tokens</h2>`,
  prose: html`<p class="prose">
    Attention does not care what its tokens were. Cut a picture into squares, and they are tokens
    too.
  </p>`,
  questions: html`<h2 id="questions">Questions and answers</h2>
    ${QUESTIONS.map(
      ([question, answer]) =>
        html`<details>
          <summary>${question}</summary>
          <p>${answer}</p>
        </details>`,
    )}`,
  references: html`<h2 id="references" style="margin-top:3.5rem">References</h2>
    <ol class="references">
      ${REFERENCES.map(([text, url]) => html`<li><a href=${url} rel="noreferrer">${text}</a></li>`)}
    </ol>`,
};
