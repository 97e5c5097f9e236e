// The tour: stops driven by the arrow keys, each with its selection and a sentence or two. Usable as a talk.

import { html, nothing, render } from "onehop/vendor/lit-html.js";
import { finding, offEdit } from "onehop/findings.js";
import { argmax } from "onehop/maths.js";
import { playFigure, stopPlaying } from "onehop/player.js";
import { factsOf } from "onehop/rungs.js";
import { scrollTo } from "onehop/scrolling.js";
import { choose, home, store } from "onehop/session.js";
import { linked, mystery } from "onehop/story.js";
import { TEXTS } from "onehop/texts.js";
import { currentView } from "onehop/view.js";
import { startSweep } from "onehop/waiting.js";

const T = TEXTS.tour;
const DIAL = "tour.stop";

/** What was found about the word before anything was broken. */
let known = null;
let settledAt = null; // the stop whose selection has been set
let shownAt = null; // the stop whose finding has been brought into sight

const inQuestion = ({ trace, measured }) => ({
  role: "cross",
  layer: trace.aligner.layer,
  head: trace.aligner.head,
  step: mystery(trace, measured),
});
const culprit = ({ worst }) => ({ role: worst.role, layer: worst.layer, head: worst.head });

/**
 * Where each stop stands, and what it selects; those that `need` the sweep's finding wait for it. `finding` is the part
 * of the figure that holds it. Where a figure `plays`, the panel has a button for those who have no space bar.
 */
const STOPS = [
  { at: "answer", set: inQuestion },
  {
    at: "figure-paths",
    set: ({ trace }) => ({
      dials: { "paths.kind": "recurrent", "paths.length": String(trace.source.tokens.length) },
    }),
  },
  {
    at: "figure-embeddings",
    set: ({ trace, measured }) => ({
      role: "encoder",
      source: linked(trace, mystery(trace, measured)),
    }),
  },
  { at: "figure-scores", set: inQuestion, plays: true },
  {
    at: "figure-divisor",
    plays: true,
    set: (view) => ({ ...inQuestion(view), dials: { "divisor.place": "0" } }),
  },
  { at: "figure-blend", set: inQuestion, plays: true },
  { at: "figure-matrix", set: inQuestion },
  {
    at: "figure-mask",
    plays: true,
    set: (view) => ({ ...inQuestion(view), dials: { "mask.on": "yes" } }),
  },
  { at: "figure-heads", set: inQuestion },
  {
    at: "figure-decides",
    set: inQuestion,
    sweep: true,
    finding: "#figure-decides [data-heading=effect]",
  },
  { at: "figure-arcs", needs: true, set: (view) => ({ ...inQuestion(view), ...culprit(known) }) },
  { at: "figure-lens", needs: true, set: inQuestion },
  { at: "figure-breaking", needs: true, edits: () => edits(), set: () => ({}) },
  {
    at: "figure-machine",
    set: (view) => ({ ...inQuestion(view), dials: { "machine.level": "whole" } }),
  },
  { at: "claims", set: inQuestion },
];
export const LENGTH = STOPS.length;

/** The proof: the head that decides is switched off. A file holds other edits. */
const edits = () => (home.kind === "live" ? [offEdit(known.worst)] : ["positions=off"]);

const stopOf = () => {
  const stop = Number(store.value.selection.dials[DIAL]);
  return stop >= 1 && stop <= STOPS.length ? stop - 1 : null;
};
export const isTouring = () => stopOf() !== null;

/** The figure or other part of the page that the tour scrolls to, by its id; null outside the tour. */
export function figureOfTour() {
  const index = stopOf();
  return index === null ? null : STOPS[index].at.replace("figure-", "");
}

/** Remember what the sweep says of the model as trained: at the next stop it is broken. */
function learn(view) {
  if (view.trace.edits.length) return;
  const found = finding(view, mystery(view.trace, view.measured));
  if (!found) return void (known = null);
  const { worst } = found;
  const at = view.trace.keys(worst.role)[argmax(worst.row)];
  known = { ...found, at, language: view.trace.model.target, stamp: view.base.source.text };
}

