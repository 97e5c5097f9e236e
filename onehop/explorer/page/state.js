// The one selection that every figure shares, and its life in the address bar. A dial is a figure's own setting,
// named figure.setting: it travels in the address too.

import { linked, mystery } from "onehop/story.js";

/** What an edited model is compared with, in place of another sentence. */
export const TRAINED = "@trained";
/** The same sentence in another model; the model's name comes behind it. */
export const MODEL = "@model:";

export const ROLES = ["encoder", "decoder", "cross"];

/** The cursor is one word of each side. What is null is found in the trace: the head that aligns best, the word in doubt. */
export const DEFAULTS = Object.freeze({
  sentence: "",
  against: "",
  role: /** @type {string} */ ("cross"),
  layer: null,
  head: null,
  source: null,
  step: null,
  edits: [],
  dials: {},
});

const NUMBERS = ["layer", "head", "source", "step"];

/** The selection as the part of an address behind #; only what differs from the defaults. */
export function toHash(selection) {
  const words = new URLSearchParams();
  if (selection.sentence) words.set("sentence", selection.sentence);
  if (selection.against) words.set("against", selection.against);
  if (selection.role !== DEFAULTS.role) words.set("role", selection.role);
  for (const name of NUMBERS)
    if (selection[name] !== DEFAULTS[name] && selection[name] !== null)
      words.set(name, String(selection[name] + 1));
  for (const edit of selection.edits) words.append("edit", edit);
  for (const [dial, value] of Object.entries(selection.dials)) words.set(dial, value);
  return words.toString();
}

/** The selection that a hash stands for; what it does not say, or says wrongly, keeps its default. */
export function fromHash(hash) {
  const words = new URLSearchParams(hash.replace(/^#/, ""));
  const dials = Object.fromEntries([...words].filter(([name]) => name.includes(".")));
  const selection = {
    ...DEFAULTS,
    sentence: words.get("sentence") ?? "",
    against: words.get("against") ?? "",
    edits: words.getAll("edit"),
    dials,
  };
  if (ROLES.includes(words.get("role"))) selection.role = words.get("role");
  for (const name of NUMBERS) {
    const number = Number.parseInt(words.get(name), 10);
    if (number >= 1) selection[name] = number - 1;
  }
  return selection;
}

/** The figure that a link leads to; it is no part of the selection. */
export const figureOf = (hash) => new URLSearchParams(hash.replace(/^#/, "")).get("at");

/** The side on which a role's queries stand. */
export const sideOf = (role) => (role === "encoder" ? "source" : "target");

/** The nearest selection that exists in this trace. `token` is the query that the cursor means in the chosen role. */
export function clamped(selection, trace, measured) {
  const within = (value, length) => Math.max(0, Math.min(value, length - 1));
  const step = within(selection.step ?? mystery(trace, measured), trace.steps.length);
  const source = within(selection.source ?? linked(trace, step), trace.source.tokens.length);
  return {
    ...selection,
    layer: within(selection.layer ?? trace.aligner.layer, trace.layers(selection.role)),
    head: within(selection.head ?? trace.aligner.head, trace.heads),
    source,
    step,
    token: sideOf(selection.role) === "source" ? source : step,
  };
}

/** A value that tells its listeners when it changes, and which figures that concerns: all, or those in `scope`. */
export class Store {
  #listeners = new Set();

  constructor(value) {
    this.value = value;
  }

  set(change, scope = null) {
    this.value = { ...this.value, ...change };
    for (const listener of this.#listeners) listener(this.value, scope);
  }

  listen(listener) {
    this.#listeners.add(listener);
    return () => this.#listeners.delete(listener);
  }
}
