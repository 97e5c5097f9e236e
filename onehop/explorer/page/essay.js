// The text around the figures: prose, the chapters' conclusions, and each claim with its verdict.

import { html, nothing, render } from "onehop/vendor/lit-html.js";
import { CLAIM_NAMES, judgeClaim } from "onehop/claims.js";
import { CHAPTERS, factsOf } from "onehop/chapters.js";
import { TEXTS } from "onehop/texts.js";

const T = TEXTS.claims;

/** What a click on “Measure it” does for a claim. */
const MEASURES = {
  looks: ({ startSweep }) => startSweep(),
  one: ({ startSweep }) => startSweep(),
  order: ({ setDial }) => setDial("order.asked", "yes"),
};

const badge = (answer) =>
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

/** The source of a verdict; a recording of another model names that model. */
function origin(view, name) {
  if (T[name].from === "live") return T.here.live;
  const model = view.measured[RECORDED[name]]?.model;
  return model && model.hash !== view.trace.model.hash ? T.here.of(model.name) : T.here.recorded;
}

const asked = (name) => html`<span class="soft">${T.prefix}</span> ${T[name].statement}`;

/** A claim with its verdict. In the list of all claims the verdicts are a column of their own. */
function claim(view, name, inList = false) {
  const verdict = judgeClaim(view, name);
  const answer = verdict?.answer ?? "unmeasured";
  return html`<li class="claim" data-claim=${name} data-answer=${answer}>
    ${inList ? badge(answer) : nothing}
    <span class="statement">${inList ? T[name].statement : asked(name)}</span>
    <span class="evidence">
      ${inList ? nothing : badge(answer)}
      ${verdict ? html`<span class="soft">${origin(view, name)}</span> ${verdict.evidence}` : unmeasured(view, name)}
    </span>
  </li>`;
}

const byId = (id) => document.getElementById(id);

let drawnFacts = null;

/** Prose and conclusions depend on the sentence and on the sweep's result, not on the selection. */
export function drawProse(view) {
  const facts = factsOf(view);
  if (facts === drawnFacts) return;
  drawnFacts = facts;
  for (const { id, figures } of CHAPTERS) {
    for (const figure of figures) render(TEXTS.prose[figure.id](facts), byId(`essay-${figure.id}`));
    const conclusion = TEXTS.conclusions[id]?.(facts);
    render(
      conclusion
        ? html`<p><b class="eyebrow">${TEXTS.conclusionLabel}</b> ${conclusion}</p>`
        : nothing,
      byId(`conclusion-${id}`),
    );
  }
}

export const drawClaims = (view, { id, claims }) =>
  render(
    claims.length
      ? html`<ul class="claims">
          ${claims.map((name) => claim(view, name))}
        </ul>`
      : nothing,
    byId(`claims-${id}`),
  );

/** All claims again after the last chapter, and how many hold. */
export function drawLedger(view) {
  const answers = CLAIM_NAMES.map((name) => judgeClaim(view, name)?.answer);
  const [yes, partly, no] = ["yes", "partly", "no"].map(
    (a) => answers.filter((b) => b === a).length,
  );
  render(
    html`<p class="prose" data-count>
        ${T.count(yes, partly, no, answers.length - yes - partly - no)}
      </p>
      <ul class="claims ledger">
        ${CLAIM_NAMES.map((name) => claim(view, name, true))}
      </ul>`,
    byId("ledger"),
  );
}
