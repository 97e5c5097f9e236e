// The top of the page: the sentence, its translation, whether it is right, and the aligner's attention.

import { html, nothing } from "onehop/vendor/lit-html.js";
import { tint } from "onehop/colour.js";
import { comparisonForm, paneTitles } from "onehop/compare.js";
import { roving } from "onehop/controls.js";
import { range } from "onehop/maths.js";
import { changedWords } from "onehop/figures/breaking.js";
import { glossLine, glossedSide, glossedText, groupsOf, traceGlosses } from "onehop/gloss.js";
import { factsOf } from "onehop/chapters.js";
import { leastCertain, pronounVerdict } from "onehop/verdict.js";
import { CONTINUED, beginsWord, number, percent, piece, power } from "onehop/format.js";
import { TEXTS } from "onehop/texts.js";
import { joinPieces as writtenOf } from "onehop/words.js";

const T = TEXTS.opening;

/**
 * The best-aligning head's attention to the other side, scaled to a maximum of 1. It is a row from a target piece and a
 * column from a source piece.
 */
function attentionShades({ trace, cursor }) {
  const { layer, head } = trace.aligner;
  const weights = trace.tensor(`${trace.path("cross", layer)}.weights`);
  const raw =
    cursor.side === "target"
      ? Array.from(weights.at({ head, query: cursor.index }))
      : range(trace.steps.length).map((query) => weights.at({ head, query, key: cursor.index }));
  return { raw, shown: raw.map((w) => w / (Math.max(...raw) || 1)) };
}

const languageOf = ({ trace }, side) => trace.model[side] ?? (side === "source" ? "en" : "de");
const nameOf = (code) => new Intl.DisplayNames("en", { type: "language" }).of(code);

/** The language of a side, and whether glosses are below it. The source may be in another than the model's. */
function sideLabel(view, side) {
  const { trace } = view;
  const read = side === "source" && trace.json.language?.read;
  const language = read || nameOf(languageOf(view, side));
  const label = side === "target" && trace.edits.length ? T.written(language) : language;
  return glossedSide(trace) === side ? T.glossed(label) : label;
}

/** One side of the translation with selectable pieces; those of the other side are shaded by attention. */
function line(view, side, tokens, label, wrong = null) {
  const { cursor, selection } = view;
  const chosen = side === "source" ? selection.source : selection.step;
  const glow = cursor.side === side ? null : attentionShades(view);
  const choose = (i) => view.chooseWord(side, i);
  const classes = (token, i) =>
    `glow ${beginsWord(token) ? "" : "inner"} ${i === wrong ? "wrong" : ""} ${cursor.side === side && cursor.index === i ? "cursor" : ""}`;
  const isGlossed = glossedSide(view.trace) === side;
  const words = isGlossed
    ? traceGlosses(view.trace, view.isComplete)
    : groupsOf(tokens).map((group) => ({ group }));
  const button = (token, i) =>
    html`<button
      type="button"
      role="radio"
      class=${classes(token, i)}
      data-index=${i}
      aria-checked=${i === chosen}
      tabindex=${i === chosen ? 0 : -1}
      data-weight=${glow ? glow.shown[i] : nothing}
      style=${glow ? `background:${tint("weight", 0.5 * glow.shown[i])}` : ""}
      .tip=${glow ? `${piece(token)}: ${number(glow.raw[i], 3)}` : null}
      @click=${() => choose(i)}
      @mouseenter=${() => view.previewWord({ side, index: i })}
      @keydown=${roving(i, tokens.length, choose)}
    >
      <bdi>${shownPiece(token)}</bdi>
    </button>`;
  return html`<p class="side">${sideLabel(view, side)}</p>
    <div
      class="line ${side}"
      lang=${languageOf(view, side)}
      role="radiogroup"
      aria-label=${label}
      data-roving
      @mouseleave=${() => view.previewWord(null)}
    >
      ${words.map(
        ({ group, ...gloss }, n) =>
          html`${n ? " " : ""}<span class="word"
              ><span>${group.map((i) => button(tokens[i], i))}</span>${
                isGlossed ? glossLine(gloss) : nothing
              }</span
            >`,
      )}
    </div>`;
}

