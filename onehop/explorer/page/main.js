// The page: opens its home, asks for the translation, draws what is in sight first and the rest as soon as there is time.

import { html, nothing, render } from "onehop/vendor/lit-html.js";
import { forgetPictures, rgb } from "onehop/colour.js";
import { picker, segments } from "onehop/controls.js";
import { framed, snippet } from "onehop/frame.js";
import { openHome } from "onehop/home.js";
import { opened } from "onehop/hero.js";
import { contents, pageMap } from "onehop/map.js";
import { range } from "onehop/maths.js";
import { checking } from "onehop/recompute.js";
import { CODA, RUNGS } from "onehop/rungs.js";
import { ROLES, Store, clamped, fromHash, sideOf, toHash } from "onehop/state.js";
import { ROLE_NAMES, Trace } from "onehop/tensors.js";
import { clipped } from "onehop/text.js";
import { TEXTS } from "onehop/texts.js";
import { watchTips } from "onehop/tips.js";

const home = openHome();
const measured = home.data.measured ?? {};
const root = document.getElementById("page");
const narrow = window.matchMedia("(max-width: 40rem)");
const dark = window.matchMedia("(prefers-color-scheme: dark)");
const store = new Store({
  selection: fromHash(location.hash),
  trace: null,
  base: null,
  busy: true,
  trouble: null,
  theme: null,
});
const ui = {
  reopen: false,
  previewed: null,
  underPreview: new Set(),
  frame: 0,
  openTables: new Set(),
  resources: new Map(),
  check: null,
  checking: null,
  draft: null,
};
const colours = new Map();

// --- what a figure sees ------------------------------------------------------------------------------------

/** Everything that figures may read, and the few things they may do. */
function viewOf({ selection, trace, base }) {
  return {
    home,
    trace,
    base,
    selection,
    ...pointed(selection),
    about: home.data.about,
    measured,
    worked: home.data.worked,
    paper: home.data.paper,
    narrow: narrow.matches,
    stamp: stampOf(trace),
    openTables: ui.openTables,
    rgb: themeColour,
    resource,
    sweep: sweepOf(trace),
    startSweep,
    stopSweep,
    dial: (name, fallback) => selection.dials[name] ?? fallback,
    turn: (name, value) =>
      choose({ dials: { ...store.value.selection.dials, [name]: String(value) } }),
    choose,
    chooseToken: (token) => choose({ token }),
    chooseWord,
    preview: (token) =>
      preview(token === null ? null : { side: sideOf(selection.role), place: token }),
    previewWord: preview,
    ask,
    openTable,
  };
}

/** The word under the cursor, or the one that the mouse is over; `token` is it as a query of the chosen role. */
function pointed(selection) {
  const side = sideOf(selection.role);
  const previewed = ui.previewed?.side === side ? ui.previewed.place : null;
  return {
    cursor: ui.previewed ?? { side, place: selection.token },
    previewed,
    token: previewed ?? selection.token,
  };
}

function themeColour(concept) {
  if (!colours.has(concept)) colours.set(concept, rgb(concept));
  return colours.get(concept);
}

/** Something that takes time: nothing at first, a value or an error later. */
function resource(key, load) {
  if (!ui.resources.has(key)) {
    ui.resources.set(key, {});
    load()
      .then(
        (value) => ({ value }),
        (error) => ({ error: error.message }),
      )
      .then((found) => {
        ui.resources.set(key, found);
        drawSoon();
      });
  }
  return ui.resources.get(key);
}

// --- every head off in turn ----------------------------------------------------------------------------------

const sweeps = new Map();
const stampOf = (trace) => `${trace.model.hash} ${trace.source.text} ${trace.edits.join()}`;
const IDLE = Object.freeze({ state: "idle", parts: [], total: 0 });

