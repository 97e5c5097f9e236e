// What is drawn when: what is in sight first, the rest as soon as there is time, a preview in what is in sight alone.

import { nothing, render } from "onehop/vendor/lit-html.js";
import { forgetPictures } from "onehop/colour.js";
import { drawClaims, drawLedger, drawProse } from "onehop/essay.js";
import { framed, snippet } from "onehop/frame.js";
import { opened } from "onehop/hero.js";
import { checking } from "onehop/recompute.js";
import { FIGURES, LABELS, RUNGS } from "onehop/rungs.js";
import { ask, home, pointer, reload, setTheme, store } from "onehop/session.js";
import { bar, colophon, failed, skeleton } from "onehop/skeleton.js";
import { figureOf } from "onehop/state.js";
import { drawTour, reopenTour } from "onehop/tour.js";
import { currentView, forgetColours } from "onehop/view.js";
import { isWhole } from "onehop/waiting.js";

const root = document.getElementById("page");
const dark = window.matchMedia("(prefers-color-scheme: dark)");
const SLICE = 12; // milliseconds: longer and scrolling would stutter

const places = new Map();
const near = new Set();
const stale = new Set();
const underPreview = new Set();
let asked = false;
let frame = 0;
let checked = { trace: null, going: null, found: null };
let pictured = null;
let said = false; // whether the essay is about what is on show
let unsaid = []; // chapters whose claims are to be held against the trace again

const observer = new IntersectionObserver(
  (entries) => {
    for (const entry of entries)
      near[entry.isIntersecting ? "add" : "delete"](entry.target.dataset.figure);
    drawNear();
    if (pointer.value.previewed) drawPreview(); // what has come into sight since the mouse rests on a word
  },
  { rootMargin: "300px 0px" },
);

function build() {
  if (places.size) return;
  root.replaceChildren();
  render(skeleton(), root);
  for (const figure of FIGURES) {
    stale.add(figure.id);
    places.set(figure.id, { figure, element: document.getElementById(`figure-${figure.id}`) });
    observer.observe(places.get(figure.id).element);
  }
  near.add(FIGURES[0].id); // what is in sight is known a frame later; until then, the first one
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

/** What is in sight; before the page is whole, what needs no tensor of it. */
function drawNear() {
  drawFigures(
    [...near].filter((id) => stale.has(id) && (isWhole() || !places.get(id).figure.needs.length)),
  );
}

function drawFigures(ids) {
  const view = currentView();
  for (const id of ids) {
    const { figure, element } = places.get(id);
    render(framed(figure, LABELS.get(id), view), element);
    element.dataset.drawn = "";
    scrollInside(element);
    stale.delete(id);
  }
}

/** What is wider than its frame is brought to the place that the figure names, once for each place. */
function scrollInside(element) {
  for (const box of element.querySelectorAll("[data-left]")) {
    if (box.dataset.at === box.dataset.left) continue;
    box.dataset.at = box.dataset.left;
    box.scrollLeft = Number(box.dataset.left);
  }
}

function drawPreview() {
  const { previewed } = pointer.value;
  const seen = previewed ? [...near] : [...underPreview];
  for (const id of seen) underPreview[previewed ? "add" : "delete"](id);
  drawTop();
  if (isWhole()) drawFigures(seen);
}

/** In what is in sight alone, as nobody sees the rest. */
export function drawPreviewSoon() {
  if (!store.value.trace) return;
  cancelAnimationFrame(frame);
  frame = requestAnimationFrame(drawPreview);
}

/** A few figures at a time while nothing else happens, then the page's own check. */
export function drawRest(slice = SLICE) {
  if (!isWhole()) return;
  const began = performance.now();
  const isLate = () => performance.now() - began > slice;
  for (const id of [...stale]) {
    drawFigures([id]);
    if (isLate()) return void later(drawRest);
  }
  while (unsaid.length) {
    unsaid.shift()();
    if (isLate()) return void later(drawRest);
  }
  if (!check(isLate)) return void later(drawRest);
  if (!asked) root.dataset.ready = "yes";
  reopenTour();
  showLinked();
}

let linked = figureOf(location.hash);

/** The figure that a link leads to is brought into sight, once. */
function showLinked() {
  if (linked) document.getElementById(`figure-${linked}`)?.scrollIntoView();
  linked = null;
}

/** Go on with the check of this trace until it is late; whether it has come to its end. */
function check(isLate) {
  const { trace } = store.value;
  if (checked.trace !== trace) checked = { trace, going: checking(trace), found: null };
  if (checked.found) return true;
  let step = checked.going.next();
  while (!step.done && !isLate()) step = checked.going.next();
  if (!step.done) return false;
  checked.found = step.value;
  drawTop();
  return true;
}

const later = (work) =>
  window.requestIdleCallback
    ? window.requestIdleCallback(() => work(), { timeout: 100 })
    : setTimeout(work, 16);

/** Claims take a few milliseconds each, so they are drawn one chapter at a time. */
function sayAgain() {
  drawProse(currentView());
  const chapters = RUNGS.map((rung) => () => drawClaims(currentView(), rung));
  unsaid = [...chapters, () => drawLedger(currentView())];
}

/** Draw again what has changed: all, or the figures named. */
export function drawSoon(scope = null) {
  for (const id of scope ?? places.keys()) if (places.has(id)) stale.add(id);
  if (scope === null) said = false;
  if (asked) return;
  asked = true;
  delete root.dataset.ready;
  requestAnimationFrame(() => {
    asked = false;
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
  if (!said) sayAgain();
  said = true;
  drawTop();
  drawTour();
  drawNear();
  later(drawRest);
}

function drawTop() {
  const view = currentView();
  const found = checked.trace === view.trace ? checked.found : null;
  const { busy, trouble, draft } = store.value;
  const theme = document.documentElement.dataset.theme;
  render(
    opened({ ...view, busy, trouble, draft, check: found, theme, setTheme, setDraft }),
    document.getElementById("masthead"),
  );
  render(bar(view), document.getElementById("bar"));
  render(colophon(view, found), document.getElementById("colophon"));
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
