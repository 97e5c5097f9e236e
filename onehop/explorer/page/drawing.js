// When each part of the page is drawn. Figures in sight are drawn in the next frame. The others wait until the reader
// pauses. A preview (the mouse is over a word) is drawn only in figures in sight.

import { nothing, render } from "onehop/vendor/lit-html.js";
import { forgetPictures } from "onehop/colour.js";
import { drawClaims, drawLedger, drawProse } from "onehop/essay.js";
import { framed, snippet } from "onehop/frame.js";
import { opened } from "onehop/hero.js";
import { checking } from "onehop/recompute.js";
import { FIGURES, LABELS, RUNGS } from "onehop/rungs.js";
import { scrollTo } from "onehop/scrolling.js";
import { ask, home, pointer, reload, setTheme, store } from "onehop/session.js";
import { bar, colophon, failed, skeleton } from "onehop/skeleton.js";
import { figureOf } from "onehop/state.js";
import { drawTour, figureOfTour, reopenTour } from "onehop/tour.js";
import { currentView, forFigure, forgetColours } from "onehop/view.js";
import { isWhole } from "onehop/waiting.js";

const root = document.getElementById("page");
const dark = window.matchMedia("(prefers-color-scheme: dark)");
const SLICE = 12; // milliseconds: longer and scrolling would stutter
const PAUSE = 100; // milliseconds without a change, after which figures out of sight are drawn

const places = new Map(); // id -> { figure, element }
const near = new Set(); // ids of figures in sight or less than 300 px from it
const inSight = new Set(); // ids of figures in sight, and MASTHEAD
const MASTHEAD = "masthead";
const stale = new Set(); // ids of figures to draw again
const underPreview = new Set(); // what shows the previewed word
let frameRequested = false;
let previewFrame = 0;
let pause = 0; // the timer until figures out of sight are drawn
let barIsStale = true;
let mastheadIsStale = true; // and the colophon
let checked = { trace: null, going: null, found: null };
let pictured = null; // the trace that the cached pixel pictures are of
let essayIsCurrent = false;
let staleClaims = []; // functions that each draw the claims of one chapter

const keyOf = ({ target }) => target.dataset.figure ?? MASTHEAD;

/** Keep `ids` equal to the figures that are less than `margin` from the window, and call `act` after a change. */
function watchFigures(ids, margin, act) {
  const observer = new IntersectionObserver(
    (entries) => {
      for (const entry of entries) ids[entry.isIntersecting ? "add" : "delete"](keyOf(entry));
      act();
    },
    { rootMargin: `${margin} 0px` },
  );
  for (const { element } of places.values()) observer.observe(element);
  return observer;
}

function build() {
  if (places.size) return;
  root.replaceChildren();
  render(skeleton(), root);
  for (const figure of FIGURES) {
    stale.add(figure.id);
    places.set(figure.id, { figure, element: document.getElementById(`figure-${figure.id}`) });
  }
  inSight.add(MASTHEAD).add(FIGURES[0].id); // a guess for the first frame; then the observers know
  watchFigures(near, "300px", () => drawFigures([...near].filter(isDue)));
  watchFigures(inSight, "0px", drawWhatCame).observe(document.getElementById(MASTHEAD));
  watchRungs();
}

function mark(link, current) {
  if (current) link.setAttribute("aria-current", "true");
  else link.removeAttribute("aria-current");
}

function watchRungs() {
  const spy = new IntersectionObserver(
    (entries) => {
      for (const entry of entries.filter((e) => e.isIntersecting)) {
        document
          .querySelectorAll("[data-rung]")
          .forEach((a) => mark(a, a.dataset.rung === entry.target.id));
      }
    },
    { rootMargin: "-30% 0px -60% 0px" },
  );
  document.querySelectorAll(".rung").forEach((rung) => spy.observe(rung));
}

/** Whether a figure must be drawn and can be: before the page is whole, only figures that do not show the translation. */
const isDue = (id) => stale.has(id) && (isWhole() || isIndependent(places.get(id).figure));
const isIndependent = ({ needs, compares = false }) => !needs.length && !compares;

function drawFigures(ids) {
  const view = currentView();
  for (const id of ids) {
    const { figure, element } = places.get(id);
    render(framed(figure, LABELS.get(id), forFigure(view, id)), element);
    element.dataset.drawn = "";
    scrollInside(element);
    stale.delete(id);
  }
}

/** A scrolling part of a figure is scrolled to the position in `data-left`, once for each position. */
function scrollInside(element) {
  for (const box of element.querySelectorAll("[data-left]")) {
    if (box.dataset.at === box.dataset.left) continue;
    box.dataset.at = box.dataset.left;
    box.scrollLeft = Number(box.dataset.left);
  }
}

/** Show the previewed word in what is in sight, or take it back from everything that shows it. */
function drawPreview() {
  const parts = pointer.value.previewed ? [...inSight] : [...underPreview];
  for (const part of parts) underPreview[pointer.value.previewed ? "add" : "delete"](part);
  if (parts.includes(MASTHEAD)) drawMasthead(currentView());
  if (isWhole()) drawFigures(parts.filter((part) => part !== MASTHEAD));
}

