// When each part of the page is drawn. Visible figures are drawn in the next frame, the others when the reader
// pauses. A preview is drawn only in visible figures.

import { nothing, render } from "onehop/vendor/lit-html.js";
import { clearImages } from "onehop/colour.js";
import { drawClaims, drawLedger, drawProse } from "onehop/essay.js";
import { figureFrame, snippet } from "onehop/frame.js";
import { masthead } from "onehop/masthead.js";
import { checkTrace } from "onehop/recompute.js";
import { CHAPTERS, FIGURES, FIGURE_LABELS } from "onehop/chapters.js";
import { scrollTo } from "onehop/scrolling.js";
import { ask, backend, pointer, reload, setTheme, store } from "onehop/session.js";
import { bar, colophon, errorNotice, skeleton } from "onehop/skeleton.js";
import { figureInHash } from "onehop/state.js";
import { drawTour, reopenTour, tourFigure } from "onehop/tour.js";
import { clearColours, currentView, forFigure } from "onehop/view.js";
import { isComplete } from "onehop/requests.js";

const root = document.getElementById("page");
const dark = window.matchMedia("(prefers-color-scheme: dark)");
const SLICE = 12; // milliseconds; longer slices make scrolling stutter
const PAUSE = 100; // milliseconds without a change before hidden figures are drawn

const figures = new Map(); // id -> { figure, element }
const nearby = new Set(); // ids of figures that are visible or less than 300 px away
const visible = new Set(); // ids of visible figures, and MASTHEAD
const MASTHEAD = "masthead";
const stale = new Set(); // ids of figures to draw again
const showingPreview = new Set(); // ids of the parts that show the previewed word
let frameRequested = false;
let previewFrame = 0;
let pause = 0; // timer until hidden figures are drawn
let isBarStale = true;
let isMastheadStale = true; // also for the colophon
let checkState = { trace: null, progress: null, result: null };
let imagesFor = null; // the trace that the cached images belong to
let isEssayCurrent = false;
let staleClaims = []; // functions that draw the claims of one chapter each

const partOf = ({ target }) => target.dataset.figure ?? MASTHEAD;

/** Keep `ids` equal to the figures less than `margin` from the window, and call `act` after a change. */
function watchFigures(ids, margin, act) {
  const observer = new IntersectionObserver(
    (entries) => {
      for (const entry of entries) ids[entry.isIntersecting ? "add" : "delete"](partOf(entry));
      act();
    },
    { rootMargin: `${margin} 0px` },
  );
  for (const { element } of figures.values()) observer.observe(element);
  return observer;
}

function build() {
  if (figures.size) return;
  root.replaceChildren();
  render(skeleton(), root);
  for (const figure of FIGURES) {
    stale.add(figure.id);
    figures.set(figure.id, { figure, element: document.getElementById(`figure-${figure.id}`) });
  }
  visible.add(MASTHEAD).add(FIGURES[0].id); // a guess for the first frame, until the observers report
  watchFigures(nearby, "300px", () => drawFigures([...nearby].filter(isDue)));
  watchFigures(visible, "0px", drawNewlyVisible).observe(document.getElementById(MASTHEAD));
  watchChapters();
}

function markCurrent(link, current) {
  if (current) link.setAttribute("aria-current", "true");
  else link.removeAttribute("aria-current");
}

/** The id of a chapter, or of the heading of a later part. */
const idOf = (part) => part.dataset.part ?? part.id;

function watchChapters() {
  const spy = new IntersectionObserver(
    (entries) => {
      for (const entry of entries.filter((e) => e.isIntersecting)) {
        document
          .querySelectorAll("[data-chapter]")
          .forEach((a) => markCurrent(a, a.dataset.chapter === idOf(entry.target)));
      }
    },
    { rootMargin: "-30% 0px -60% 0px" },
  );
  document.querySelectorAll(".chapter, [data-part]").forEach((part) => spy.observe(part));
}

/**
 * Whether a figure is stale and can be drawn. Before all data is loaded, only figures that do not show the
 * translation can.
 */
const isDue = (id) => stale.has(id) && (isComplete() || isIndependent(figures.get(id).figure));
const isIndependent = ({ needs, compares = false }) => !needs.length && !compares;

function drawFigures(ids) {
  const view = currentView();
  for (const id of ids) {
    const { figure, element } = figures.get(id);
    render(figureFrame(figure, FIGURE_LABELS.get(id), forFigure(view, id)), element);
    element.dataset.drawn = "";
    scrollInside(element);
    stale.delete(id);
  }
}

/** Scroll a part of a figure to the offset in `data-left`, once for each offset. */
function scrollInside(element) {
  for (const box of element.querySelectorAll("[data-left]")) {
    if (box.dataset.at === box.dataset.left) continue;
    box.dataset.at = box.dataset.left;
    box.scrollLeft = Number(box.dataset.left);
  }
}

