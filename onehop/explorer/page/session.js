// What the reader is doing: the sentence, the selection, the word under the mouse. Nothing here draws; others listen.

import { openHome } from "onehop/home.js";
import { MODEL, Store, TRAINED, clamped, fromHash, sideOf, toHash } from "onehop/state.js";
import { Trace } from "onehop/tensors.js";
import { TEXTS } from "onehop/texts.js";

export const home = openHome();
export const measured = home.data.measured ?? {};
const THEME = "onehop.theme";

/** The theme that the reader chose; a notebook's frame or a strict browser keeps nothing. */
function keptTheme() {
  try {
    return localStorage.getItem(THEME);
  } catch {
    return null;
  }
}

export const store = new Store({
  selection: fromHash(location.hash),
  trace: null,
  base: null,
  other: null, // what is compared with
  otherTrouble: null,
  busy: true,
  trouble: null,
  theme: keptTheme(),
  draft: null,
});
/** The word that the mouse is over, `{ side, place }`, or null. */
export const pointer = new Store({ previewed: null });

let latest = 0;
let wanted = null; // what an address selects in a sentence that is not there yet
let lastWhole = {}; // the last translation that came to its end, to go back to if another one does not
let reopen = false; // whether the cursor goes to where the next sentence is in doubt

/** The sentence that is meant where an address names none: the one on show, or the one that the page opens with. */
const sentenceOf = (selection) =>
  selection.sentence ||
  store.value.base?.source.text ||
  home.data.trace?.source.text ||
  home.data.about?.sentences[0];

let remembered = null;
const keyOf = (selection) =>
  JSON.stringify([sentenceOf(selection), selection.edits, selection.against]);

/** The address follows the selection. Another sentence, edit or comparison is a new entry, so that Back undoes it. */
function remember(selection) {
  const key = keyOf(selection);
  const isNew = remembered !== null && remembered !== key;
  remembered = key;
  try {
    history[isNew ? "pushState" : "replaceState"](null, "", `#${toHash(selection)}`);
  } catch {
    // A notebook's frame may have no address of its own; the page works without one.
  }
}

const PAGEWIDE = ["order", "page"]; // the claim about word order, and words in place of pieces

/** A figure's own dial concerns that figure alone. */
function scopeOf(change) {
  if (Object.keys(change).join() !== "dials") return null;
  const { dials: before } = store.value.selection;
  const turned = Object.keys(change.dials).filter((name) => change.dials[name] !== before[name]);
  const figures = turned.map((name) => name.split(".")[0]);
  return figures.some((name) => PAGEWIDE.includes(name)) ? null : figures;
}

export function choose({ token = undefined, ...change }) {
  let selection = { ...store.value.selection, ...change };
  if (token !== undefined)
    selection[sideOf(selection.role) === "source" ? "source" : "step"] = token;
  if (store.value.trace) selection = clamped(selection, store.value.trace, measured);
  pointer.value.previewed = null;
  store.set({ selection }, scopeOf(change));
  remember(selection);
  if (change.edits && home.kind === "live") load(sentenceOf(selection), selection.edits);
  else if (change.against !== undefined) loadOther();
}

/** The cursor goes to a word of the sentence or of its translation, and the role follows it to that side. */
export function chooseWord(side, place) {
  if (side === "source") return choose({ role: "encoder", source: place });
  const { role } = store.value.selection;
  const { layer, head } = store.value.trace.aligner;
  return choose(role === "encoder" ? { role: "cross", layer, head, step: place } : { step: place });
}

/** Show another word for a moment. */
export function preview(word) {
  const { previewed } = pointer.value;
  if (previewed?.side !== word?.side || previewed?.place !== word?.place)
    pointer.set({ previewed: word });
}

export function ask(text) {
  [reopen, wanted] = [true, null];
  store.set({ draft: text });
  load(text, store.value.selection.edits);
  window.scrollTo({ top: 0 });
}

/** Translate what the selection names. Until that is done, the page shows the example that it brought along, if it did. */
export function reload() {
  const { selection, trace } = store.value;
  const text = sentenceOf(selection);
  const example = home.kind === "live" && home.data.trace;
  if (example && !trace && (text !== example.source.text || selection.edits.length))
    showExample(example, selection, text);
  return load(text, selection.edits);
}

