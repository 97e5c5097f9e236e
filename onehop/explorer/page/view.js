// Everything that figures may read, and the few things they may do.

import { rgb } from "onehop/colour.js";
import {
  ask,
  choose,
  chooseWord,
  home,
  measured,
  pointer,
  preview,
  store,
} from "onehop/session.js";
import { sideOf } from "onehop/state.js";
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

export function currentView() {
  const { selection, trace, base } = store.value;
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
