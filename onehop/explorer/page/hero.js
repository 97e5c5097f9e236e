// The top of the page: the sentence, its translation, whether it is right, and who looked at what.

import { html, nothing } from "onehop/vendor/lit-html.js";
import { tint } from "onehop/colour.js";
import { comparison, namesOf } from "onehop/compare.js";
import { roving } from "onehop/controls.js";
import { range } from "onehop/maths.js";
import { changed } from "onehop/figures/breaking.js";
import { glossLine, glossed, glossedSide, glossedText, groupsOf } from "onehop/gloss.js";
import { factsOf } from "onehop/rungs.js";
import { doubt, verdict } from "onehop/story.js";
import { beginsWord, number, percent, piece, power } from "onehop/text.js";
import { TEXTS } from "onehop/texts.js";
import { written as writtenOf } from "onehop/words.js";

const T = TEXTS.opening;

/**
 * Where the head that aligns best looked: a strength for each word of the other side, the strongest as 1. From a written
 * piece to the source it is a row of weights, from a source piece to the translation a column.
 */
function looks({ trace, cursor }) {
  const { layer, head } = trace.aligner;
  const weights = trace.tensor(`${trace.path("cross", layer)}.weights`);
  const raw =
    cursor.side === "target"
      ? Array.from(weights.at({ head, query: cursor.place }))
      : range(trace.steps.length).map((query) => weights.at({ head, query, key: cursor.place }));
  return { raw, shown: raw.map((w) => w / (Math.max(...raw) || 1)) };
}

