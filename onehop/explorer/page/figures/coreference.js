import { html, nothing } from "onehop/vendor/lit-html.js";
import { bars, picker } from "onehop/controls.js";
import { missingMeasurement, provenance, traceCode } from "onehop/frame.js";
import { argmax, mean, range, sum } from "onehop/maths.js";
import { beginsWord, number, percent, piece } from "onehop/format.js";

export const id = "coreference";
export const item = 19;
export const title = "What does “it” become in German?";
export const needs = ["{attention}.weights"];

/** The sentence on show: the selected one, else the page's own if the list has it. */
function chosen(view, data) {
  const own = data.sentences.findIndex((s) => s.source === view.trace.source.text);
  return data.sentences[
    Math.min(Number(view.dial("coreference.sentence", Math.max(0, own))), data.sentences.length - 1)
  ];
}

/** The sentence with “it” in the colour of queries and its noun in the colour of keys. */
function marked(s) {
  const part = (i) => (s.it.includes(i) ? "query" : s.noun.includes(i) ? "key" : null);
  return s.tokens
    .filter((token) => token !== "</s>")
    .map(
      (token, i) =>
        html`${beginsWord(token) && i ? " " : ""}${part(i) ? html`<b class="c-${part(i)}">${piece(token)}</b>` : piece(token)}`,
    );
}

// --- the current sentence

const isWord = (token) => /[\p{L}\p{N}]/u.test(token) && !/^<.*>$/.test(token);

/** The words of a sentence as indices of their pieces, without punctuation. */
function wordsOf(tokens) {
  const words = [];
  tokens.forEach((token, i) => {
    if (beginsWord(token) || !words.length) words.push([]);
    if (isWord(token)) words.at(-1).push(i);
  });
  return words.filter((indices) => indices.length);
}

const joinPieces = (tokens, indices) => indices.map((i) => piece(tokens[i])).join("");

/** The noun that “it” means: the selected word, else the recorded noun, else the word after the first article. */
function antecedent(view, words) {
  const { tokens, text } = view.trace.source;
  const recorded = view.measured.coreference?.sentences.find((s) => s.source === text)?.noun[0];
  const article = words.findIndex((indices) => /^(the|an?)$/i.test(joinPieces(tokens, indices)));
  const fallback =
    recorded === undefined
      ? Math.min(article + 1, words.length - 1)
      : words.findIndex((indices) => indices.includes(recorded));
  const selected = Number(view.dial("coreference.noun", fallback));
  return words[selected] ? selected : Math.max(0, fallback);
}

/** The head of a role with the largest weight from the query tokens to the key tokens. */
function bestHead(view, role, queries, keys) {
  const heads = range(view.trace.layers(role)).flatMap((layer) => {
    const weights = view.trace.tensor(`${view.trace.path(role, layer)}.weights`);
    return range(view.trace.heads).map((head) => {
      const rows = queries.map((query) => Array.from(weights.at({ head, query })));
      const row = rows[0].map((_, j) => mean(rows.map((r) => r[j])));
      return {
        role,
        layer,
        head,
        weight: sum(keys.map((j) => row[j])),
        first: keys.includes(argmax(row)),
      };
    });
  });
  return heads[argmax(heads.map((h) => h.weight))];
}

const readsEnglish = (view) => (view.trace.model.source ?? "en") === "en";

/** The heads that attend most from “it” to its noun, and from the target pronoun to “it”; null without an “it”. */
function bestHeads(view) {
  const { source, target } = view.trace;
  if (!readsEnglish(view)) return null;
  const words = wordsOf(source.tokens);
  const it = words.find((indices) => joinPieces(source.tokens, indices).toLowerCase() === "it");
  if (!it) return null;
  const noun = antecedent(view, words);
  const pronouns = PRONOUNS[view.trace.model.target] ?? [];
  const step = target.output_tokens.findIndex((token) => pronouns.includes(token));
  return {
    words,
    it,
    noun,
    step,
    pronoun: step < 0 ? null : piece(target.output_tokens[step]),
    toNoun: bestHead(view, "encoder", it, words[noun]),
    toIt: step < 0 ? null : bestHead(view, "cross", [step], it),
  };
}

/** In French they can also follow an apostrophe. */
const PRONOUNS = { de: ["▁er", "▁sie", "▁es"], fr: ["▁il", "▁elle", "il", "elle"] };

const headName = ({ layer, head }) => `layer ${layer + 1}, head ${head + 1}`;
const firstChoice = ({ first }) =>
  first ? "more than to any other token" : "but more to another token";
const show = (view, { role, layer, head }, token) =>
  html`<button type="button" @click=${() => view.choose({ role, layer, head, token })}>
    Show this head
  </button>`;

