// The parts of the page around its figures: sections, the selection bar, the colophon, notices.

import { html, nothing } from "onehop/vendor/lit-html.js";
import { editLabel } from "onehop/ablation.js";
import { picker, segments, toggle } from "onehop/controls.js";
import { contents, pageMap } from "onehop/map.js";
import { range } from "onehop/maths.js";
import { CHAPTERS, EXTRA_FIGURE } from "onehop/chapters.js";
import { scrollTo } from "onehop/scrolling.js";
import { ROLES, sideOf } from "onehop/state.js";
import { ROLE_NAMES } from "onehop/tensors.js";
import { clipped, piece } from "onehop/format.js";
import { TEXTS } from "onehop/texts.js";

/** Jump without losing the selection that the address holds. */
function jump(event) {
  event.preventDefault();
  event.currentTarget.closest("details")?.removeAttribute("open");
  scrollTo(document.getElementById(event.currentTarget.getAttribute("href").slice(1)));
}

const figureSlot = (figure) =>
  html`<figure
    id="figure-${figure.id}"
    data-figure=${figure.id}
    data-item=${figure.item}
    aria-labelledby="${figure.id}-name"
  ></figure>`;

const chapter = ({ id, eyebrow, title, figures }) =>
  html`<section class="chapter" id=${id} aria-labelledby="${id}-title">
    <p class="eyebrow">${eyebrow}</p>
    <h2 id="${id}-title">${title}</h2>
    ${figures.map(
      (figure) =>
        html`<div class="essay" id="essay-${figure.id}"></div>
          ${figureSlot(figure)}`,
    )}
    <aside class="conclusion" id="conclusion-${id}"></aside>
    <div id="claims-${id}"></div>
  </section>`;

const T = TEXTS.coda;

const coda = () =>
  html`<section class="coda" aria-label="After the last chapter">
    <div data-part="claims">
      <h2 id="claims">${TEXTS.claims.title}</h2>
      <div id="ledger"></div>
    </div>
    <div data-part="beside">
      <p class="eyebrow">${T.appendix}</p>
      <h2 id="beside">${T.images}</h2>
      <p class="prose">${T.imagesProse}</p>
      ${figureSlot(EXTRA_FIGURE)}
    </div>
    <div data-part="questions">
      <h2 id="questions">${T.questions}</h2>
      ${T.list.map(
        ([question, answer]) =>
          html`<details>
            <summary>${question}</summary>
            <p>${answer}</p>
          </details>`,
      )}
      <h2 id="references">${T.references}</h2>
      <ol class="references">
        ${T.sources.map(([text, url]) => html`<li><a href=${url} rel="noreferrer">${text}</a></li>`)}
      </ol>
    </div>
    <p class="colophon" id="colophon"></p>
  </section>`;

export const skeleton = () =>
  html` <header class="masthead" id="masthead"></header>
    <nav class="bar" id="bar" aria-label="Selection shared by all figures"></nav>
    <nav class="rail" aria-label="Map and contents">
      ${pageMap(jump)}${contents(CHAPTERS, jump)}
    </nav>
    <main>${CHAPTERS.map(chapter)}${coda()}</main>
    <div id="tour"></div>`;

/** The bar with the selection's controls. On a narrow screen a button opens them in a sheet. */
export function bar(view) {
  const { selection, trace, backend, choose, dial, setDial } = view;
  const tokens = trace.queries(selection.role);
  const summary = TEXTS.bar.summary({
    role: ROLE_NAMES[selection.role],
    layer: selection.layer + 1,
    head: selection.head + 1,
    token: piece(tokens[selection.token]),
  });
  return html`<div class="bar-inside">
    <span class="shows">${TEXTS.bar.shows}</span>
    <button
      type="button"
      class="selected"
      popovertarget="selectors"
      aria-label=${TEXTS.bar.change(summary)}
    >
      ${summary}
    </button>
    <div class="selectors" id="selectors" popover>
      ${segments({ name: "role", label: "Attention", options: ROLES.map((r) => [r, ROLE_NAMES[r]]), value: selection.role, choose: (role) => choose({ role }) })}
      ${picker({ label: "layer", options: range(trace.layers(selection.role)).map((i) => [i, i + 1]), value: selection.layer, choose: (i) => choose({ layer: Number(i) }) })}
      ${picker({ label: "head", options: range(trace.heads).map((i) => [i, i + 1]), value: selection.head, choose: (i) => choose({ head: Number(i) }) })}
      ${picker({ label: sideOf(selection.role) === "source" ? "word" : "writing", options: tokens.map((t, i) => [i, `${i + 1} ${clipped(t, 14)}`]), value: selection.token, choose: (i) => choose({ token: Number(i) }) })}
      ${toggle({ label: TEXTS.bar.words, on: dial("page.words", "") === "yes", choose: (on) => setDial("page.words", on ? "yes" : "") })}
    </div>
    <details class="contents">
      <summary>Map</summary>
      <nav aria-label="Map and contents">${pageMap(jump)}${contents(CHAPTERS, jump)}</nav>
    </details>
    ${trace.edits.length ? html`<span class="edited" data-edits=${trace.edits.join(" ")}>edited: ${trace.edits.map((edit) => editLabel(view, edit)).join(", ")}</span> ${backend.kind === "live" ? html`<button type="button" @click=${() => choose({ edits: [] })}>as trained</button>` : nothing}` : nothing}
  </div>`;
}

export const colophon = ({ trace }, check) =>
  html`Model ${trace.model.name}, ${trace.model.hash.slice(0, 12)}; every figure but those marked
  otherwise shows tensors of the one forward pass that made this translation. The page has computed
  each stage of every attention again from the stage before it:
  ${check ? check.stages.map((s) => html`${s.name} ${s.error.toExponential(1)}; `) : "…"} lit-html
  (BSD-3-Clause) draws it.`;

/** The page while there is no translation: the error, and what to try. */
export function errorNotice(error, { sentences, ask, retry }) {
  return html`<div class="notice" style="text-align:left">
    <div class="error" role="alert"><p>${error}</p></div>
    ${
      sentences.length
        ? html`<p>Try one of these:</p>
            <ul class="offers">
              ${sentences.map((s) => html`<li><button type="button" @click=${() => ask(s)}>${s}</button></li>`)}
            </ul>`
        : html`<p><button type="button" @click=${retry}>Try again</button></p>`
    }
  </div>`;
}
