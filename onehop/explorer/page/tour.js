// The tour: stops with a selection and a sentence or two, driven by the arrow keys. It can be used as a talk.

import { html, nothing, render } from "onehop/vendor/lit-html.js";
import { canMake, headOffEdit, sweepResult } from "onehop/ablation.js";
import { argmax } from "onehop/maths.js";
import { playFigure, stopPlaying } from "onehop/player.js";
import { factsOf } from "onehop/chapters.js";
import { scrollTo } from "onehop/scrolling.js";
import { backend, choose, store } from "onehop/session.js";
import { alignedSource, openingStep, pronounAndNoun, pronounVerdict } from "onehop/verdict.js";
import { TEXTS } from "onehop/texts.js";
import { currentView } from "onehop/view.js";
import { startSweep } from "onehop/requests.js";

const T = TEXTS.tour;
const DIAL = "tour.stop";

/** The sweep's result for the unedited model. */
let baseline = null;
let appliedStop = null; // the stop whose selection is set
let scrolledStop = null; // the stop whose highlight has been scrolled to

const selectWordInQuestion = ({ trace, measured }) => ({
  role: "cross",
  layer: trace.aligner.layer,
  head: trace.aligner.head,
  step: openingStep(trace, measured),
});
const headOf = ({ strongest: { role, layer, head } }) => ({ role, layer, head });

/**
 * Each stop's element and selection. `needsSweep` waits for the sweep's result, `highlight` is the element with it,
 * and `hasPlayer` adds a play button.
 */
const STOPS = [
  { target: "answer", select: selectWordInQuestion },
  {
    target: "figure-paths",
    select: ({ trace }) => ({
      dials: { "paths.kind": "recurrent", "paths.length": String(trace.source.tokens.length) },
    }),
  },
  {
    target: "figure-embeddings",
    select: ({ trace, measured }) => ({
      role: "encoder",
      source:
        pronounAndNoun(trace, measured)?.pronoun[0] ??
        alignedSource(trace, openingStep(trace, measured)),
    }),
  },
  { target: "figure-scores", select: selectWordInQuestion, hasPlayer: true },
  {
    target: "figure-divisor",
    hasPlayer: true,
    select: (view) => ({ ...selectWordInQuestion(view), dials: { "divisor.place": "0" } }),
  },
  { target: "figure-blend", select: selectWordInQuestion, hasPlayer: true },
  { target: "figure-matrix", select: selectWordInQuestion },
  {
    target: "figure-mask",
    hasPlayer: true,
    select: (view) => ({ ...selectWordInQuestion(view), dials: { "mask.on": "yes" } }),
  },
  { target: "figure-heads", select: selectWordInQuestion },
  {
    target: "figure-decides",
    select: selectWordInQuestion,
    sweep: true,
    highlight: "#figure-decides [data-heading=effect]",
  },
  {
    target: "figure-arcs",
    needsSweep: true,
    select: (view) => ({ ...selectWordInQuestion(view), ...headOf(baseline) }),
  },
  { target: "figure-lens", needsSweep: true, select: selectWordInQuestion },
  { target: "figure-breaking", needsSweep: true, edits: () => proofEdits(), select: () => ({}) },
  {
    target: "figure-machine",
    select: (view) => ({ ...selectWordInQuestion(view), dials: { "machine.level": "whole" } }),
  },
  { target: "claims", select: selectWordInQuestion },
];

const strongestOff = () => headOffEdit(baseline.strongest);

/** The edits of the proof: the strongest head off. A file of a word that no head turns holds other edits. */
const proofEdits = () => [
  canMake({ backend, about: backend.data.about }, strongestOff())
    ? strongestOff()
    : "positions=off",
];

/** The translation without the strongest head. A server makes it the page's own; a file has recorded it. */
function proof(view) {
  if (!hasBaseline(view) || !canMake(view, strongestOff())) return {};
  if (view.backend.kind === "live")
    return { canProve: true, now: view.trace.target.text.trim(), busy: store.value.busy };
  const { value } = view.resource(`variant ${view.base.source.text} ${strongestOff()}`, () =>
    view.backend.variant(view.base.source.text, [strongestOff()]),
  );
  if (!value?.target) return { canProve: !value?.error, busy: true };
  const { source, model } = view.base;
  return {
    canProve: true,
    now: value.target.text.trim(),
    verdict: pronounVerdict({ source, model, target: value.target }, view.measured),
  };
}

const currentStop = () => {
  const stop = Number(store.value.selection.dials[DIAL]);
  return stop >= 1 && stop <= STOPS.length ? stop - 1 : null;
};
const isTouring = () => currentStop() !== null;

/** The id of the tour's current figure or section; null outside the tour. */
export function tourFigure() {
  const index = currentStop();
  return index === null ? null : STOPS[index].target.replace("figure-", "");
}

/** Keep the sweep's result of the unedited model, because the next stops edit it. */
function updateBaseline(view) {
  if (view.trace.edits.length) return;
  const result = sweepResult(view, openingStep(view.trace, view.measured));
  if (!result) return void (baseline = null);
  const { strongest } = result;
  const attended = view.trace.keys(strongest.role)[argmax(strongest.row)];
  baseline = {
    ...result,
    attended,
    language: view.trace.model.target,
    source: view.base.source.text,
  };
}

const hasBaseline = (view) => baseline?.source === view.base.source.text;