/** How far the sweep of this trace has come; a file has its own from the start. */
function sweepOf(trace) {
  if (!sweeps.has(stampOf(trace)) && home.kind !== "live" && whole) startSweep();
  return sweeps.get(stampOf(trace)) ?? IDLE;
}

async function startSweep() {
  const { trace } = store.value;
  const stamp = stampOf(trace);
  if (["running", "done"].includes(sweeps.get(stamp)?.state)) return;
  const [cancel, parts] = [new AbortController(), []];
  const told = (state, more = {}) => {
    sweeps.set(stamp, { state, parts, cancel, total: sweeps.get(stamp)?.total ?? 0, ...more });
    drawSoon();
  };
  told("running");
  const each = (part) =>
    part.attentions
      ? told("running", { total: part.attentions })
      : (parts.push(part), told("running"));
  try {
    await home.heads(trace.source.text, trace.edits, { signal: cancel.signal, each });
    told(parts.length && parts.length === sweeps.get(stamp).total ? "done" : "failed", {
      error: TEXTS.decides.early,
    });
  } catch (error) {
    told(cancel.signal.aborted ? "cancelled" : "failed", { error: error.message });
  }
}

const stopSweep = () => sweepOf(store.value.trace).cancel?.abort();

// --- what the reader does ----------------------------------------------------------------------------------

function choose({ token = undefined, ...change }) {
  let selection = { ...store.value.selection, ...change };
  if (token !== undefined)
    selection[sideOf(selection.role) === "source" ? "source" : "step"] = token;
  if (store.value.trace) selection = clamped(selection, store.value.trace, measured);
  ui.previewed = null;
  store.set({ selection });
  remember(selection);
  if (change.edits && home.kind === "live") load(sentenceOf(selection), selection.edits);
}

/** The sentence that is meant where an address names none: the one on show, or the one that the page opens with. */
const sentenceOf = (selection) =>
  selection.sentence ||
  store.value.base?.source.text ||
  home.data.trace?.source.text ||
  home.data.about?.sentences[0];

/** The cursor goes to a word of the sentence or of its translation, and the role follows it to that side. */
function chooseWord(side, place) {
  if (side === "source") return choose({ role: "encoder", source: place });
  const { role } = store.value.selection;
  const { layer, head } = store.value.trace.aligner;
  return choose(role === "encoder" ? { role: "cross", layer, head, step: place } : { step: place });
}

/** Show another word for a moment: in what is in sight alone, as nobody sees the rest. */
function preview(word) {
  if (ui.previewed?.side === word?.side && ui.previewed?.place === word?.place) return;
  ui.previewed = word;
  if (!store.value.trace) return;
  cancelAnimationFrame(ui.frame);
  ui.frame = requestAnimationFrame(drawPreview);
}

function drawPreview() {
  const seen = ui.previewed ? [...near] : [...ui.underPreview];
  for (const id of seen) ui.underPreview[ui.previewed ? "add" : "delete"](id);
  drawTop();
  if (whole) drawFigures(seen);
}

function openTable(id, open) {
  ui.openTables[open ? "add" : "delete"](id);
  drawSoon();
}

function remember(selection) {
  try {
    history.replaceState(null, "", `#${toHash(selection)}`);
  } catch {
    // A notebook's frame may have no address of its own; the page works without one.
  }
}

function ask(text) {
  Object.assign(ui, { draft: text, reopen: true });
  load(text, store.value.selection.edits);
  window.scrollTo({ top: 0 });
}

let latest = 0;

/** Translate a sentence; with edits, also without them, to have something to compare with. */
async function load(text, edits) {
  const turn = ++latest;
  store.set({ busy: true, trouble: null });
  for (const [key, found] of ui.resources) if (found.error) ui.resources.delete(key); // what failed once may be asked again
  try {
    const plain =
      store.value.base?.source.text === text && text
        ? store.value.base
        : new Trace(await home.trace(text, []));
    const trace =
      edits.length && home.kind === "live" ? new Trace(await home.trace(text, edits)) : plain;
    if (turn !== latest) return;
    show(trace, plain);
  } catch (error) {
    if (turn === latest) store.set({ busy: false, trouble: error.message });
  }
}