/** Whether the translation is right if that is known, else where the model was least certain. */
function judgement(view) {
  const verdict = pronounVerdict(view.trace, view.measured);
  if (verdict) {
    const { top } = view.trace.steps[verdict.step];
    const chance = (pronoun) => {
      const p = top.find((c) => piece(c.token) === pronoun)?.p;
      return p === undefined ? "" : percent(p, 0);
    };
    const neededChance = verdict.right ? "" : chance(verdict.needed);
    return html`<p class="judged" data-verdict=${verdict.right ? "right" : "wrong"}>
      <span class="verdict ${verdict.right ? "yes" : "no"}"
        >${verdict.right ? T.right : T.wrong}</span
      >
      ${T.judged({ ...verdict, neededChance, writtenChance: chance(verdict.written) })}
      ${missedByModel(view) ? confidence(view.trace, T.unnoticed) : nothing}
    </p>`;
  }
  const uncertain = leastCertain(view.trace);
  return html`<p class="judged" data-verdict="unknown">
    <span class="verdict">${T.unjudged}</span> ${T.nobody}
    ${uncertain ? T.doubt({ written: piece(uncertain.written.token), chance: percent(uncertain.written.p, 0), rival: piece(uncertain.rival.token), rivalChance: percent(uncertain.rival.p, 0) }) : nothing}
  </p>`;
}

const jump = (figure, text) => html`<a href="#${figure}" data-jump=${figure}>${text}</a>`;
/** Links to the two figures that can answer the question. */
const ablationLinks = (text) =>
  html`<p class="next">${jump("figure-decides", text)} ${jump("figure-breaking", T.breakIt)}</p>`;

/** Marks of the tokenizer are small: the end of a text, a lone space, the later bytes of a character. */
const shownPiece = (token) =>
  /^<\/?s>$/.test(token) || token === CONTINUED || piece(token) === "␣"
    ? html`<small class="end">${piece(token)}</small>`
    : piece(token);

function meta(view) {
  const { trace, check } = view;
  const fast = trace.json.fast;
  const { layer, head, share } = trace.aligner;
  return html`<p class="meta">
    <span>${T.aligner({ layer: layer + 1, head: head + 1, share: percent(share, 0) })}</span>
    <span
      >${trace.model.name} · ${trace.settings.n_encoder_layers}+${trace.settings.n_decoder_layers}
      layers, ${trace.heads} heads</span
    >
    <span
      >translated by the ${trace.json.engine}
      engine${fast && !fast.same ? html`; ${fast.engine} in ${fast.compute} writes: “<bdi>${fast.text}</bdi>”` : fast ? `; ${fast.engine} writes the same` : ""}</span
    >
    <span
      >recomputed in this page, largest relative error
      <strong data-error=${check ? check.largest : nothing}
        >${check ? power(check.largest) : "…"}</strong
      ></span
    >
    ${trace.json.left_out?.length ? html`<span>${trace.json.left_out.length} tensors left out: the sentence is long</span>` : nothing}
  </p>`;
}

function sentenceForm(view) {
  const { backend, busy } = view;
  if (backend.kind !== "live") return nothing;
  const submit = (event) => {
    event.preventDefault();
    view.ask(event.target.elements.sentence.value);
  };
  return html`<form class="ask" @submit=${submit}>
      <input
        name="sentence"
        aria-label="A sentence to translate"
        .value=${view.draft ?? view.base.source.text}
        @input=${(event) => view.setDraft(event.target.value)}
        autocomplete="off"
        spellcheck="false"
      />
      <button class="primary" ?disabled=${busy}>${busy ? "Translating …" : "Translate"}</button>
    </form>
    <ul class="offers">
      ${view.about.sentences.filter((s) => s !== view.base.source.text).map((s) => html`<li><button type="button" class="quiet" @click=${() => view.ask(s)}>${s}</button></li>`)}
    </ul>`;
}

