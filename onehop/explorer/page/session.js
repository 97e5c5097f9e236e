// The page's state: the sentence, the selection, the word under the mouse. Nothing here draws; other modules listen.

import { openBackend } from "onehop/backend.js";
import { MODEL, Store, TRAINED, clamped, fromHash, sideOf, toHash } from "onehop/state.js";
import { Trace } from "onehop/tensors.js";
import { TEXTS } from "onehop/texts.js";

export const backend = openBackend();
export const measured = backend.data.measured ?? {};
const THEME = "onehop.theme";

/** The stored theme; a notebook's frame or a strict browser has no storage. */
function storedTheme() {
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
  other: null, // the compared trace
  otherError: null,
  busy: true,
  error: null,
  theme: storedTheme(),
  draft: null,
});
/** The word under the mouse, `{ side, index }`, or null. */
export const pointer = new Store({ previewed: null });

let latestRequest = 0;
let pendingSelection = null; // the selection of an address whose sentence is not translated yet
let lastComplete = {}; // the last complete translation, restored if the next one fails
let resetCursor = false; // whether the next sentence moves the cursor to its least certain word

/** The sentence of a selection: its own, else the current one, else the page's first. */
const sentenceOf = (selection) =>
  selection.sentence ||
  store.value.base?.source.text ||
  backend.data.trace?.source.text ||
  backend.data.about?.sentences[0];

let lastKey = null;
const keyOf = (selection) =>
  JSON.stringify([sentenceOf(selection), selection.edits, selection.against]);

/**
 * The address follows the selection. Another sentence, edit or comparison adds a history entry, so that Back undoes
 * it.
 */
function updateAddress(selection) {
  const key = keyOf(selection);
  const isNew = lastKey !== null && lastKey !== key;
  lastKey = key;
  try {
    history[isNew ? "pushState" : "replaceState"](null, "", `#${toHash(selection)}`);
  } catch {
    // A notebook's frame may have no address of its own; the page works without one.
  }
}

const PAGE_DIALS = ["order", "page"]; // dials of several figures: the claim about word order, and whole words

/** A figure's dial changes that figure only. */
function scopeOf(change) {
  if (Object.keys(change).join() !== "dials") return null;
  const { dials: before } = store.value.selection;
  const changed = Object.keys(change.dials).filter((name) => change.dials[name] !== before[name]);
  const figures = changed.map((name) => name.split(".")[0]);
  return figures.some((name) => PAGE_DIALS.includes(name)) ? null : figures;
}

export function choose({ token = undefined, ...change }) {
  let selection = { ...store.value.selection, ...change };
  if (token !== undefined)
    selection[sideOf(selection.role) === "source" ? "source" : "step"] = token;
  if (store.value.trace) selection = clamped(selection, store.value.trace, measured);
  pointer.value.previewed = null;
  store.set({ selection }, scopeOf(change));
  updateAddress(selection);
  if (change.edits && backend.kind === "live") load(sentenceOf(selection), selection.edits);
  else if (change.against !== undefined) loadOther();
}

/** Move the cursor to a word of either side; the attention role follows. */
export function chooseWord(side, index) {
  if (side === "source") return choose({ role: "encoder", source: index });
  const { role } = store.value.selection;
  const { layer, head } = store.value.trace.aligner;
  return choose(role === "encoder" ? { role: "cross", layer, head, step: index } : { step: index });
}

/** Show another word while the mouse is over it. */
export function preview(word) {
  const { previewed } = pointer.value;
  if (previewed?.side !== word?.side || previewed?.index !== word?.index)
    pointer.set({ previewed: word });
}

export function ask(text) {
  [resetCursor, pendingSelection] = [true, null];
  store.set({ draft: text });
  load(text, store.value.selection.edits);
  window.scrollTo({ top: 0 });
}

/** Translate the selection's sentence. Until that is done, the page shows its stored example, if it has one. */
export function reload() {
  const { selection, trace } = store.value;
  const text = sentenceOf(selection);
  const example = backend.kind === "live" && backend.data.trace;
  if (example && !trace && (text !== example.source.text || selection.edits.length))
    showExample(example, selection, text);
  return load(text, selection.edits);
}