/** Something has come into sight: the masthead may be stale, and the mouse may rest on a word. */
function drawWhatCame() {
  if (mastheadIsStale && inSight.has(MASTHEAD)) drawEnds();
  if (pointer.value.previewed) drawPreview();
}

export function drawPreviewSoon() {
  if (!store.value.trace) return;
  cancelAnimationFrame(previewFrame);
  previewFrame = requestAnimationFrame(drawPreview);
}

/** Draw the other figures in slices while the browser is idle, those near the window first; then check the trace. */
export function drawRest(slice = SLICE) {
  if (mastheadIsStale) drawEnds();
  if (!isWhole()) return;
  const began = performance.now();
  const isLate = () => performance.now() - began > slice;
  const isFar = (id) => Number(!near.has(id));
  for (const id of [...stale].sort((a, b) => isFar(a) - isFar(b))) {
    drawFigures([id]);
    if (isLate()) return void later(drawRest);
  }
  while (staleClaims.length) {
    staleClaims.shift()();
    if (isLate()) return void later(drawRest);
  }
  if (!check(isLate)) return void later(drawRest);
  if (!frameRequested) root.dataset.ready = "yes";
  reopenTour();
  showLinked();
}

let linked = figureOf(location.hash);

/** Scroll to the figure that a link leads to, once. */
function showLinked() {
  if (linked) scrollTo(document.getElementById(`figure-${linked}`));
  linked = null;
}

/** Continue the check of this trace until it is late. Returns whether the check is complete. */
function check(isLate) {
  const { trace } = store.value;
  if (checked.trace !== trace) checked = { trace, going: checking(trace), found: null };
  if (checked.found) return true;
  let step = checked.going.next();
  while (!step.done && !isLate()) step = checked.going.next();
  if (!step.done) return false;
  checked.found = step.value;
  drawEnds(); // they show the errors
  return true;
}

const later = (work) =>
  window.requestIdleCallback
    ? window.requestIdleCallback(() => work(), { timeout: 100 })
    : setTimeout(work, 16);

/** Claims take a few milliseconds each, so they are drawn one chapter at a time. */
function drawEssay() {
  drawProse(currentView());
  const chapters = RUNGS.map((rung) => () => drawClaims(currentView(), rung));
  staleClaims = [...chapters, () => drawLedger(currentView())];
}

/**
 * Draw again in the next frame: everything, or the figures in `scope`. An empty scope stands for masthead and bar, which
 * change with everything but a figure's own settings.
 */
export function drawSoon(scope = null) {
  for (const id of scope ?? places.keys()) if (places.has(id)) stale.add(id);
  if (scope === null) essayIsCurrent = false;
  if (!scope?.length) barIsStale = mastheadIsStale = true;
  if (frameRequested) return;
  frameRequested = true;
  delete root.dataset.ready;
  requestAnimationFrame(() => {
    frameRequested = false;
    draw();
  });
}

function draw() {
  const { trace, base, trouble } = store.value;
  showTheme();
  if (!trace) return render(trouble ? notice(trouble) : nothing, troublePlace());
  if (pictured !== base) forgetPictures();
  pictured = base;
  build();
  if (barIsStale) render(bar(currentView()), document.getElementById("bar"));
  barIsStale = false;
  if (mastheadIsStale && inSight.has(MASTHEAD)) drawEnds();
  drawTour();
  const first = new Set([...inSight, figureOfTour()]); // the tour may scroll to a part of its figure
  drawFigures([...first].filter(isDue));
  if (!essayIsCurrent) drawEssay();
  essayIsCurrent = true;
  clearTimeout(pause);
  pause = setTimeout(() => later(drawRest), stale.size ? PAUSE : 0);
}

/** The masthead and the colophon, which stand before and behind the figures. */
function drawEnds() {
  const view = currentView();
  mastheadIsStale = false;
  drawMasthead(view);
  render(colophon(view, checkOf(view)), document.getElementById("colophon"));
}

/** The result of the check of the trace on show; null until it is there. */
const checkOf = ({ trace }) => (checked.trace === trace ? checked.found : null);

function drawMasthead(view) {
  const { busy, trouble, draft } = store.value;
  const theme = document.documentElement.dataset.theme;
  render(
    opened({ ...view, busy, trouble, draft, check: checkOf(view), theme, setTheme, setDraft }),
    document.getElementById(MASTHEAD),
  );
}

/** The reader is typing: nothing is drawn for that. */
function setDraft(text) {
  store.value.draft = text;
}

export function showTheme() {
  const theme = store.value.theme ?? (dark.matches ? "dark" : "light");
  if (document.documentElement.dataset.theme !== theme) forgetColours();
  document.documentElement.dataset.theme = theme;
}

dark.addEventListener("change", () => drawSoon());

const notice = (trouble) =>
  failed(trouble, { sentences: home.data.about?.sentences ?? [], ask, again: reload });

/** Before the first translation there is no page yet, only a notice. */
function troublePlace() {
  if (!document.getElementById("trouble"))
    root.insertAdjacentHTML("beforeend", '<div id="trouble"></div>');
  if (store.value.trouble) root.querySelector(".notice")?.remove();
  return document.getElementById("trouble");
}

/** The Python lines of a figure as it stands. */
export const snippetOf = (id) => snippet(places.get(id).figure, currentView());
