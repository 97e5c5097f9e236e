// The page's own check: each stage of every attention computed again from the recorded stage before it.

import { dot, range, softmax, weightedSum } from "onehop/maths.js";
import { ROLES } from "onehop/state.js";

export const STAGES = ["q·k → scores", "scores → weights", "weights → output"];

/** The largest difference, relative to the largest number that the whole attention recorded. */
function error(again, recorded, all) {
  let difference = 0;
  let size = 0;
  recorded.forEach((row, i) =>
    row.forEach((x, j) => (difference = Math.max(difference, Math.abs(x - again[i][j])))),
  );
  for (const x of all.data) size = Math.max(size, Math.abs(x));
  return size ? difference / size : difference;
}

/** What the scores are divided by: the root of d_k, unless an edit says otherwise. */
export function divisor(trace, { role, layer, head }) {
  let value = Math.sqrt(trace.settings.d_k);
  for (const edit of trace.edits) {
    const [, setting, place] = edit.match(/^scale=([^@]+)(?:@(.*))?$/) ?? [];
    if (setting === undefined) continue;
    const here = [role, String(layer), String(head)];
    if (place && place.split(".").some((part, i) => part !== here[i])) continue;
    value = setting === "off" ? 1 : Number(setting);
  }
  return value;
}

/** Scores of one query after scaling and mask: −∞ where it may not look. */
export function masked(trace, place, query) {
  const by = divisor(trace, place);
  const causal = place.role === "decoder" && !trace.edits.includes("mask=off");
  const scores = trace.part(place, "scores").at({ head: place.head, query });
  return Array.from(scores, (s, key) => (causal && key > query ? -Infinity : s / by));
}

/** The errors of one head, a number a stage. */
export function headErrors(trace, place) {
  const { head } = place;
  const [q, k, v] = ["q", "k", "v"].map((name) => trace.part(place, name).rows({ head }));
  const weights = trace.part(place, "weights").rows({ head });
  const against = (name, again) =>
    error(again, trace.part(place, name).rows({ head }), trace.part(place, name));
  return [
    against(
      "scores",
      q.map((a) => k.map((b) => dot(a, b))),
    ),
    against(
      "weights",
      q.map((_, query) => softmax(masked(trace, place, query))),
    ),
    against(
      "head_outputs",
      weights.map((row) => weightedSum(Array.from(row), v)),
    ),
  ];
}

/** Edits that put something else in a stage's place; the stages after them are then not the formula's. */
const REPLACING = /^(heads=averaged|head=)/;

/** The largest error of each stage over every head of the model; it pauses after each head, as the whole takes a while. */
export function* checking(trace) {
  const skipped = trace.edits.some((edit) => REPLACING.test(edit));
  const worst = [0, 0, 0];
  for (const role of ROLES) {
    for (const layer of range(trace.layers(role))) {
      for (const head of range(trace.heads)) {
        headErrors(trace, { role, layer, head }).forEach((e, stage) => {
          if (!(skipped && stage > 0)) worst[stage] = Math.max(worst[stage], e);
        });
        yield;
      }
    }
  }
  return {
    stages: STAGES.map((name, i) => ({ name, error: worst[i] })),
    largest: Math.max(...worst),
    skipped,
  };
}