async function showExample({ source }, selection, text) {
  const trace = new Trace(await home.trace(source.text, []));
  if (store.value.trace) return;
  wanted = selection;
  const shown = clamped({ ...selection, edits: [], against: "" }, trace, measured);
  store.set({ trace, base: trace, selection: shown, draft: text });
}

/** Translate a sentence; with edits, also without them, to have something to compare with. */
async function load(text, edits) {
  const turn = ++latest;
  store.set({ busy: true, trouble: null }, []);
  const { base } = store.value;
  const opening = (json) => turn === latest && !edits.length && showOpening(new Trace(json));
  try {
    const plain =
      base?.isWhole && base.source.text === text && text
        ? base
        : new Trace(await home.trace(text, [], opening));
    const trace =
      edits.length && home.kind === "live" ? new Trace(await home.trace(text, edits)) : plain;
    if (turn === latest) show(trace, plain);
  } catch (error) {
    if (turn !== latest) return;
    const failed = { busy: false, trouble: error.message };
    if (store.value.trace?.isWhole === false) store.set({ ...lastWhole, ...failed });
    else store.set(failed, []);
  }
}

/** What to select in a trace that has come. */
function selectionIn(trace, sentence) {
  const fresh = reopen ? { source: null, step: null } : {};
  const selected = wanted ?? store.value.selection;
  [reopen, wanted] = [false, null];
  return clamped({ ...selected, ...fresh, sentence }, trace, measured);
}

/** The translation is there, but not all that figures need. */
function showOpening(trace) {
  store.set({ trace, base: trace, selection: selectionIn(trace, trace.source.text) });
}

function show(trace, base) {
  const selection = selectionIn(trace, base.source.text);
  lastWhole = { trace, base, selection };
  store.set({ trace, base, selection, busy: false, trouble: null, draft: null });
  remember(selection);
  loadOther();
}

/** Who answers questions about a trace: the page's model, or the one that it is compared with. */
export const homeOf = ({ model }) =>
  home.other?.data.about.model.hash === model.hash ? home.other : home;

let latestOther = 0;

/** What is compared with: another sentence or another model under the same edits, or this sentence as trained. */
async function loadOther() {
  const { selection, base, other } = store.value;
  const { against, edits } = selection;
  const turn = ++latestOther;
  if (!against || home.kind !== "live") {
    if (other || store.value.otherTrouble) store.set({ other: null, otherTrouble: null });
    return;
  }
  if (against === TRAINED) return store.set({ other: base, otherTrouble: null });
  const named = against.startsWith(MODEL) ? against.slice(MODEL.length) : null;
  const there = named === null ? home : home.other;
  if (named !== null && there?.data.about.model.name !== named)
    return store.set({ other: null, otherTrouble: TEXTS.compare.absent(named) });
  const text = named === null ? against : base.source.text;
  const isThere = other && homeOf(other) === there && other.source.text === text;
  if (isThere && other.edits.join() === edits.join()) return;
  try {
    const found = new Trace(await there.trace(text, edits));
    if (turn === latestOther) store.set({ other: found, otherTrouble: null });
  } catch (error) {
    if (turn === latestOther) store.set({ other: null, otherTrouble: error.message });
  }
}

export function setTheme(theme) {
  store.set({ theme });
  try {
    localStorage.setItem(THEME, theme);
  } catch {
    // Then it is for this visit alone.
  }
}

/** The address has changed: by the reader's hand, by Back, by a link. Until another sentence has come, this one stays. */
export function followAddress() {
  const selection = fromHash(location.hash);
  const { base, trace, selection: before } = store.value;
  const other = selection.sentence && selection.sentence !== base?.source.text;
  store.set({ selection: trace ? clamped(selection, trace, measured) : selection });
  remembered = keyOf(selection);
  if (home.kind === "live" && (other || selection.edits.join() !== before.edits.join())) {
    wanted = selection;
    load(sentenceOf(selection), selection.edits);
  } else if (base) loadOther();
}
