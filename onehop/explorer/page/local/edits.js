// Edits of one run, written as NAME=VALUE@PLACE and applied by a tap, as in onehop.interpret.ablations.

import { permutation } from "./random.js";
import { map, tensor } from "./transformer.js";
import { UserError } from "./errors.js";

const ROLES = ["encoder", "decoder", "cross"];
const ATTENTION = /^(encoder|decoder)\.layers\.(\d+)\.(self|cross)_attention\.(\w+)$/;
const ADD_NORM = /^(encoder|decoder)\.(?:layers\.(\d+)\.\w+_add_norm\.)?(skip|residual|norm)$/;

/** For each edit: its values, the least and greatest depth of a place, its roles and an example. */
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

/** Parse NAME=VALUE@PLACE. */
export function parseEdit(text) {
  const [, name, value = "", location] = text.trim().match(/^([^=]*)=?([^@]*)(?:@(.*))?$/s) ?? [];
  const form = Object.hasOwn(FORMS, name) ? FORMS[name] : null;
  if (!form)
    throw new UserError(
      `There is no edit ${short(text)}. Edits are ${Object.keys(FORMS).join(", ")}.`,
    );
  const [pattern, least, most, roles, example] = form;
  if (!pattern.test(value))
    throw new UserError(`${short(text)} is no edit of ${name}. Write ${example}.`);
  const parts = location === undefined ? [] : location.split(".");
  const [role = null, ...numbers] = parts;
  const fits =
    parts.length >= least && parts.length <= most && (role === null || roles.includes(role));
  if (!fits || !numbers.every((n) => /^\d{1,4}$/.test(n)))
    throw new UserError(`${short(text)} names no place for this edit. Write ${example}.`);
  if (name === "scale" && Number(value) === 0)
    throw new UserError("scale=0 divides by zero. Give a divisor above 0.");
  const [layer = null, head = null] = numbers.map(Number);
  const suffix = [role, layer, head].filter((part) => part !== null).join(".");
  return { name, value, role, layer, head, text: `${name}=${value}${suffix && `@${suffix}`}` };
}

/** Parse several edits and drop duplicates. */
export function parseEdits(texts) {
  const edits = texts.map(parseEdit);
  return edits.filter((edit, i) => edits.findIndex((other) => other.text === edit.text) === i);
}

function check({ text, role, layer, head }, settings) {
  const layers = role === "encoder" ? settings.n_encoder_layers : settings.n_decoder_layers;
  for (const [what, index, count] of [
    ["layer", layer, layers],
    ["head", head, settings.n_heads],
  ])
    if (index !== null && index >= count)
      throw new UserError(
        `${text} asks for ${what} ${index}, but there are ${count}. They count from 0 to ${count - 1}.`,
      );
}

const within = (edit, role, layer) =>
  (edit.role === null || edit.role === role) && (edit.layer === null || edit.layer === layer);

function attentionAt(edit, name, quantity) {
  const match = name.match(ATTENTION);
  if (match?.[4] !== quantity) return false;
  return within(edit, match[3] === "cross" ? "cross" : match[1], Number(match[2]));
}

function addNormAt(edit, name, quantity) {
  const match = name.match(ADD_NORM);
  if (match?.[3] !== quantity) return false;
  return within(edit, match[1], match[2] === undefined ? null : Number(match[2]));
}

/** The head that an index into a value's data belongs to. */
function headOf({ shape: [, heads, rows, width] }) {
  return (i) => Math.floor(i / (rows * width)) % heads;
}

/** Replace every head's weights by the mean over heads. */
function averageHeads({ shape, data }) {
  const [batch, heads, rows, width] = shape;
  const size = rows * width;
  const out = tensor(shape);
  for (let b = 0; b < batch; b++)
    for (let i = 0; i < size; i++) {
      let sum = 0;
      for (let h = 0; h < heads; h++) sum += data[(b * heads + h) * size + i];
      for (let h = 0; h < heads; h++) out.data[(b * heads + h) * size + i] = sum / heads;
    }
  return out;
}

/** How each edit changes a value; `previous` holds earlier values by the last part of their names. */
const CHANGES = {
  scale(edit, name, value, previous, settings) {
    if (!attentionAt(edit, name, "scaled_scores")) return value;
    const factor = Math.sqrt(settings.d_k) / (edit.value === "off" ? 1 : Number(edit.value));
    const head = headOf(value);
    return map(value, (x, i) => (edit.head === null || head(i) === edit.head ? x * factor : x));
  },
  mask(edit, name, value, previous) {
    return attentionAt({ role: "decoder", layer: null }, name, "masked_scores")
      ? previous.scaled_scores
      : value;
  },
  positions(edit, name, value, previous) {
    if (!/^(source|target)_input\.positioned$/.test(name)) return value;
    if (edit.value === "off") return previous.scaled;
    if (name.startsWith("target")) return value;
    const [, length, width] = value.shape;
    const order = permutation(length, Number(edit.value.split(":")[1] ?? 1));
    return map(value, (_, i) => {
      const from = order[Math.floor(i / width) % length] * width + (i % width);
      return previous.scaled.data[i] + value.data[from] - previous.scaled.data[from];
    });
  },
  head(edit, name, value) {
    if (!attentionAt(edit, name, "head_outputs")) return value;
    const head = headOf(value);
    const only = edit.value === "only";
    return map(value, (x, i) => ((head(i) === edit.head) === only ? x : 0));
  },
  heads: (edit, name, value) => (attentionAt(edit, name, "weights") ? averageHeads(value) : value),
  residual: (edit, name, value) => (addNormAt(edit, name, "skip") ? map(value, () => 0) : value),
  norm(edit, name, value, previous, settings) {
    if (!addNormAt(edit, name, "norm")) return value;
    return previous[name.includes(".layers.") && settings.norm === "pre" ? "skip" : "residual"];
  },
};

/** A tap that applies edits. Each run needs a new one, because it remembers earlier values. */
export function editTap(edits, settings) {
  for (const edit of edits) check(edit, settings);
  const previous = {};
  return (name, raw) => {
    let value = raw;
    for (const edit of edits) value = CHANGES[edit.name](edit, name, value, previous, settings);
    const last = name.slice(name.lastIndexOf(".") + 1);
    previous[last] = last === "skip" ? raw : value;
    return value;
  };
}

/** Whether later tokens change what earlier positions compute, so that nothing may be cached. */
export const invalidatesCache = (edits) => edits.some((edit) => edit.name === "mask");
