// The model in a web worker: it is fetched once, then answers one request at a time.

import { fetchModel } from "./download.js";
import { Tokenizer } from "./tokenizer.js";
import { Tracer } from "./tracer.js";
import { Cancelled, UserError } from "./errors.js";
import { Weights } from "./weights.js";

const cancelled = new Set();
let tracer = null;
let fetching = null;
let queue = Promise.resolve();

/** Let pending messages arrive: one of them may cancel the current request. */
const channel = new MessageChannel();
const yieldToMessages = () =>
  new Promise((done) => {
    channel.port1.onmessage = done;
    channel.port2.postMessage(null);
  });

async function open(base) {
  fetching = new AbortController();
  try {
    const progress = (loaded, total) => postMessage({ loaded, total });
    const { site, memory } = await fetchModel(base, progress, fetching.signal);
    const weights = await Weights.open(memory);
    tracer = new Tracer(weights, new Tokenizer(site), site);
    postMessage({ ready: true, slow: !weights.isFast });
  } catch (error) {
    postMessage(error instanceof Cancelled ? { stopped: true } : { failed: error.message });
  }
}

const ANSWERS = {
  trace: ({ text, edits }, onStep) => tracer.trace(text, edits, onStep),
  variant: ({ text, edits }, onStep) => tracer.variant(text, edits, onStep),
  neurons: ({ stack, layer, indices }) => tracer.neurons(stack, layer, indices),
  weights: ({ role, layer, head }) => tracer.weights(role, layer, head),
  async heads({ text, edits }, onStep, id) {
    for await (const part of tracer.heads(text, edits, onStep)) postMessage({ id, part });
  },
};

async function answer({ id, ask, ...question }) {
  const onStep = async (written) => {
    if (written) postMessage({ id, written: written.length });
    await yieldToMessages();
    if (cancelled.has(id)) throw new Cancelled();
  };
  if (!tracer) return; // the page knows that the model was not loaded
  try {
    await onStep();
    const result = await ANSWERS[ask](question, onStep, id);
    postMessage({ id, result }, { transfer: result?.blob ? [result.blob.buffer] : [] });
  } catch (error) {
    if (!(error instanceof UserError || error instanceof Cancelled)) console.error(error);
    postMessage({ id, error: error.message });
  } finally {
    cancelled.delete(id);
  }
}

onmessage = ({ data }) => {
  if (data.cancel !== undefined) return void cancelled.add(data.cancel);
  if (data.stop) return fetching?.abort();
  if (data.open) queue = open(data.open);
  else queue = queue.then(() => answer(data));
};
