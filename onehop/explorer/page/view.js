// Everything that figures may read, and the few things they may do.

import { rgb } from "onehop/colour.js";
import {
  ask,
  choose,
  chooseWord,
  home,
  homeOf,
  measured,
  pointer,
  preview,
  store,
} from "onehop/session.js";
import { clamped, sideOf } from "onehop/state.js";
import { isWhole, resource, stampOf, startSweep, stopSweep, sweepOf } from "onehop/waiting.js";

export const narrow = window.matchMedia("(max-width: 40rem)");
const openTables = new Set();
const colours = new Map();

/** The colours of the theme have changed. */
export const forgetColours = () => colours.clear();

function themeColour(concept) {
  if (!colours.has(concept)) colours.set(concept, rgb(concept));
  return colours.get(concept);
}

/** The word under the cursor, or the one that the mouse is over; `token` is it as a query of the chosen role. */
function pointed(selection) {
  const side = sideOf(selection.role);
  const { previewed: word } = pointer.value;
  const previewed = word?.side === side ? word.place : null;
  return {
    cursor: word ?? { side, place: selection.token },
    previewed,
    token: previewed ?? selection.token,
  };
}

function openTable(id, open) {
  openTables[open ? "add" : "delete"](id);
  store.set({}, [id]);
}

/**
 * The place of the same piece in another list, the nearest one. A piece that is only here has as its counterpart the one
 * that stands as far behind the last piece that both have.
 */
export function counterpart(tokens, others, place) {
  for (let behind = 0; behind <= place; behind++) {
    const here = place - behind;
    const same = others.flatMap((token, i) => (token === tokens[here] ? [i] : []));
    const [nearest] = same.sort((a, b) => Math.abs(a - here) - Math.abs(b - here));
    if (nearest !== undefined) return Math.min(nearest + behind, others.length - 1);
  }
  return Math.min(place, others.length - 1);
}

/** The head that aligns best, where that one is chosen and the other model has its own; else the same numbers. */
function headThere({ trace, selection }, other) {
  const { layer, head } = trace.aligner;
  const isAligner =
    selection.role === "cross" && selection.layer === layer && selection.head === head;
  if (!isAligner || other.model.hash === trace.model.hash) return {};
  return { layer: other.aligner.layer, head: other.aligner.head };
}

/** The same view of the translation that is compared with: the cursor stands on the same word there, if there is one. */
function otherView(view) {
  const { other } = store.value;
  const { trace, selection, cursor } = view;
  const there = homeOf(other);
  const target = (place) =>
    counterpart(trace.target.output_tokens, other.target.output_tokens, place);
  const source = (place) => counterpart(trace.source.tokens, other.source.tokens, place);
  const places = { step: target(selection.step), source: source(selection.source) };
  const selected = clamped({ ...selection, ...places, ...headThere(view, other) }, other, measured);
  const place = (cursor.side === "target" ? target : source)(cursor.place);
  return {
    ...view,
    home: there,
    about: there.data.about,
    trace: other,
    base: other,
    selection: selected,
    cursor: { ...cursor, place },
    previewed: null,
    token: cursor.side === sideOf(selection.role) ? place : selected.token,
    narrow: true,
    stamp: stampOf(other),
    sweep: sweepOf(other),
  };
}

/** Turn several dials at once. The others stay as they are now: a figure may not have been drawn since one was turned. */
function turnAll(dials, change = {}) {
  const texts = Object.entries(dials).map(([name, value]) => [name, String(value)]);
  choose({
    ...change,
    dials: { ...store.value.selection.dials, ...Object.fromEntries(texts) },
  });
}

/** The view for one figure: an answer that it waits for draws that figure again, not the whole page. */
export const forFigure = (view, id) => ({
  ...view,
  resource: (key, load) => resource(key, load, id),
});

export function currentView() {
  const { selection, trace, base, other, otherTrouble } = store.value;
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
    whole: isWhole(),
    openTables,
    rgb: themeColour,
    resource,
    sweep: sweepOf(trace),
    startSweep: () => startSweep(),
    stopSweep,
    dial: (name, fallback) => selection.dials[name] ?? fallback,
    turn: (name, value) => turnAll({ [name]: value }),
    turnAll,
    choose,
    /** Change the edits as they are now: a figure may not have been drawn since another switch was thrown. */
    edit: (change) => choose({ edits: change(store.value.selection.edits) }),
    chooseToken: (token) => choose({ token }),
    chooseWord,
    preview: (token) =>
      preview(token === null ? null : { side: sideOf(selection.role), place: token }),
    previewWord: preview,
    ask,
    openTable,
    other,
    otherTrouble,
    otherView() {
      return otherView(this);
    },
  };
}
