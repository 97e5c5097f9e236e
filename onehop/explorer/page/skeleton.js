// The parts of the page around its figures: sections, the bar with the shared selection, the colophon, notices.

import { html, nothing } from "onehop/vendor/lit-html.js";
import { picker, segments } from "onehop/controls.js";
import { contents, pageMap } from "onehop/map.js";
import { range } from "onehop/maths.js";
import { CODA, RUNGS } from "onehop/rungs.js";
import { ROLES, sideOf } from "onehop/state.js";
import { ROLE_NAMES } from "onehop/tensors.js";
import { clipped } from "onehop/text.js";

/** Jump without losing the selection that the address holds. */
function jump(event) {
  event.preventDefault();
  event.currentTarget.closest("details")?.removeAttribute("open");
  document.getElementById(event.currentTarget.getAttribute("href").slice(1)).scrollIntoView();
}

const place = (figure) =>
  html`<figure
    id="figure-${figure.id}"
    data-figure=${figure.id}
    data-item=${figure.item}
    aria-labelledby="${figure.id}-name"
  ></figure>`;

export function skeleton(settings, measured) {
  return html` <header class="masthead" id="masthead"></header>
    <nav class="bar" id="bar" aria-label="Selection shared by all figures"></nav>
    <nav class="rail" aria-label="Map and contents">${pageMap(jump)}${contents(RUNGS, jump)}</nav>
    <main>
      ${RUNGS.map(
        (rung) =>
          html`<section class="rung" id=${rung.id} aria-labelledby="${rung.id}-title">
            <p class="eyebrow">${rung.eyebrow}</p>
            <h2 id="${rung.id}-title">${rung.title}</h2>
            ${rung.figures.map(([figure, prose]) => html`${prose(settings, measured)}${place(figure)}`)}
          </section>`,
      )}
      <section class="coda" aria-label="After the last rung">
        ${CODA.heading}${CODA.prose}${place(CODA.figure)}${CODA.questions}${CODA.references}
        <p class="colophon" id="colophon"></p>
      </section>
    </main>`;
}

export function bar({ selection, trace, home, choose }) {
  const tokens = trace.queries(selection.role);
  return html`<div class="bar-inside">
    <span class="shows">The figures show</span>
    ${segments({ name: "role", label: "Attention", options: ROLES.map((r) => [r, ROLE_NAMES[r]]), value: selection.role, choose: (role) => choose({ role }) })}
    ${picker({ label: "layer", options: range(trace.layers(selection.role)).map((i) => [i, i + 1]), value: selection.layer, choose: (i) => choose({ layer: Number(i) }) })}
    ${picker({ label: "head", options: range(trace.heads).map((i) => [i, i + 1]), value: selection.head, choose: (i) => choose({ head: Number(i) }) })}
    ${picker({ label: sideOf(selection.role) === "source" ? "word" : "writing", options: tokens.map((t, i) => [i, `${i + 1} ${clipped(t, 14)}`]), value: selection.token, choose: (i) => choose({ token: Number(i) }) })}
    <details class="contents">
      <summary>Map</summary>
      <nav aria-label="Map and contents">${pageMap(jump)}${contents(RUNGS, jump)}</nav>
    </details>
    ${trace.edits.length ? html`<span class="edited">edited: ${trace.edits.join(", ")}</span> ${home.kind === "live" ? html`<button type="button" @click=${() => choose({ edits: [] })}>as trained</button>` : nothing}` : nothing}
  </div>`;
}

export const colophon = ({ trace }, check) =>
  html`Model ${trace.model.name}, ${trace.model.hash.slice(0, 12)}; every figure but those marked
  otherwise shows tensors of the one forward pass that made this translation. The page has computed
  each stage of every attention again from the stage before it:
  ${check ? check.stages.map((s) => html`${s.name} ${s.error.toExponential(1)}; `) : "…"} lit-html
  (BSD-3-Clause) draws it.`;

/** What stands on the page while there is no translation: what went wrong, and what to try. */
export function failed(trouble, { sentences, ask, again }) {
  return html`<div class="notice" style="text-align:left">
    <div class="trouble" role="alert"><p>${trouble}</p></div>
    ${
      sentences.length
        ? html`<p>Try one of these:</p>
            <ul class="offers">
              ${sentences.map((s) => html`<li><button type="button" @click=${() => ask(s)}>${s}</button></li>`)}
            </ul>`
        : html`<p><button type="button" @click=${again}>Try again</button></p>`
    }
  </div>`;
}
