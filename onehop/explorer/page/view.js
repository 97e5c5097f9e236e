// Everything that figures may read, and the few actions that they have.

import { rgb } from "onehop/colour.js";
import {
  ask,
  backend,
  backendOf,
  choose,
  chooseWord,
  measured,
  pointer,
  preview,
  store,
} from "onehop/session.js";
import { clamped, sideOf } from "onehop/state.js";
import { isComplete, resource, startSweep, stopSweep, sweepOf, traceKey } from "onehop/requests.js";

export const narrow = window.matchMedia("(max-width: 40rem)");
const openTables = new Set();
const colours = new Map();

export const clearColours = () => colours.clear();

function themeColour(concept) {
  if (!colours.has(concept)) colours.set(concept, rgb(concept));
  return colours.get(concept);
}

/** The cursor's word, or the word under the mouse; `token` is its query index in the selected role. */
function cursorState(selection) {
  const side = sideOf(selection.role);
  const { previewed: word } = pointer.value;
  const previewed = word?.side === side ? word.index : null;
  return {
    cursor: word ?? { side, index: selection.token },
    previewed,
    token: previewed ?? selection.token,
  };
}

function openTable(id, open) {
  openTables[open ? "add" : "delete"](id);
  store.set({}, [id]);
}

/**
 * The index of the nearest equal piece in another list. A piece that the other list lacks is placed relative to the
 * last common piece before it.
 */
export function counterpart(tokens, otherTokens, index) {
  for (let offset = 0; offset <= index; offset++) {
    const position = index - offset;
    const matches = otherTokens.flatMap((token, i) => (token === tokens[position] ? [i] : []));
    const [nearest] = matches.sort((a, b) => Math.abs(a - position) - Math.abs(b - position));
    if (nearest !== undefined) return Math.min(nearest + offset, otherTokens.length - 1);
  }
  return Math.min(index, otherTokens.length - 1);
}

/** If the best-aligning head is selected, the other model's best-aligning head; else the same head. */
function matchingHead({ trace, selection }, other) {
  const { layer, head } = trace.aligner;
  const isAligner =
    selection.role === "cross" && selection.layer === layer && selection.head === head;
  if (!isAligner || other.model.hash === trace.model.hash) return {};
  return { layer: other.aligner.layer, head: other.aligner.head };
}

/** The same view of the compared translation; the cursor is on the same word there, if there is one. */
function otherView(view) {
  const { other } = store.value;
  const { trace, selection, cursor } = view;
  const otherBackend = backendOf(other);
  const inTarget = (index) =>
    counterpart(trace.target.output_tokens, other.target.output_tokens, index);
  const inSource = (index) => counterpart(trace.source.tokens, other.source.tokens, index);
  const cursorTokens = { step: inTarget(selection.step), source: inSource(selection.source) };
  const selected = clamped(
    { ...selection, ...cursorTokens, ...matchingHead(view, other) },
    other,
    measured,
  );
  const index = (cursor.side === "target" ? inTarget : inSource)(cursor.index);
  return {
    ...view,
    backend: otherBackend,
    about: otherBackend.data.about,
    trace: other,
    base: other,
    selection: selected,
    cursor: { ...cursor, index },
    previewed: null,
    token: cursor.side === sideOf(selection.role) ? index : selected.token,
    narrow: true,
    traceKey: traceKey(other),
    sweep: sweepOf(other),
  };
}

/**
 * Set several dials at once. The others keep their current values: a figure may not have been redrawn since a change.
 */
function setDials(dials, change = {}) {
  const texts = Object.entries(dials).map(([name, value]) => [name, String(value)]);
  choose({
    ...change,
    dials: { ...store.value.selection.dials, ...Object.fromEntries(texts) },
  });
}

/** The view for one figure: when a response arrives, only that figure is drawn again. */
export const forFigure = (view, id) => ({
  ...view,
  resource: (key, load) => resource(key, load, id),
});

export function currentView() {
  const { selection, trace, base, other, otherError } = store.value;
  return {
    backend,
    trace,
    base,
    selection,
    ...cursorState(selection),
    about: backend.data.about,
    measured,
    workedExample: backend.data.worked,
    paper: backend.data.paper,
    narrow: narrow.matches,
    traceKey: traceKey(trace),
    isComplete: isComplete(),
    openTables,
    rgb: themeColour,
    resource,
    sweep: sweepOf(trace),
    startSweep: () => startSweep(),
    stopSweep,
    dial: (name, fallback) => selection.dials[name] ?? fallback,
    setDial: (name, value) => setDials({ [name]: value }),
    setDials,
    choose,
    /** Change the current edits: a figure may not have been redrawn since the last change. */
    changeEdits: (change) => choose({ edits: change(store.value.selection.edits) }),
    chooseToken: (token) => choose({ token }),
    chooseWord,
    preview: (token) =>
      preview(token === null ? null : { side: sideOf(selection.role), index: token }),
    previewWord: preview,
    ask,
    openTable,
    other,
    otherError,
    otherView() {
      return otherView(this);
    },
  };
}