function show(trace, base) {
  if (base !== store.value.base) forgetPictures();
  Object.assign(ui, { check: null, checking: null });
  const fresh = ui.reopen ? { source: null, step: null } : {};
  Object.assign(ui, { reopen: false, draft: null });
  const selection = clamped(
    { ...store.value.selection, ...fresh, sentence: base.source.text },
    trace,
    measured,
  );
  store.set({ trace, base, selection, busy: false, trouble: null });
  remember(selection);
}

// --- drawing -----------------------------------------------------------------------------------------------

const labels = new Map();
RUNGS.forEach((rung, r) =>
  rung.figures.forEach(([figure], i) => labels.set(figure.id, `${r}.${i + 1}`)),
);
labels.set(CODA.figure.id, "A.1"); // beside the ladder: no rung's number

const places = new Map();
const near = new Set();
let asked = false;
let whole = false; // whether everything that figures may ask for is there
const stale = new Set();
const observer = new IntersectionObserver(
  (entries) => {
    for (const entry of entries)
      near[entry.isIntersecting ? "add" : "delete"](entry.target.dataset.figure);
    drawNear();
    if (ui.previewed) drawPreview(); // what has come into sight since the mouse rests on a word
  },
  { rootMargin: "300px 0px" },
);

function skeleton(settings) {
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

const place = (figure) =>
  html`<figure
    id="figure-${figure.id}"
    data-figure=${figure.id}
    data-item=${figure.item}
    aria-labelledby="${figure.id}-name"
  ></figure>`;

/** Jump without losing the selection that the address holds. */
function jump(event) {
  event.preventDefault();
  event.currentTarget.closest("details")?.removeAttribute("open");
  document.getElementById(event.currentTarget.getAttribute("href").slice(1)).scrollIntoView();
}

let built = false;
function build(trace) {
  if (built) return;
  built = true;
  root.replaceChildren();
  render(skeleton(trace.settings), root);
  for (const figure of [...RUNGS.flatMap((r) => r.figures.map(([f]) => f)), CODA.figure]) {
    places.set(figure.id, { figure, element: document.getElementById(`figure-${figure.id}`) });
    observer.observe(places.get(figure.id).element);
  }
  near.add(places.keys().next().value); // what is in sight is known a frame later; until then, the first one
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
    [...near].filter((id) => stale.has(id) && (whole || !places.get(id).figure.needs.length)),
  );
}