/** Show the previewed word in all visible parts, or remove it from the parts that show it. */
function drawPreview() {
  const parts = pointer.value.previewed ? [...visible] : [...showingPreview];
  for (const part of parts) showingPreview[pointer.value.previewed ? "add" : "delete"](part);
  if (parts.includes(MASTHEAD)) drawMasthead(currentView());
  if (isComplete()) drawFigures(parts.filter((part) => part !== MASTHEAD));
}

/** The masthead may have become stale while hidden, and newly visible figures must show the previewed word. */
function drawNewlyVisible() {
  if (isMastheadStale && visible.has(MASTHEAD)) drawMastheadAndColophon();
  if (pointer.value.previewed) drawPreview();
}

export function drawPreviewSoon() {
  if (!store.value.trace) return;
  cancelAnimationFrame(previewFrame);
  previewFrame = requestAnimationFrame(drawPreview);
}

/** Draw the other figures in slices while the browser is idle, nearby ones first; then check the trace. */
export function drawRest(slice = SLICE) {
  if (isMastheadStale) drawMastheadAndColophon();
  if (!isComplete()) return;
  const start = performance.now();
  const isLate = () => performance.now() - start > slice;
  const isFar = (id) => Number(!nearby.has(id));
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

let linkedFigure = figureInHash(location.hash);

/** Scroll once to the figure in the page's address. */
function showLinked() {
  if (linkedFigure) scrollTo(document.getElementById(`figure-${linkedFigure}`));
  linkedFigure = null;
}

/** Continue the check of this trace until the slice is used up. Returns whether the check is complete. */
function check(isLate) {
  const { trace } = store.value;
  if (checkState.trace !== trace) checkState = { trace, progress: checkTrace(trace), result: null };
  if (checkState.result) return true;
  let step = checkState.progress.next();
  while (!step.done && !isLate()) step = checkState.progress.next();
  if (!step.done) return false;
  checkState.result = step.value;
  drawMastheadAndColophon(); // they show the errors
  return true;
}

const later = (work) =>
  window.requestIdleCallback
    ? window.requestIdleCallback(() => work(), { timeout: 100 })
    : setTimeout(work, 16);

/** Claims take a few milliseconds each, so they are drawn one chapter at a time. */
function drawEssay() {
  drawProse(currentView());
  const chapters = CHAPTERS.map((chapter) => () => drawClaims(currentView(), chapter));
  staleClaims = [...chapters, () => drawLedger(currentView())];
}

/** Draw everything in the next frame, or the figures in `scope`. An empty scope means the masthead and the bar. */
export function drawSoon(scope = null) {
  for (const id of scope ?? figures.keys()) if (figures.has(id)) stale.add(id);
  if (scope === null) isEssayCurrent = false;
  if (!scope?.length) isBarStale = isMastheadStale = true;
  if (frameRequested) return;
  frameRequested = true;
  delete root.dataset.ready;
  requestAnimationFrame(() => {
    frameRequested = false;
    draw();
  });
}

function draw() {
  const { trace, base, error } = store.value;
  showTheme();
  if (!trace) return render(error ? notice(error) : nothing, errorContainer());
  if (imagesFor !== base) clearImages();
  imagesFor = base;
  build();
  if (isBarStale) render(bar(currentView()), document.getElementById("bar"));
  isBarStale = false;
  if (isMastheadStale && visible.has(MASTHEAD)) drawMastheadAndColophon();
  drawTour();
  const first = new Set([...visible, tourFigure()]); // the tour may scroll to a part of its figure
  drawFigures([...first].filter(isDue));
  if (!isEssayCurrent) drawEssay();
  isEssayCurrent = true;
  clearTimeout(pause);
  pause = setTimeout(() => later(drawRest), stale.size ? PAUSE : 0);
}

function drawMastheadAndColophon() {
  const view = currentView();
  isMastheadStale = false;
  drawMasthead(view);
  render(colophon(view, checkOf(view)), document.getElementById("colophon"));
}

/** The result of the current trace's check; null until it is complete. */
const checkOf = ({ trace }) => (checkState.trace === trace ? checkState.result : null);

function drawMasthead(view) {
  const { busy, error, draft } = store.value;
  const theme = document.documentElement.dataset.theme;
  render(
    masthead({ ...view, busy, error, draft, check: checkOf(view), theme, setTheme, setDraft }),
    document.getElementById(MASTHEAD),
  );
}

/** Typing changes the draft without drawing anything. */
function setDraft(text) {
  store.value.draft = text;
}

export function showTheme() {
  const theme = store.value.theme ?? (dark.matches ? "dark" : "light");
  if (document.documentElement.dataset.theme !== theme) clearColours();
  document.documentElement.dataset.theme = theme;
}

dark.addEventListener("change", () => drawSoon());

const notice = (error) =>
  errorNotice(error, { sentences: backend.data.about?.sentences ?? [], ask, retry: reload });

/** Before the first translation the page shows only a notice. */
function errorContainer() {
  if (!document.getElementById("error"))
    root.insertAdjacentHTML("beforeend", '<div id="error"></div>');
  if (store.value.error) root.querySelector(".notice")?.remove();
  return document.getElementById("error");
}

/** The Python code of a figure in its current state. */
export const snippetOf = (id) => snippet(figures.get(id).figure, currentView());
