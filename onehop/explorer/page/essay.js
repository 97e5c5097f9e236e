// The essay around the figures: prose, what a chapter hands over, and each claim with its verdict.

import { html, nothing, render } from "onehop/vendor/lit-html.js";
import { NAMES, judged } from "onehop/claims.js";
import { RUNGS, factsOf } from "onehop/rungs.js";
import { TEXTS } from "onehop/texts.js";

const T = TEXTS.claims;

/** What the reader can do about a claim that nobody has measured yet. */
const MEASURES = {
  looks: ({ startSweep }) => startSweep(),
  one: ({ startSweep }) => startSweep(),
  order: ({ turn }) => turn("order.asked", "yes"),
};

const chip = (answer) =>
  html`<span class="verdict ${answer === "no" ? "no" : answer === "yes" ? "yes" : ""}"
    >${T.answers[answer]}</span
  >`;

function unmeasured(view, name) {
  const measure = MEASURES[name];
  if (!measure) return T.missing;
  if (view.sweep.state === "running" && name !== "order") return T.waiting;
  return html`<button type="button" data-measure=${name} @click=${() => measure(view)}>
    ${T.measure}
  </button>`;
}

const RECORDED = {
  jobs: "patterns",
  coreference: "coreference",
  spare: "pruning",
  lengths: "lengths",
};

/** Where a verdict comes from; a recording of another model than the one on show names it. */
function origin(view, name) {
  if (T[name].from === "live") return T.here.live;
  const model = view.measured[RECORDED[name]]?.model;
  return model && model.hash !== view.trace.model.hash ? T.here.of(model.name) : T.here.recorded;
}

function claim(view, name) {
  const found = judged(view, name);
  const { says } = T[name];
  const answer = found?.answer ?? "unmeasured";
  return html`<li class="claim" data-claim=${name} data-answer=${answer}>
    <span class="says"><span class="soft">${T.prefix}</span> ${says}</span>
    <span class="found">
      ${chip(answer)}
      ${found ? html`<span class="soft">${origin(view, name)}</span> ${found.said}` : unmeasured(view, name)}
    </span>
  </li>`;
}

const at = (id) => document.getElementById(id);

let drawnFacts = null;

/** Prose and clues: what they say depends on the sentence and on what the sweep has found, not on the selection. */
export function drawProse(view) {
  const facts = factsOf(view);
  if (facts === drawnFacts) return;
  drawnFacts = facts;
  for (const { id, figures } of RUNGS) {
    for (const figure of figures) render(TEXTS.prose[figure.id](facts), at(`said-${figure.id}`));
    const clue = TEXTS.clues[id]?.(facts);
    render(
      clue ? html`<p><b class="eyebrow">${TEXTS.clue}</b> ${clue}</p>` : nothing,
      at(`clue-${id}`),
    );
  }
}

/** The claims of one chapter. */
export const drawClaims = (view, { id, claims }) =>
  render(
    claims.length
      ? html`<ul class="claims">
          ${claims.map((name) => claim(view, name))}
        </ul>`
      : nothing,
    at(`claims-${id}`),
  );

/** All claims again, after the last chapter, and how many hold. */
export function drawLedger(view) {
  const answers = NAMES.map((name) => judged(view, name)?.answer);
  const times = (answer) => answers.filter((a) => a === answer).length;
  render(
    html`<p class="prose" data-count>
        ${T.count(times("yes"), times("partly"), times("no"), NAMES.length)}
      </p>
      <ul class="claims ledger">
        ${NAMES.map((name) => claim(view, name))}
      </ul>`,
    at("ledger"),
  );
}