async function showExample({ source }, selection, text) {
  const trace = new Trace(await backend.trace(source.text, []));
  if (store.value.trace) return;
  pendingSelection = selection;
  const shown = clamped({ ...selection, edits: [], against: "" }, trace, measured);
  store.set({ trace, base: trace, selection: shown, draft: text });
}

/** Translate a sentence; with edits, also without them, for the comparison. */
async function load(text, edits) {
  const request = ++latestRequest;
  store.set({ busy: true, error: null }, []);
  const { base } = store.value;
  const onOpening = (json) =>
    request === latestRequest && !edits.length && showOpening(new Trace(json));
  try {
    const unedited =
      base?.isComplete && base.source.text === text && text
        ? base
        : new Trace(await backend.trace(text, [], onOpening));
    const trace =
      edits.length && backend.kind === "live"
        ? new Trace(await backend.trace(text, edits))
        : unedited;
    if (request === latestRequest) show(trace, unedited);
  } catch (error) {
    if (request !== latestRequest) return;
    const failure = { busy: false, error: error.message };
    if (store.value.trace?.isComplete === false) store.set({ ...lastComplete, ...failure });
    else store.set(failure, []);
  }
}

/** The selection for a new trace. */
function selectionIn(trace, sentence) {
  const fresh = resetCursor ? { source: null, step: null } : {};
  const selected = pendingSelection ?? store.value.selection;
  [resetCursor, pendingSelection] = [false, null];
  return clamped({ ...selected, ...fresh, sentence }, trace, measured);
}

/** The translation has arrived, but not all tensors. */
function showOpening(trace) {
  store.set({ trace, base: trace, selection: selectionIn(trace, trace.source.text) });
}

function show(trace, base) {
  const selection = selectionIn(trace, base.source.text);
  lastComplete = { trace, base, selection };
  store.set({ trace, base, selection, busy: false, error: null, draft: null });
  updateAddress(selection);
  loadOther();
}

/** The backend of a trace's model. */
export const backendOf = ({ model }) =>
  backend.other?.data.about.model.hash === model.hash ? backend.other : backend;

let latestOtherRequest = 0;

/** Load the compared trace: another sentence or model under the same edits, or the unedited model. */
async function loadOther() {
  const { selection, base, other } = store.value;
  const { against, edits } = selection;
  const request = ++latestOtherRequest;
  if (!against || backend.kind !== "live") {
    if (other || store.value.otherError) store.set({ other: null, otherError: null });
    return;
  }
  if (against === TRAINED) return store.set({ other: base, otherError: null });
  const modelName = against.startsWith(MODEL) ? against.slice(MODEL.length) : null;
  const otherBackend = modelName === null ? backend : backend.other;
  if (modelName !== null && otherBackend?.data.about.model.name !== modelName)
    return store.set({ other: null, otherError: TEXTS.compare.absent(modelName) });
  const text = modelName === null ? against : base.source.text;
  const isCurrent = other && backendOf(other) === otherBackend && other.source.text === text;
  if (isCurrent && other.edits.join() === edits.join()) return;
  try {
    const trace = new Trace(await otherBackend.trace(text, edits));
    if (request === latestOtherRequest) store.set({ other: trace, otherError: null });
  } catch (error) {
    if (request === latestOtherRequest) store.set({ other: null, otherError: error.message });
  }
}

export function setTheme(theme) {
  store.set({ theme });
  try {
    localStorage.setItem(THEME, theme);
  } catch {
    // Then the theme lasts for this visit only.
  }
}

/** The address has changed: by typing, by Back or by a link. The old sentence stays until the new one has arrived. */
export function followAddress() {
  const selection = fromHash(location.hash);
  const { base, trace, selection: before } = store.value;
  const other = selection.sentence && selection.sentence !== base?.source.text;
  store.set({ selection: trace ? clamped(selection, trace, measured) : selection });
  lastKey = keyOf(selection);
  if (backend.kind === "live" && (other || selection.edits.join() !== before.edits.join())) {
    pendingSelection = selection;
    load(sentenceOf(selection), selection.edits);
  } else if (base) loadOther();
}
