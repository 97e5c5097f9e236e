// The top of the page: the sentence, its translation, and which words the translation looked at.

import { html, nothing } from "onehop/vendor/lit-html.js";
import { tint } from "onehop/colour.js";
import { roving } from "onehop/controls.js";
import { mean, range } from "onehop/maths.js";
import { beginsWord, piece, power } from "onehop/text.js";

/** Cross-attention of the layer that aligns, heads averaged: what each written piece looked at. */
function looked(trace) {
  const tensor = trace.tensor(`decoder.layers.${trace.aligning}.cross_attention.weights`);
  return (step) => range(trace.source.tokens.length).map((key) => mean(range(trace.heads).map((head) => tensor.at({ head, query: step, key }))));
}

function sourceLine(view, weights) {
  return html`<p class="line" lang=${view.trace.model.source ?? "en"} aria-label="The sentence">${view.trace.source.tokens.map((token, j) =>
    html`${beginsWord(token) && j ? " " : ""}<span class="glow ${beginsWord(token) ? "" : "inner"}" data-weight=${weights[j]} style="background:${tint("weight", 0.5 * weights[j])}"><bdi>${shownPiece(token)}</bdi></span>`)}</p>`;
}

const shownPiece = (token) => (/^<\/?s>$/.test(token) ? html`<small class="end">${token}</small>` : piece(token));

function targetLine(view) {
  const { trace, selection } = view;
  const steps = trace.target.output_tokens;
  const choose = (step) => view.choose({ step });
  return html`<div class="line target" lang=${trace.model.target ?? "de"} role="radiogroup" aria-label="The translation; choose a piece to see where it looked" data-roving>${steps.map((token, i) =>
    html`${beginsWord(token) && i ? " " : ""}<button type="button" role="radio" class=${beginsWord(token) ? "" : "inner"} data-place=${i} aria-checked=${i === selection.step} tabindex=${i === selection.step ? 0 : -1}
      @click=${() => choose(i)} @keydown=${roving(i, steps.length, choose)}><bdi>${shownPiece(token)}</bdi></button>`)}</div>`;
}

function meta(view) {
  const { trace, check } = view;
  const fast = trace.json.fast;
  return html`<p class="meta">
    <span>${trace.model.name} · ${trace.settings.n_encoder_layers}+${trace.settings.n_decoder_layers} layers, ${trace.heads} heads</span>
    <span>translated by the ${trace.json.engine} engine${fast && !fast.same ? html`; ${fast.engine} in ${fast.compute} writes: “<bdi>${fast.text}</bdi>”` : fast ? `; ${fast.engine} writes the same` : ""}</span>
    <span>recomputed in this page, largest relative error <strong data-error=${check ? check.largest : nothing}>${check ? power(check.largest) : "…"}</strong></span>
    ${trace.json.left_out?.length ? html`<span>${trace.json.left_out.length} tensors left out: the sentence is long</span>` : nothing}
  </p>`;
}

function question(view) {
  const { home, busy } = view;
  if (home.kind !== "live") return html`<p class="reading" style="margin:0 0 .4rem">This copy holds one sentence and works without a network. <code>onehop explore</code> opens any other.</p>`;
  const submit = (event) => {
    event.preventDefault();
    view.ask(event.target.elements.sentence.value);
  };
  return html`<form class="ask" @submit=${submit}>
      <input name="sentence" aria-label="A sentence to translate" .value=${view.draft ?? view.base.source.text} @input=${(event) => view.setDraft(event.target.value)} autocomplete="off" spellcheck="false" />
      <button class="primary" ?disabled=${busy}>${busy ? "Translating …" : "Translate"}</button>
    </form>
    <ul class="offers">${view.about.sentences.map((s) => html`<li><button type="button" class="quiet" @click=${() => view.ask(s)}>${s}</button></li>`)}</ul>`;
}

export function opened(view) {
  const { trace, selection } = view;
  const raw = looked(trace)(selection.step);
  const weights = raw.map((w) => w / Math.max(...raw));
  const written = trace.target.text.trim() !== "";
  return html`
    <div class="masthead-top"><p class="eyebrow">The Transformer, watched</p>
      <button type="button" class="quiet" @click=${() => view.setTheme(view.theme === "dark" ? "light" : "dark")}>${view.theme === "dark" ? "light" : "dark"}</button></div>
    <h1>One hop from any word to any other</h1>
    <p class="lead">Here a model translates a sentence, and you can look at every number on the way. Nine short rungs lead from words to the whole machine. All of it is the real
      model, and where a popular claim does not hold for it, the page says so.</p>
    ${question(view)}
    ${view.trouble ? html`<div class="trouble" role="alert"><p>${view.trouble}</p></div>` : nothing}
    <section class="answer" aria-label="The translation" aria-busy=${view.busy} data-sentence=${trace.source.text}>
      ${sourceLine(view, weights)}
      ${targetLine(view)}
      ${written ? nothing : html`<p class="reading">The model wrote nothing and ended the sentence.</p>`}
      <p class="reading" style="margin-top:.6rem;color:var(--soft)">Shaded: where the translation looked while it wrote “<bdi>${piece(trace.target.output_tokens[selection.step])}</bdi>”, in the cross-attention of layer ${trace.aligning + 1}${trace.layers("cross") > 1 ? ", the last but one" : ""}, with its ${trace.heads} heads averaged. ${"</s>"} marks the end. Choose another piece.</p>
      ${meta(view)}
    </section>`;
}