const isKnown = (view) => known?.stamp === view.base.source.text;

/** Set a stop's selection and bring its figure into sight. */
function settle(index) {
  const view = currentView();
  const stop = STOPS[index];
  learn(view);
  if ((stop.sweep || stop.needs) && !isKnown(view)) {
    if (view.trace.edits.length) return choose({ edits: [] }); // first the model as trained
    startSweep();
    if (stop.needs) return; // the finding will call again
  }
  const { dials = {}, ...change } = stop.set(view);
  const wanted = stop.edits?.() ?? [];
  const edited = wanted.join() !== view.selection.edits.join() ? { edits: wanted } : {};
  settledAt = index;
  choose({ ...change, ...edited, dials: { ...store.value.selection.dials, ...dials } });
}

/** Mark where a stop stands; null: nowhere. */
function mark(at) {
  document.querySelectorAll("[data-here]").forEach((e) => e.removeAttribute("data-here"));
  if (at) document.getElementById(at)?.setAttribute("data-here", "");
}

/** Bring a stop's figure into sight; in the meantime the reader may have gone on. */
function show(index) {
  if (stopOf() !== index) return;
  const { at, finding: part } = STOPS[index];
  const found = shownAt === index && part ? document.querySelector(part) : null;
  scrollTo(found ?? document.getElementById(at));
  document.querySelector("#tour .panel")?.focus({ preventScroll: true });
}

export function goTo(index) {
  stopPlaying();
  [settledAt, shownAt] = [null, null];
  const { dials } = store.value.selection;
  choose({ dials: { ...dials, [DIAL]: String(index + 1) } });
  drawTour();
  mark(STOPS[index].at);
  settle(index);
  requestAnimationFrame(() => show(index));
}

export function leave() {
  stopPlaying();
  const { [DIAL]: _, ...dials } = store.value.selection.dials;
  mark(null);
  choose({ dials, ...(store.value.selection.edits.length ? { edits: [] } : {}) });
  drawTour();
}

/** The panel of the stop on show, or nothing. */
export function drawTour() {
  const index = stopOf();
  const place = document.getElementById("tour");
  document.documentElement.toggleAttribute("data-touring", index !== null);
  if (!place || index === null || !store.value.trace) return place && render(nothing, place);
  const view = currentView();
  learn(view);
  if (settledAt !== index && !store.value.busy && STOPS[index].needs && isKnown(view))
    queueMicrotask(() => settle(index));
  const facts = {
    ...factsOf(view),
    live: home.kind === "live",
    sweep: view.sweep,
    found: isKnown(view) ? T.found(known) : null,
    base: view.base.target.text.trim(),
    now: view.trace.target.text.trim(),
    busy: store.value.busy,
  };
  render(panel(index, T.stops[index](facts)), place);
  if (STOPS[index].finding && isKnown(view) && shownAt !== index) {
    shownAt = index;
    afterDrawing(() => show(index));
  }
}

/** The figures of a change are drawn in the next frame. */
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
        STOPS[index].plays
          ? html`<button type="button" data-tour="play" @click=${() => playStop(index)}>
              ${T.play}
            </button>`
          : nothing
      }
      <button type="button" class="quiet" data-tour="leave" @click=${leave}>${T.leave}</button>
      <span class="soft">${T.keys}</span>
    </div>
  </div>`;

const playStop = (index) => playFigure(STOPS[index].at.replace("figure-", ""));

function keys(event) {
  const index = stopOf();
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

/** t begins, Escape ends; with no control in focus the arrows go on as well. */
export function watchTour() {
  window.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || !store.value.trace) return;
    if (event.key === "t" && !isTouring() && !isTyping(event.target)) goTo(0);
    else if (event.key === "Escape" && isTouring()) leave();
    else if (isTouring() && event.target === document.body) keys(event);
  });
}

let reopened = false;

/** A link to a stop: its selection is in the address already, so only its figure is brought into sight. */
export function reopenTour() {
  if (reopened || !store.value.trace) return;
  reopened = true;
  const index = stopOf();
  if (index !== null) goTo(index);
}
