// The confidence estimate of onehop.pipelines.confidence in JavaScript.

/** Null if no estimate was fitted for the model, or if the model is edited. */
export function confidenceOf({ weights, doubtful }, { ids, finished, looped, log_prob }, edits) {
  if (!weights || edits.length) return null;
  const tokens = Math.max(ids.length + Number(finished), 1);
  const [bias, mean, length] = weights;
  const sum = bias + mean * Math.max(log_prob / tokens, -10) + length * Math.log(tokens);
  const value = finished && !looped ? Number((1 / (1 + Math.exp(-sum))).toFixed(3)) : 0;
  return { value, doubtful: value < doubtful };
}