function inThisSentence(view) {
  const best = bestHeads(view);
  const heading = html`<h4 style="margin-top:1.6rem">In the sentence on this page</h4>`;
  if (!best)
    return html`${heading}
      <p class="reading" style="margin-top:0">
        “<bdi>${view.trace.source.text}</bdi>” has no “it”.
      </p>`;
  const { words, it, noun, pronoun, step, toNoun, toIt } = best;
  const { tokens } = view.trace.source;
  const nounText = joinPieces(tokens, words[noun]);
  return html`${heading}
    <div class="controls">
      ${picker({ label: "“it” means", options: words.map((indices, i) => [i, joinPieces(tokens, indices)]), value: noun, choose: (i) => view.setDial("coreference.noun", i) })}
    </div>
    <p class="reading" style="margin-top:0" data-to-noun=${toNoun.weight}>
      Of all encoder heads, <strong>${headName(toNoun)}</strong> looks most from “it” to
      “<bdi>${nounText}</bdi>”, which gets <strong>${number(toNoun.weight, 3)}</strong> of its
      weight, ${firstChoice(toNoun)}. An even look would give
      ${number(words[noun].length / tokens.length, 3)}. ${show(view, toNoun, it[0])}
    </p>
    ${
      toIt
        ? html`<p class="reading" data-to-it=${toIt.weight}>
            While “<bdi>${pronoun}</bdi>” was written, <strong>${headName(toIt)}</strong> of the
            cross-attention looked most at “it”: <strong>${number(toIt.weight, 3)}</strong>,
            ${firstChoice(toIt)}. ${show(view, toIt, step)}
          </p>`
        : nothing
    }
    <p class="reading">
      A look is not a proof.
      ${view.backend.kind === "live" ? "Show a head and switch it off in “Break it”: does the pronoun change?" : html`“Break it” switches off a head that decides a word; <code>onehop explore</code> switches off any.`}
    </p>`;
}

const ownSentence = (view) =>
  readsEnglish(view)
    ? inThisSentence(view)
    : html`<p class="reading">
        The model on this page does not read English: the list is another model's.
      </p>`;

export function draw(view) {
  const data = view.measured.coreference;
  if (!data)
    return html`${missingMeasurement("coreference", "sentences in which “it” must become er, sie or es, and the heads that look from it to its noun.")}${ownSentence(view)}`;
  const s = chosen(view, data);
  const right = data.sentences.filter((x) => x.right).length;
  const [best] = data.best;
  return html` <div class="controls">
      ${picker({ label: "Sentence", options: data.sentences.map((x, i) => [i, x.source]), value: data.sentences.indexOf(s), choose: (i) => view.setDial("coreference.sentence", i) })}
    </div>
    <div class="columns">
      <div>
        <p style="font:1.15rem/1.5 var(--serif);margin:0" lang="en">${marked(s)}</p>
        <p style="font:1.15rem/1.5 var(--serif);margin:.5rem 0 0" lang="de">
          <bdi>${s.translation}</bdi>
        </p>
        <p class="reading">
          <span class="verdict ${s.right ? "yes" : "no"}">${s.right ? "right" : "wrong"}</span>
          needed: <strong>${s.expected}</strong>, written:
          <strong>${s.pronoun ?? "no pronoun"}</strong>
        </p>
        ${view.backend.kind === "live" && readsEnglish(view) ? html`<button type="button" @click=${() => view.ask(s.source)}>Open this sentence</button>` : ""}
      </div>
      <div>
        <h4>Encoder heads that look most from “it” to the noun</h4>
        ${bars({ rows: s.heads.map((h) => ({ name: headName(h), value: h.weight })), concept: "weight", from: 0, to: 1 })}
        <p class="reading numbers">an even look would give ${number(s.base, 3)}</p>
      </div>
    </div>
    <p class="reading">
      Over all ${data.sentences.length} sentences ${right} pronouns are right.
      ${data.none ? html`<span class="verdict no">none here</span> No head looks from “it” to its noun in most of them; the one that does so most often, ${headName(best)}, has the noun as its first choice in <strong>${percent(best.share, 0)}</strong>.` : html`The head ${headName(best)} has the noun as its first choice in <strong>${percent(best.share, 0)}</strong>.`}
    </p>
    ${ownSentence(view)}`;
}

export const caption = (view) =>
  html`German nouns have a gender, and the pronoun must agree: die Katze … sie, der Hund … er, das
  Tier … es. The list is translated with a greedy search.
  ${view.measured.coreference ? provenance(view.measured.coreference) : ""}`;

/** The page's own sentence first, then the list; each with the head that attends most from “it” to the noun. */
export const table = (view) => {
  const best = bestHeads(view);
  const own = best
    ? [
        [
          view.trace.source.text,
          null,
          best.pronoun ?? "none",
          null,
          best.toNoun.layer + 1,
          best.toNoun.head + 1,
          best.toNoun.weight,
        ],
      ]
    : [];
  const list = (view.measured.coreference?.sentences ?? []).map((s) => [
    s.source,
    s.expected,
    s.pronoun ?? "none",
    s.right ? "yes" : "no",
    s.heads[0].layer + 1,
    s.heads[0].head + 1,
    s.heads[0].weight,
  ]);
  return {
    columns: ["sentence", "needed", "written", "right", "layer", "head", "“it” to the noun"],
    rows: [...own, ...list],
  };
};

export const python = (view) => {
  const best = bestHeads(view);
  const own = best
    ? `${traceCode(view)}it, noun = [${best.it}], [${best.words[best.noun]}]
settings, heads = trace.header["model"]["settings"], []
for layer in range(settings["n_encoder_layers"]):
    weights = trace[f"encoder.layers.{layer}.self_attention.weights"][:, it].mean(1)[:, noun].sum(1)
    heads += [(float(weight), layer + 1, head + 1) for head, weight in enumerate(weights)]
weight, layer, head = max(heads)
pronoun = next((t.strip("▁") for t in trace.header["target"]["output_tokens"] if t in (${(PRONOUNS[view.trace.model.target] ?? []).map((t) => `"${t}"`).join(", ")})), "none")
rows = [[trace.header["source"]["text"], None, pronoun, None, layer, head, weight]]
`
    : "rows = []\n";
  return `from onehop.explorer.content import measured
${own}data = measured()["coreference"]
for s in data["sentences"] if data else []:
    best = s["heads"][0]
    right = "yes" if s["right"] else "no"
    rows.append([s["source"], s["expected"], s["pronoun"] or "none", right, best["layer"] + 1, best["head"] + 1, best["weight"]])`;
};
