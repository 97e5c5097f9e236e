// The model in a thread of its own: it is fetched once, then answers one question at a time.

import { fetchModel } from "./download.js";
import { Tokenizer } from "./tokenizer.js";
import { Tracer } from "./tracer.js";
import { Cancelled, Trouble } from "./trouble.js";
import { Weights } from "./weights.js";

const cancelled = new Set();
let tracer = null;
let queue = Promise.resolve();

/** Let messages in that have come meanwhile: one of them may take the question back. */
const channel = new MessageChannel();
const breath = () =>
  new Promise((done) => {
    channel.port1.onmessage = done;
    channel.port2.postMessage(null);
  });

async function open(base) {
  const { site, place } = await fetchModel(base, (loaded, total) => postMessage({ loaded, total }));
  tracer = new Tracer(await Weights.open(place), new Tokenizer(site), site);
  postMessage({ ready: true });
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
  if (data.open) queue = open(data.open).catch((error) => postMessage({ failed: error.message }));
  else queue = queue.then(() => answer(data));
};
