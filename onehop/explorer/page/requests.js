// Asynchronous work: responses that figures wait for, and the sweep over all heads. Store listeners hear of changes.

import { backend, backendOf, store } from "onehop/session.js";
import { TEXTS } from "onehop/texts.js";

const resources = new Map();
const sweeps = new Map();
const IDLE = Object.freeze({ state: "idle", parts: [], total: 0 });

/**
 * A response, requested once for each key: {}, later `{ value }` or `{ error }`. Then the figures that asked are
 * drawn again; without a figure, everything is.
 */
export function resource(key, load, figure = null) {
  if (!resources.has(key)) {
    resources.set(key, { answer: {}, figures: new Set() });
    load()
      .then(
        (value) => ({ value }),
        (error) => ({ error: error.message }),
      )
      .then((answer) => {
        const { figures } = resources.get(key);
        resources.set(key, { answer, figures });
        store.set({}, figures.has(null) ? null : [...figures]);
      });
  }
  const { answer, figures } = resources.get(key);
  figures.add(figure);
  return answer;
}

/** Failed requests may be sent again. */
export function forgetFailures() {
  for (const [key, { answer }] of resources) if (answer.error) resources.delete(key);
}

export const traceKey = (trace) => `${trace.model.hash} ${trace.source.text} ${trace.edits.join()}`;

let isLoaded = false; // whether the page's own data is loaded
backend.loaded.then(() => {
  isLoaded = true;
  store.set({});
});
/** Whether all data that figures may need is loaded. */
export const isComplete = () => isLoaded && store.value.trace?.isComplete !== false;

/** The state of a trace's sweep; an exported file has the result from the start. */
export function sweepOf(trace) {
  if (!sweeps.has(traceKey(trace)) && backend.kind !== "live" && isLoaded) startSweep(trace);
  return sweeps.get(traceKey(trace)) ?? IDLE;
}

/** Ablate every head in turn; in a comparison, then also the other translation's. */
export async function startSweep(trace = store.value.trace) {
  const key = traceKey(trace);
  if (["running", "done"].includes(sweeps.get(key)?.state)) return;
  const [cancel, parts] = [new AbortController(), []];
  const update = (state, more = {}) => {
    const previous = sweeps.get(key);
    sweeps.set(key, { state, parts, cancel, total: previous?.total ?? 0, ...more });
    // A part of a running sweep changes that figure only.
    store.set({}, previous?.state === state ? ["decides"] : null);
  };
  update("running");
  const onPart = (part) =>
    part.attentions
      ? update("running", { total: part.attentions })
      : (parts.push(part), update("running"));
  try {
    const { text } = trace.source;
    await backendOf(trace).heads(text, trace.edits, { signal: cancel.signal, onPart });
    update(parts.length && parts.length === sweeps.get(key).total ? "done" : "failed", {
      error: TEXTS.decides.early,
    });
  } catch (error) {
    update(cancel.signal.aborted ? "cancelled" : "failed", { error: error.message });
  }
  const { other } = store.value;
  if (other && other !== trace && !cancel.signal.aborted) startSweep(other);
}

export function stopSweep() {
  for (const { state, cancel } of sweeps.values()) if (state === "running") cancel.abort();
}
