// The one selection that every figure shares, and its life in the address bar. A dial is a figure's own setting,
// named figure.setting: it travels in the address too.

export const ROLES = ["encoder", "decoder", "cross"];

/** The page opens in the second layer: the heads of the first have only the single words to go by, and many look at one alone. */
export const DEFAULTS = Object.freeze({
  sentence: "",
  role: "encoder",
  layer: 1,
  head: 0,
  token: null,
  step: null,
  edits: [],
  dials: {},
});

const NUMBERS = ["layer", "head", "token", "step"];

/** The selection as the part of an address behind #; only what differs from the defaults. */
export function toHash(selection) {
  const words = new URLSearchParams();
  if (selection.sentence) words.set("sentence", selection.sentence);
  if (selection.role !== DEFAULTS.role) words.set("role", selection.role);
  for (const name of NUMBERS) if (selection[name] !== DEFAULTS[name] && selection[name] !== null) words.set(name, String(selection[name] + 1));
  for (const edit of selection.edits) words.append("edit", edit);
  for (const [dial, value] of Object.entries(selection.dials)) words.set(dial, value);
  return words.toString();
}

/** The selection that a hash stands for; what it does not say, or says wrongly, keeps its default. */
export function fromHash(hash) {
  const words = new URLSearchParams(hash.replace(/^#/, ""));
  const dials = Object.fromEntries([...words].filter(([name]) => name.includes(".")));
  const selection = { ...DEFAULTS, sentence: words.get("sentence") ?? "", edits: words.getAll("edit"), dials };
  if (ROLES.includes(words.get("role"))) selection.role = words.get("role");
  for (const name of NUMBERS) {
    const number = Number.parseInt(words.get(name), 10);
    if (number >= 1) selection[name] = number - 1;
  }
  return selection;
}

/** The page opens on a pronoun where there is one: it has to look elsewhere for its meaning. */
function openingToken(tokens) {
  const pronoun = tokens.findIndex((token) => /^▁(it|er|sie|es)$/.test(token));
  return pronoun >= 0 ? pronoun : Math.min(1, tokens.length - 1);
}

function openingStep(trace) {
  return Math.min(openingToken(trace.target.output_tokens), trace.steps.length - 1);
}

/** The nearest selection that exists in this trace. */
export function clamped(selection, trace) {
  const layers = trace.layers(selection.role);
  const within = (value, length) => Math.max(0, Math.min(value, length - 1));
  return {
    ...selection,
    layer: within(selection.layer, layers),
    head: within(selection.head, trace.heads),
    token: within(selection.token ?? openingToken(trace.queries(selection.role)), trace.queries(selection.role).length),
    step: within(selection.step ?? openingStep(trace), trace.steps.length),
  };
}

/** A value that tells its listeners when it changes. */
export class Store {
  #listeners = new Set();

  constructor(value) {
    this.value = value;
  }

  set(change) {
    this.value = { ...this.value, ...change };
    for (const listener of this.#listeners) listener(this.value);
  }

  listen(listener) {
    this.#listeners.add(listener);
    return () => this.#listeners.delete(listener);
  }
}