function drawFigures(ids) {
  const view = viewOf(store.value);
  for (const id of ids) {
    const { figure, element } = places.get(id);
    render(framed(figure, labels.get(id), view), element);
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

const SLICE = 12; // milliseconds: longer and scrolling would stutter

/** A few figures at a time while nothing else happens, then the page's own check. */
function drawRest(slice = SLICE) {
  if (!whole) return;
  const began = performance.now();
  const isLate = () => performance.now() - began > slice;
  for (const id of [...stale]) {
    drawFigures([id]);
    if (isLate()) return void later(drawRest);
  }
  if (!ui.check && !check(isLate)) return void later(drawRest);
  if (!asked) root.dataset.ready = "yes";
}

/** Go on with the check until it is late; whether it has come to its end. */
function check(isLate) {
  ui.checking ??= checking(store.value.trace);
  let step = ui.checking.next();
  while (!step.done && !isLate()) step = ui.checking.next();
  if (!step.done) return false;
  ui.check = step.value;
  drawTop();
  return true;
}

const later = (work) =>
  window.requestIdleCallback
    ? window.requestIdleCallback(() => work(), { timeout: 100 })
    : setTimeout(work, 16);

function drawSoon() {
  if (asked) return;
  asked = true;
  delete root.dataset.ready;
  requestAnimationFrame(() => {
    asked = false;
    draw();
  });
}

function draw() {
  const { trace, trouble } = store.value;
  document.documentElement.dataset.theme = store.value.theme ?? (dark.matches ? "dark" : "light");
  if (!trace) return render(trouble ? failed(trouble) : nothing, troublePlace());
  build(trace);
  for (const id of places.keys()) stale.add(id);
  drawTop();
  drawNear();
  later(drawRest);
}

/** Before the first translation there is no page yet, only a notice. */
function troublePlace() {
  if (!document.getElementById("trouble"))
    root.insertAdjacentHTML("beforeend", '<div id="trouble"></div>');
  if (store.value.trouble) root.querySelector(".notice")?.remove();
  return document.getElementById("trouble");
}

function failed(trouble) {
  const sentences = home.data.about?.sentences ?? [];
  return html`<div class="notice" style="text-align:left">
    <div class="trouble" role="alert"><p>${trouble}</p></div>
    ${
      sentences.length
        ? html`<p>Try one of these:</p>
            <ul class="offers">
              ${sentences.map((s) => html`<li><button type="button" @click=${() => ask(s)}>${s}</button></li>`)}
            </ul>`
        : html`<p>
            <button type="button" @click=${() => load(sentenceOf(store.value.selection), [])}>
              Try again
            </button>
          </p>`
    }
  </div>`;
}

function drawTop() {
  const view = viewOf(store.value);
  render(
    opened({
      ...view,
      busy: store.value.busy,
      trouble: store.value.trouble,
      check: ui.check,
      draft: ui.draft,
      theme: document.documentElement.dataset.theme,
      setTheme,
      setDraft,
    }),
    document.getElementById("masthead"),
  );
  render(bar(view), document.getElementById("bar"));
  render(colophon(view), document.getElementById("colophon"));
}

function setDraft(text) {
  ui.draft = text;
}

function setTheme(theme) {
  colours.clear();
  store.set({ theme });
}

function bar({ selection, trace }) {
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

function colophon({ trace }) {
  const check = ui.check;
  return html`Model ${trace.model.name}, ${trace.model.hash.slice(0, 12)}; every figure but those
  marked otherwise shows tensors of the one forward pass that made this translation. The page has
  computed each stage of every attention again from the stage before it:
  ${check ? check.stages.map((s) => html`${s.name} ${s.error.toExponential(1)}; `) : "…"} lit-html
  (BSD-3-Clause) draws it.`;
}

// --- beginning ---------------------------------------------------------------------------------------------

store.listen(drawSoon);
watchTips();
home.whole.then(() => {
  whole = true;
  drawSoon();
});
narrow.addEventListener("change", drawSoon);
dark.addEventListener("change", () => {
  colours.clear();
  drawSoon();
});
window.addEventListener("hashchange", () => {
  const selection = fromHash(location.hash);
  const { base, selection: before } = store.value;
  const other = selection.sentence && selection.sentence !== base?.source.text;
  store.set({
    selection: base && !other ? clamped(selection, store.value.trace, measured) : selection,
  });
  if (home.kind === "live" && (other || selection.edits.join() !== before.edits.join()))
    load(sentenceOf(selection), selection.edits);
});
window.addEventListener("beforeprint", () => drawRest(Infinity));
document.addEventListener("click", (event) => {
  const link = event.target.closest("[data-jump]");
  if (!link) return;
  event.preventDefault();
  if (link.dataset.jump === "figure-decides") startSweep();
  document.getElementById(link.dataset.jump)?.scrollIntoView();
});
window.addEventListener("keydown", (event) => {
  if (event.key === "Escape") preview(null);
});
window.onehop = {
  snippet: (id) => snippet(places.get(id).figure, viewOf(store.value)),
  view: () => viewOf(store.value),
};

document.documentElement.dataset.theme = dark.matches ? "dark" : "light";
load(sentenceOf(store.value.selection), store.value.selection.edits);
