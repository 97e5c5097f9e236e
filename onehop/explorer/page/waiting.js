// What takes time: answers that a figure waits for, and the sweep over all heads. Who listens to the store hears of them.

import { home, homeOf, store } from "onehop/session.js";
import { TEXTS } from "onehop/texts.js";

const resources = new Map();
const sweeps = new Map();
const IDLE = Object.freeze({ state: "idle", parts: [], total: 0 });

/**
 * The answer to a request, sent once for each key: {} until it is there, then `{ value }` or `{ error }`. When it comes, the
 * figures that asked for it are drawn again, or everything if the essay did (no figure).
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

/** What failed once may be asked again. */
export function forgetFailures() {
  for (const [key, { answer }] of resources) if (answer.error) resources.delete(key);
}

export const stampOf = (trace) => `${trace.model.hash} ${trace.source.text} ${trace.edits.join()}`;

let whole = false; // whether everything that the page was made with is there
home.whole.then(() => {
  whole = true;
  store.set({});
});
/** Whether everything that figures may ask for is there. */
export const isWhole = () => whole && store.value.trace?.isWhole !== false;

/** How far the sweep of this trace has come; a file has its own from the start. */
export function sweepOf(trace) {
  if (!sweeps.has(stampOf(trace)) && home.kind !== "live" && whole) startSweep(trace);
  return sweeps.get(stampOf(trace)) ?? IDLE;
}

/** Switch off every head in turn; in a comparison, then also those of the other translation. */
export async function startSweep(trace = store.value.trace) {
  const stamp = stampOf(trace);
  if (["running", "done"].includes(sweeps.get(stamp)?.state)) return;
  const [cancel, parts] = [new AbortController(), []];
  const told = (state, more = {}) => {
    const before = sweeps.get(stamp);
    sweeps.set(stamp, { state, parts, cancel, total: before?.total ?? 0, ...more });
    // A part of a running sweep shows in that figure alone.
    store.set({}, before?.state === state ? ["decides"] : null);
  };
  told("running");
  const each = (part) =>
    part.attentions
      ? told("running", { total: part.attentions })
      : (parts.push(part), told("running"));
  try {
    const { text } = trace.source;
    await homeOf(trace).heads(text, trace.edits, { signal: cancel.signal, each });
    told(parts.length && parts.length === sweeps.get(stamp).total ? "done" : "failed", {
      error: TEXTS.decides.early,
    });
  } catch (error) {
    told(cancel.signal.aborted ? "cancelled" : "failed", { error: error.message });
  }
  const { other } = store.value;
  if (other && other !== trace && !cancel.signal.aborted) startSweep(other);
}

export function stopSweep() {
  for (const { state, cancel } of sweeps.values()) if (state === "running") cancel.abort();
}
