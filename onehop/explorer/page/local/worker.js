// The model in a thread of its own: it is fetched once, then answers one question at a time.

import { fetchModel } from "./download.js";
import { Tokenizer } from "./tokenizer.js";
import { Tracer } from "./tracer.js";
import { Cancelled, Trouble } from "./trouble.js";
import { Weights } from "./weights.js";

const cancelled = new Set();
let tracer = null;
let fetching = null;
let queue = Promise.resolve();

/** Let messages in that have come meanwhile: one of them may take the question back. */
const channel = new MessageChannel();
const breath = () =>
  new Promise((done) => {
    channel.port1.onmessage = done;
    channel.port2.postMessage(null);
  });

async function open(base) {
  fetching = new AbortController();
  try {
    const progress = (loaded, total) => postMessage({ loaded, total });
    const { site, place } = await fetchModel(base, progress, fetching.signal);
    const weights = await Weights.open(place);
    tracer = new Tracer(weights, new Tokenizer(site), site);
    postMessage({ ready: true, slow: !weights.isFast });
  } catch (error) {
    postMessage(error instanceof Cancelled ? { stopped: true } : { failed: error.message });
  }
}

const ANSWERS = {
  trace: ({ text, edits }, each) => tracer.trace(text, edits, each),
  variant: ({ text, edits }, each) => tracer.variant(text, edits, each),
  neurons: ({ stack, layer, places }) => tracer.neurons(stack, layer, places),
  weights: ({ role, layer, head }) => tracer.weights(role, layer, head),
  async heads({ text, edits }, each, id) {
    for await (const part of tracer.heads(text, edits, each)) postMessage({ id, part });
  },
};

async function answer({ id, ask, ...question }) {
  const each = async (written) => {
    if (written) postMessage({ id, written: written.length });
    await breath();
    if (cancelled.has(id)) throw new Cancelled();
  };
  if (!tracer) return; // the page knows that the model did not come
  try {
    await each();
    const found = await ANSWERS[ask](question, each, id);
    postMessage({ id, found }, { transfer: found?.blob ? [found.blob.buffer] : [] });
  } catch (error) {
    if (!(error instanceof Trouble || error instanceof Cancelled)) console.error(error);
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
