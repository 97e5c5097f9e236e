// The page's own check: each stage of every attention is recomputed from the recorded stage before it.

import { dot, range, softmax, weightedSum } from "onehop/maths.js";
import { ROLES } from "onehop/state.js";

const STAGES = ["q·k → scores", "scores → weights", "weights → output"];

/** The largest difference, relative to the largest recorded number of the attention. */
function error(recomputed, recorded, all) {
  let difference = 0;
  let size = 0;
  recorded.forEach((row, i) =>
    row.forEach((x, j) => (difference = Math.max(difference, Math.abs(x - recomputed[i][j])))),
  );
  for (const x of all.data) size = Math.max(size, Math.abs(x));
  return size ? difference / size : difference;
}

/** The divisor of the scores: √d_k, unless an edit changes it. */
export function divisor(trace, { role, layer, head }) {
  let value = Math.sqrt(trace.settings.d_k);
  for (const edit of trace.edits) {
    const [, setting, location] = edit.match(/^scale=([^@]+)(?:@(.*))?$/) ?? [];
    if (setting === undefined) continue;
    const headPath = [role, String(layer), String(head)];
    if (location && location.split(".").some((part, i) => part !== headPath[i])) continue;
    value = setting === "off" ? 1 : Number(setting);
  }
  return value;
}

/** The scores of one query after scaling and mask. */
export function maskedScores(trace, headRef, query) {
  const scale = divisor(trace, headRef);
  const causal = headRef.role === "decoder" && !trace.edits.includes("mask=off");
  const scores = trace.part(headRef, "scores").at({ head: headRef.head, query });
  return Array.from(scores, (s, key) => (causal && key > query ? -Infinity : s / scale));
}

/** The errors of one head, one for each stage. */
function stageErrors(trace, headRef) {
  const { head } = headRef;
  const [q, k, v] = ["q", "k", "v"].map((name) => trace.part(headRef, name).rows({ head }));
  const weights = trace.part(headRef, "weights").rows({ head });
  const errorOf = (name, recomputed) =>
    error(recomputed, trace.part(headRef, name).rows({ head }), trace.part(headRef, name));
  return [
    errorOf(
      "scores",
      q.map((a) => k.map((b) => dot(a, b))),
    ),
    errorOf(
      "weights",
      q.map((_, query) => softmax(maskedScores(trace, headRef, query))),
    ),
    errorOf(
      "head_outputs",
      weights.map((row) => weightedSum(Array.from(row), v)),
    ),
  ];
}

/** Edits that replace a stage's result; later stages then do not follow the formula. */
const REPLACING = /^(heads=averaged|head=)/;

/**
 * The largest error of each stage over all heads. The generator pauses after each head, because the check takes a
 * while.
 */
export function* checkTrace(trace) {
  const skipped = trace.edits.some((edit) => REPLACING.test(edit));
  const maxErrors = [0, 0, 0];
  for (const role of ROLES) {
    for (const layer of range(trace.layers(role))) {
      for (const head of range(trace.heads)) {
        stageErrors(trace, { role, layer, head }).forEach((e, stage) => {
          if (!(skipped && stage > 0)) maxErrors[stage] = Math.max(maxErrors[stage], e);
        });
        yield;
      }
    }
  }
  return {
    stages: STAGES.map((name, i) => ({ name, error: maxErrors[i] })),
    largest: Math.max(...maxErrors),
    skipped,
  };
}