/** The compared translation, with its differing words marked. */
function otherLine(view) {
  const { other, trace } = view;
  const tokens = other.target.output_tokens;
  const texts = (t, groups) => groups.map((group) => writtenOf(t, group));
  const groups = groupsOf(tokens);
  const marks = changedWords(
    texts(trace.target.output_tokens, groupsOf(trace.target.output_tokens)),
    texts(tokens, groups),
  );
  const glosses =
    glossedSide(other) === "target" ? traceGlosses(other) : groups.map((group) => ({ group }));
  return html`<div class="other" data-other>
    <p class="reading"><bdi>${paneTitles(trace, other)[1]}</bdi></p>
    <div class="line" lang=${other.model.target}>${glossedText(tokens, glosses, marks)}</div>
  </div>`;
}

/** A hint if the sentence is plainly in another language than the model's source. */
function languageHint({ json }) {
  const { language } = json;
  return language
    ? html`<p class="error" data-language=${language.code}>
        ${T.language(language.read, language.reads)}
      </p>`
    : nothing;
}

/** The estimated probability that the translation is good, if an estimate was fitted for the model. */
function confidence({ json }, text = T.confidence) {
  const estimate = json.confidence;
  if (!estimate) return nothing;
  return html`<span data-confidence=${estimate.value} data-doubtful=${estimate.doubtful}>
    ${estimate.doubtful ? html`<span class="verdict no">${T.doubtful}</span>` : nothing}
    ${text(percent(estimate.value, 0))}
  </span>`;
}

const isDoubtful = ({ trace }) => trace.json.confidence?.doubtful ?? false;

/** Whether the pronoun is wrong and the model's own probabilities do not show it. */
const missedByModel = (view) =>
  pronounVerdict(view.trace, view.measured)?.right === false && !isDoubtful(view);

/** What the shades mean, in a sentence. */
const legend = ({ trace, cursor }) =>
  cursor.side === "target"
    ? T.lookedFrom(piece(trace.target.output_tokens[cursor.index]))
    : T.lookedAt(piece(trace.source.tokens[cursor.index]));

export function masthead(view) {
  const { trace } = view;
  const verdict = pronounVerdict(trace, view.measured);
  const { word } = factsOf(view);
  const hasText = trace.target.text.trim() !== "";
  return html` <div class="masthead-top">
      <p class="eyebrow">${T.eyebrow}</p>
      <button
        type="button"
        class="quiet"
        @click=${() => view.setTheme(view.theme === "dark" ? "light" : "dark")}
      >
        ${T.theme[view.theme]}
      </button>
    </div>
    <h1>${word ? T.headline(word) : T.noHeadline}</h1>
    <p class="lead">
      ${T.lead({ source: trace.json.language ? "" : nameOf(languageOf(view, "source")), target: nameOf(languageOf(view, "target")), right: verdict?.right, word })}
    </p>
    <p class="begin">
      <button type="button" class="primary" data-begin-tour>${T.tour}</button>
      <span>${T.tourKey(TEXTS.tour.stops.length)}</span>
    </p>
    ${sentenceForm(view)}
    ${view.error ? html`<div class="error" role="alert"><p>${view.error}</p></div>` : nothing}
    <section
      class="answer"
      id="answer"
      aria-label="The translation"
      aria-busy=${view.busy}
      data-sentence=${trace.source.text}
    >
      ${line(view, "source", trace.source.tokens, T.sentence)}
      ${line(view, "target", trace.target.output_tokens, T.translation, verdict && !verdict.right ? verdict.step : null)}
      ${view.other ? otherLine(view) : nothing} ${languageHint(trace)}
      ${hasText ? judgement(view) : html`<p class="reading">${T.wroteNothing}</p>`}
      ${isDoubtful(view) ? html`<p class="judged">${confidence(trace)}</p>` : nothing}
      ${word ? ablationLinks(verdict?.right === false ? T.whoDecidedWrongly : T.whoDecided) : nothing}
      <p class="reading shades">${legend(view)} ${T.endMark}</p>
      <details class="run">
        <summary>${T.about}</summary>
        ${isDoubtful(view) || missedByModel(view) ? nothing : html`<p>${confidence(trace)}</p>`}
        ${meta(view)}
      </details>
    </section>
    ${view.backend.kind === "live" ? comparisonForm(view) : html`<p class="reading alone">${T.alone}</p>`}`;
}
