// The selection that all figures share, and its form in the address. A dial is a figure's own setting, named
// figure.setting; the address holds it too.

import { alignedSource, openingStep } from "onehop/verdict.js";

/** The value of `against` for a comparison with the unedited model. */
export const TRAINED = "@trained";
/** The prefix of `against` for a comparison with another model; its name follows. */
export const MODEL = "@model:";

export const ROLES = ["encoder", "decoder", "cross"];

/**
 * The cursor is one word of each side. Null means a default of the trace: the best-aligning head, the least certain
 * word.
 */
const DEFAULTS = Object.freeze({
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

/** The selection as an address's hash, without defaults. */
export function toHash(selection) {
  const params = new URLSearchParams();
  if (selection.sentence) params.set("sentence", selection.sentence);
  if (selection.against) params.set("against", selection.against);
  if (selection.role !== DEFAULTS.role) params.set("role", selection.role);
  for (const name of NUMBERS)
    if (selection[name] !== DEFAULTS[name] && selection[name] !== null)
      params.set(name, String(selection[name] + 1));
  for (const edit of selection.edits) params.append("edit", edit);
  for (const [dial, value] of Object.entries(selection.dials)) params.set(dial, value);
  return params.toString();
}

/** The selection of a hash; missing or wrong values get their defaults. */
export function fromHash(hash) {
  const params = new URLSearchParams(hash.replace(/^#/, ""));
  const dials = Object.fromEntries([...params].filter(([name]) => name.includes(".")));
  const selection = {
    ...DEFAULTS,
    sentence: params.get("sentence") ?? "",
    against: params.get("against") ?? "",
    edits: params.getAll("edit"),
    dials,
  };
  if (ROLES.includes(params.get("role"))) selection.role = params.get("role");
  for (const name of NUMBERS) {
    const number = Number.parseInt(params.get(name), 10);
    if (number >= 1) selection[name] = number - 1;
  }
  return selection;
}

/** The figure that a link leads to; it is not part of the selection. */
export const figureInHash = (hash) => new URLSearchParams(hash.replace(/^#/, "")).get("at");

/** The side of a role's queries. */
export const sideOf = (role) => (role === "encoder" ? "source" : "target");

/** The nearest selection that exists in this trace. `token` is the query index in the selected role. */
export function clamped(selection, trace, measured) {
  const clamp = (value, length) => Math.max(0, Math.min(value, length - 1));
  const step = clamp(selection.step ?? openingStep(trace, measured), trace.steps.length);
  const source = clamp(selection.source ?? alignedSource(trace, step), trace.source.tokens.length);
  return {
    ...selection,
    layer: clamp(selection.layer ?? trace.aligner.layer, trace.layers(selection.role)),
    head: clamp(selection.head ?? trace.aligner.head, trace.heads),
    source,
    step,
    token: sideOf(selection.role) === "source" ? source : step,
  };
}

/** A value with listeners. `scope` lists the figures that a change concerns; null means all. */
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
