// What follows the last chapter: images, questions, references.

import { html } from "onehop/vendor/lit-html.js";

export const CODA_TEXTS = {
  appendix: "Appendix",
  images: "Images as tokens",
  imagesProse:
    "Attention works on tokens of any kind. Cut a picture into squares, and the squares are tokens.",
  questions: "Questions and answers",
  references: "References",
};

export const QUESTIONS = [
  [
    "Why not give the position as a single number?",
    html`One number is one direction among hundreds, and it grows without end. Sines and cosines
    stay between −1 and 1, fill every dimension, and make a step of k places the same rotation
    wherever it starts, which a matrix can learn to undo.`,
  ],
  [
    "Why the root of dₖ, and not dₖ itself?",
    html`The spread of a sum of d<sub>k</sub> independent terms is its standard deviation, and that
      is the root. Dividing by d<sub>k</sub> would shrink the scores too far: every key would look
      alike. Figure 4.1 lets you try.`,
  ],
  [
    "Are the two square roots the same?",
    html`No. √d<sub>model</sub> enlarges embeddings before positions are added; √d<sub>k</sub>
      shrinks scores before the softmax. The first balances words against positions, the second
      controls how far the scores spread.`,
  ],
  [
    "Is this GPT?",
    html`GPT keeps the decoder's masked self-attention and leaves out the encoder and the
    cross-attention. BERT keeps the encoder. All three are built from the same blocks.`,
  ],
  [
    "Do heads specialise?",
    html`Some do, in some sentences: chapter 7 counts it for this model. Many others can be removed
    with little loss. So a tidy story about one head describes a tendency, not a rule.`,
  ],
  [
    "Is attention an explanation?",
    html`It says what was mixed, not why. The values carry more than the word they stand at, and
    later layers mix again. Breaking a part and reading the translation says more.`,
  ],
  [
    "Where do I go from here?",
    html`Read the paper: it has eleven pages, and you have seen every formula in it. Then train a
      model of your own with <code>onehop demo reverse</code>, and open it in this page.`,
  ],
  [
    "I have found an error. Where do I report it?",
    html`In the project's issue tracker, with the link of the figure: it holds the sentence and
    everything that you have set.`,
  ],
];

export const REFERENCES = [
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