/** Set a stop's selection and scroll to its figure. */
function applyStop(index) {
  const view = currentView();
  const stop = STOPS[index];
  updateBaseline(view);
  if ((stop.sweep || stop.needsSweep) && !hasBaseline(view)) {
    if (view.trace.edits.length) return choose({ edits: [] }); // the sweep needs the unedited model
    startSweep();
    if (stop.needsSweep) return; // drawTour calls again when the sweep is done
  }
  const { dials = {}, ...change } = stop.select(view);
  const edits = stop.edits?.() ?? [];
  const changedEdits = edits.join() !== view.selection.edits.join() ? { edits } : {};
  appliedStop = index;
  choose({ ...change, ...changedEdits, dials: { ...store.value.selection.dials, ...dials } });
}

/** Mark the current stop's element; null removes the mark. */
function markElement(id) {
  document.querySelectorAll("[data-here]").forEach((e) => e.removeAttribute("data-here"));
  if (id) document.getElementById(id)?.setAttribute("data-here", "");
}

/** Scroll to a stop's figure, unless the reader has moved on. */
function scrollToStop(index) {
  if (currentStop() !== index) return;
  const { target, highlight } = STOPS[index];
  const highlighted =
    scrolledStop === index && highlight ? document.querySelector(highlight) : null;
  scrollTo(highlighted ?? document.getElementById(target));
  document.querySelector("#tour .panel")?.focus({ preventScroll: true });
}

export function goTo(index) {
  stopPlaying();
  [appliedStop, scrolledStop] = [null, null];
  const { dials } = store.value.selection;
  choose({ dials: { ...dials, [DIAL]: String(index + 1) } });
  drawTour();
  markElement(STOPS[index].target);
  applyStop(index);
  requestAnimationFrame(() => scrollToStop(index));
}

function leave() {
  stopPlaying();
  const { [DIAL]: _, ...dials } = store.value.selection.dials;
  markElement(null);
  choose({ dials, ...(store.value.selection.edits.length ? { edits: [] } : {}) });
  drawTour();
}

/** Draw the panel of the current stop, or remove it. */
export function drawTour() {
  const index = currentStop();
  const container = document.getElementById("tour");
  document.documentElement.toggleAttribute("data-touring", index !== null);
  if (!container || index === null || !store.value.trace)
    return container && render(nothing, container);
  const view = currentView();
  updateBaseline(view);
  if (appliedStop !== index && !store.value.busy && STOPS[index].needsSweep && hasBaseline(view))
    queueMicrotask(() => applyStop(index));
  const facts = {
    ...factsOf(view),
    live: backend.kind === "live",
    sweep: view.sweep,
    finding: hasBaseline(view) ? T.finding(baseline) : null,
    base: view.base.target.text.trim(),
    ...(STOPS[index].target === "figure-breaking" ? proof(view) : {}),
  };
  render(panel(index, T.stops[index](facts)), container);
  if (STOPS[index].highlight && hasBaseline(view) && scrolledStop !== index) {
    scrolledStop = index;
    afterDrawing(() => scrollToStop(index));
  }
}

/** Figures are drawn in the frame after a change. */
const afterDrawing = (act) => requestAnimationFrame(() => requestAnimationFrame(act));

const panel = (index, { title, text }) =>
  html`<div
    class="panel"
    role="region"
    aria-label=${T.label}
    tabindex="-1"
    data-stop=${index + 1}
    @keydown=${keys}
  >
    <p class="eyebrow">${T.of(index + 1, STOPS.length)}</p>
    <div aria-live="polite">
      <h2>${title}</h2>
      <p>${text}</p>
    </div>
    <div class="steps">
      <button
        type="button"
        data-tour="back"
        ?disabled=${index === 0}
        @click=${() => goTo(index - 1)}
      >
        ${T.back}
      </button>
      ${
        index + 1 < STOPS.length
          ? html`<button
              type="button"
              class="primary"
              data-tour="next"
              @click=${() => goTo(index + 1)}
            >
              ${T.next}
            </button>`
          : nothing
      }
      ${
        STOPS[index].hasPlayer
          ? html`<button type="button" data-tour="play" @click=${() => playStop(index)}>
              ${T.play}
            </button>`
          : nothing
      }
      <button type="button" class="quiet" data-tour="leave" @click=${leave}>${T.leave}</button>
      <span class="soft">${T.keys}</span>
    </div>
  </div>`;

const playStop = (index) => playFigure(STOPS[index].target.replace("figure-", ""));

function keys(event) {
  const index = currentStop();
  const act = {
    ArrowRight: () => index + 1 < STOPS.length && goTo(index + 1),
    PageDown: () => index + 1 < STOPS.length && goTo(index + 1),
    ArrowLeft: () => index > 0 && goTo(index - 1),
    PageUp: () => index > 0 && goTo(index - 1),
    " ": () => playStop(index),
  }[event.key];
  if (!act || (event.key === " " && event.target.closest("button"))) return;
  event.preventDefault();
  event.stopPropagation();
  act();
}

const isTyping = (target) => target.closest?.("input, select, textarea, [contenteditable]");

/** t starts the tour, Escape ends it; without a focused control the arrow keys work too. */
export function watchTour() {
  window.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || !store.value.trace) return;
    if (event.key === "t" && !isTouring() && !isTyping(event.target)) goTo(0);
    else if (event.key === "Escape" && isTouring()) leave();
    else if (isTouring() && event.target === document.body) keys(event);
  });
}

let isReopened = false;

/** A link to a stop: the address already holds its selection, so only the scrolling is left. */
export function reopenTour() {
  if (isReopened || !store.value.trace) return;
  isReopened = true;
  const index = currentStop();
  if (index !== null) goTo(index);
}
