// Edits of one run, written as NAME=VALUE@PLACE and made by a tap, as onehop.interpret.ablations has them.

import { permutation } from "./random.js";
import { mapped, values } from "./transformer.js";
import { Trouble } from "./trouble.js";

const ROLES = ["encoder", "decoder", "cross"];
const ATTENTION = /^(encoder|decoder)\.layers\.(\d+)\.(self|cross)_attention\.(\w+)$/;
const ADD_NORM = /^(encoder|decoder)\.(?:layers\.(\d+)\.\w+_add_norm\.)?(skip|residual|norm)$/;

/** For each edit its values, how deep a place may and must go, its roles and an example. */
const FORMS = {
  scale: [/^(off|\d{1,6}(\.\d{1,6})?)$/, 0, 3, ROLES, "scale=off, scale=2 or scale=2@cross.1"],
  mask: [/^off$/, 0, 0, [], "mask=off"],
  positions: [
    /^(off|shuffled(:\d{1,9})?)$/,
    0,
    0,
    [],
    "positions=off, positions=shuffled or positions=shuffled:7",
  ],
  head: [/^(off|only)$/, 3, 3, ROLES, "head=off@cross.1.0 or head=only@cross.1.0"],
  heads: [/^averaged$/, 0, 2, ROLES, "heads=averaged or heads=averaged@encoder.1"],
  residual: [/^off$/, 0, 2, ROLES.slice(0, 2), "residual=off or residual=off@encoder.1"],
  norm: [/^off$/, 0, 2, ROLES.slice(0, 2), "norm=off or norm=off@encoder.1"],
};

const short = (text) => `'${text.length <= 60 ? text : `${text.slice(0, 59)}…`}'`;

/** Read NAME=VALUE@PLACE. */
export function parse(text) {
  const [, name, value = "", place] = text.trim().match(/^([^=]*)=?([^@]*)(?:@(.*))?$/s) ?? [];
  const form = Object.hasOwn(FORMS, name) ? FORMS[name] : null;
  if (!form)
    throw new Trouble(
      `There is no edit ${short(text)}. Edits are ${Object.keys(FORMS).join(", ")}.`,
    );
  const [pattern, least, most, roles, example] = form;
  if (!pattern.test(value))
    throw new Trouble(`${short(text)} is no edit of ${name}. Write ${example}.`);
  const parts = place === undefined ? [] : place.split(".");
  const [role = null, ...numbers] = parts;
  const fits =
    parts.length >= least && parts.length <= most && (role === null || roles.includes(role));
  if (!fits || !numbers.every((n) => /^\d{1,4}$/.test(n)))
    throw new Trouble(`${short(text)} names no place for this edit. Write ${example}.`);
  if (name === "scale" && Number(value) === 0)
    throw new Trouble("scale=0 divides by zero. Give a divisor above 0.");
  const [layer = null, head = null] = numbers.map(Number);
  const written = [role, layer, head].filter((part) => part !== null).join(".");
  return { name, value, role, layer, head, text: `${name}=${value}${written && `@${written}`}` };
}

/** Several edits; one that is given twice counts once. */
export function parseAll(texts) {
  const edits = texts.map(parse);
  return edits.filter((edit, i) => edits.findIndex((other) => other.text === edit.text) === i);
}

/** Refuse a layer or head that the model does not have. */
function check({ text, role, layer, head }, settings) {
  const layers = role === "encoder" ? settings.n_encoder_layers : settings.n_decoder_layers;
  for (const [what, asked, there] of [
    ["layer", layer, layers],
    ["head", head, settings.n_heads],
  ])
    if (asked !== null && asked >= there)
      throw new Trouble(
        `${text} asks for ${what} ${asked}, but there are ${there}. They count from 0 to ${there - 1}.`,
      );
}

const within = (edit, role, layer) =>
  (edit.role === null || edit.role === role) && (edit.layer === null || edit.layer === layer);

function attentionAt(edit, name, quantity) {
  const found = name.match(ATTENTION);
  if (found?.[4] !== quantity) return false;
  return within(edit, found[3] === "cross" ? "cross" : found[1], Number(found[2]));
}

function addNormAt(edit, name, quantity) {
  const found = name.match(ADD_NORM);
  if (found?.[3] !== quantity) return false;
  return within(edit, found[1], found[2] === undefined ? null : Number(found[2]));
}

/** The head that a place of a value with heads belongs to. */
function headOf({ shape: [, heads, rows, width] }) {
  return (i) => Math.floor(i / (rows * width)) % heads;
}

/** Every head's weights replaced by the mean over heads. */
function averaged({ shape, data }) {
  const [batch, heads, rows, width] = shape;
  const size = rows * width;
  const out = values(shape);
  for (let b = 0; b < batch; b++)
    for (let i = 0; i < size; i++) {
      let sum = 0;
      for (let h = 0; h < heads; h++) sum += data[(b * heads + h) * size + i];
      for (let h = 0; h < heads; h++) out.data[(b * heads + h) * size + i] = sum / heads;
    }
  return out;
}

/** What each edit makes of a value; `seen` are the values before it by the last part of their names. */
const CHANGES = {
  scale(edit, name, value, seen, settings) {
    if (!attentionAt(edit, name, "scaled_scores")) return value;
    const factor = Math.sqrt(settings.d_k) / (edit.value === "off" ? 1 : Number(edit.value));
    const head = headOf(value);
    return mapped(value, (x, i) => (edit.head === null || head(i) === edit.head ? x * factor : x));
  },
  mask(edit, name, value, seen) {
    return attentionAt({ role: "decoder", layer: null }, name, "masked_scores")
      ? seen.scaled_scores
      : value;
  },
  positions(edit, name, value, seen) {
    if (!/^(source|target)_input\.positioned$/.test(name)) return value;
    if (edit.value === "off") return seen.scaled;
    if (name.startsWith("target")) return value;
    const [, length, width] = value.shape;
    const order = permutation(length, Number(edit.value.split(":")[1] ?? 1));
    return mapped(value, (_, i) => {
      const from = order[Math.floor(i / width) % length] * width + (i % width);
      return seen.scaled.data[i] + value.data[from] - seen.scaled.data[from];
    });
  },
  head(edit, name, value) {
    if (!attentionAt(edit, name, "head_outputs")) return value;
    const head = headOf(value);
    const only = edit.value === "only";
    return mapped(value, (x, i) => ((head(i) === edit.head) === only ? x : 0));
  },
  heads: (edit, name, value) => (attentionAt(edit, name, "weights") ? averaged(value) : value),
  residual: (edit, name, value) => (addNormAt(edit, name, "skip") ? mapped(value, () => 0) : value),
  norm(edit, name, value, seen, settings) {
    if (!addNormAt(edit, name, "norm")) return value;
    return seen[name.includes(".layers.") && settings.norm === "pre" ? "skip" : "residual"];
  },
};

/** A tap that makes edits: a fresh one for each run, as it remembers what it has seen of it. */
export function editTap(edits, settings) {
  for (const edit of edits) check(edit, settings);
  const seen = {};
  return (name, raw) => {
    let value = raw;
    for (const edit of edits) value = CHANGES[edit.name](edit, name, value, seen, settings);
    const last = name.slice(name.lastIndexOf(".") + 1);
    seen[last] = last === "skip" ? raw : value;
    return value;
  };
}

/** Whether a token written later changes what earlier positions compute, so that nothing may be cached. */
export const changesThePast = (edits) => edits.some((edit) => edit.name === "mask");