/** One side of the translation: its pieces can be chosen, and those of the other side shine by how much they are looked at. */
function line(view, side, tokens, label, wrong = null) {
  const { cursor, selection } = view;
  const chosen = side === "source" ? selection.source : selection.step;
  const glow = cursor.side === side ? null : looks(view);
  const choose = (i) => view.chooseWord(side, i);
  const classes = (token, i) =>
    `glow ${beginsWord(token) ? "" : "inner"} ${i === wrong ? "wrong" : ""} ${cursor.side === side && cursor.place === i ? "cursor" : ""}`;
  const isGlossed = glossedSide(view.trace) === side;
  const words = isGlossed
    ? glossed(view.trace, view.whole)
    : groupsOf(tokens).map((group) => ({ group }));
  const button = (token, i) =>
    html`<button
      type="button"
      role="radio"
      class=${classes(token, i)}
      data-place=${i}
      aria-checked=${i === chosen}
      tabindex=${i === chosen ? 0 : -1}
      data-weight=${glow ? glow.shown[i] : nothing}
      style=${glow ? `background:${tint("weight", 0.5 * glow.shown[i])}` : ""}
      .tip=${glow ? `${piece(token)}: ${number(glow.raw[i], 3)}` : null}
      @click=${() => choose(i)}
      @mouseenter=${() => view.previewWord({ side, place: i })}
      @keydown=${roving(i, tokens.length, choose)}
    >
      <bdi>${shownPiece(token)}</bdi>
    </button>`;
  return html`<div
    class="line ${side}"
    lang=${view.trace.model[side] ?? (side === "source" ? "en" : "de")}
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

/** Whether the translation is right, where somebody knows; else where the model hesitated. */
function judged(view) {
  const found = verdict(view.trace, view.measured);
  if (found) {
    const { top } = view.trace.steps[found.step];
    const chance = (pronoun) => {
      const p = top.find((c) => piece(c.token) === pronoun)?.p;
      return p === undefined ? "" : ` (${percent(p, 0)})`;
    };
    const neededChance = found.right ? "" : chance(found.needed);
    return html`<p class="judged" data-verdict=${found.right ? "right" : "wrong"}>
      <span class="verdict ${found.right ? "yes" : "no"}">${found.right ? T.right : T.wrong}</span>
      ${T.judged({ ...found, neededChance, writtenChance: chance(found.written) })}
      ${ask(found.right ? T.whoDecided : T.whoIsToBlame)}
    </p>`;
  }
  const open = doubt(view.trace);
  return html`<p class="judged" data-verdict="unknown">
    <span class="verdict">${T.unjudged}</span> ${T.nobody}
    ${open ? html`${T.doubt({ first: piece(open.first.token), firstChance: percent(open.first.p, 0), second: piece(open.second.token), secondChance: percent(open.second.p, 0) })} ${ask(T.whoDecided)}` : nothing}
  </p>`;
}

const jump = (figure, text) => html`<a href="#${figure}" data-jump=${figure}>${text}</a>`;
/** Two ways to find out: the sweep, and the switches. */
const ask = (text) => html`${jump("figure-decides", text)} · ${jump("figure-breaking", T.breakIt)}`;

const shownPiece = (token) =>
  /^<\/?s>$/.test(token) ? html`<small class="end">${token}</small>` : piece(token);

function meta(view) {
  const { trace, check } = view;
  const fast = trace.json.fast;
  return html`<p class="meta">
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

function question(view) {
  const { home, busy } = view;
  if (home.kind !== "live")
    return html`<p class="reading" style="margin:0 0 .4rem">
      This copy holds one sentence and works without a network. <code>onehop explore</code> opens
      any other.
    </p>`;
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
      ${view.about.sentences.map((s) => html`<li><button type="button" class="quiet" @click=${() => view.ask(s)}>${s}</button></li>`)}
    </ul>`;
}

/** The translation that is compared with, its words that differ marked. */
function otherLine(view) {
  const { other, trace } = view;
  const tokens = other.target.output_tokens;
  const texts = (t, groups) => groups.map((group) => writtenOf(t, group));
  const groups = groupsOf(tokens);
  const marks = changed(
    texts(trace.target.output_tokens, groupsOf(trace.target.output_tokens)),
    texts(tokens, groups),
  );
  const glosses =
    glossedSide(other) === "target" ? glossed(other) : groups.map((group) => ({ group }));
  return html`<div class="other" data-other>
    <p class="reading"><bdi>${namesOf(trace, other)[1]}</bdi></p>
    <div class="line" lang=${other.model.target}>${glossedText(tokens, glosses, marks)}</div>
  </div>`;
}

/** A hint where the sentence is plainly in another language than the model reads. */
function foreign({ json }) {
  const { language } = json;
  return language
    ? html`<p class="trouble" data-language=${language.code}>
        ${T.language(language.read, language.reads)}
      </p>`
    : nothing;
}

/** How likely the translation is good, where that was fitted for the model. */
function confidence({ json }) {
  const found = json.confidence;
  if (!found) return nothing;
  return html`<p class="judged" data-confidence=${found.value} data-doubtful=${found.doubtful}>
    ${found.doubtful ? html`<span class="verdict no">${T.doubtful}</span>` : nothing}
    ${T.confidence(percent(found.value, 0))}
  </p>`;
}

/** What the shades say, in a sentence. */
function legend({ trace, cursor }) {
  const { layer, head, share } = trace.aligner;
  const where = T.aligner({ layer: layer + 1, head: head + 1, share: percent(share, 0) });
  return cursor.side === "target"
    ? T.lookedFrom(piece(trace.target.output_tokens[cursor.place]), where)
    : T.lookedAt(piece(trace.source.tokens[cursor.place]), where);
}

export function opened(view) {
  const { trace } = view;
  const found = verdict(trace, view.measured);
  const { word } = factsOf(view);
  const written = trace.target.text.trim() !== "";
  return html` <div class="masthead-top">
      <p class="eyebrow">${T.eyebrow}</p>
      <button
        type="button"
        class="quiet"
        @click=${() => view.setTheme(view.theme === "dark" ? "light" : "dark")}
      >
        ${view.theme === "dark" ? "light" : "dark"}
      </button>
    </div>
    <h1>${word ? T.headline(word) : T.noHeadline}</h1>
    <p class="lead">${T.lead}</p>
    <p class="begin">
      <button type="button" class="primary" data-begin-tour>${T.tour}</button>
      <span>${T.tourKey(TEXTS.tour.stops.length)}</span>
    </p>
    ${question(view)} ${comparison(view)}
    ${view.trouble ? html`<div class="trouble" role="alert"><p>${view.trouble}</p></div>` : nothing}
    <section
      class="answer"
      id="answer"
      aria-label="The translation"
      aria-busy=${view.busy}
      data-sentence=${trace.source.text}
    >
      ${line(view, "source", trace.source.tokens, T.sentence)}
      ${line(view, "target", trace.target.output_tokens, T.translation, found && !found.right ? found.step : null)}
      ${view.other ? otherLine(view) : nothing} ${foreign(trace)}
      ${written ? judged(view) : html`<p class="reading">${T.wroteNothing}</p>`}
      ${confidence(trace)}
      <p class="reading shades">${legend(view)} ${T.endMark}</p>
      ${meta(view)}
    </section>`;
}
