// The page's data from a model in the browser: the same questions as to a server, answered by a worker.

import { showStatus } from "onehop/status.js";

const [TRACES, VARIANTS] = [8, 32]; // as many answers are remembered

/** The last answers by their questions; what failed is asked again. */
function remembering(most, answer) {
  const known = new Map();
  return (text, edits) => {
    const key = JSON.stringify([text, edits]);
    const found = known.get(key) ?? answer(text, edits);
    known.delete(key);
    known.set(key, found);
    found.catch(() => known.get(key) === found && known.delete(key));
    if (known.size > most) known.delete(known.keys().next().value);
    return found;
  };
}

export class LocalHome {
  #worker = new Worker(new URL("./local/worker.js", import.meta.url), { type: "module" });
  #waiting = new Map();
  #failure = null;
  #last = 0;
  #tracing = null;

  constructor(data) {
    this.kind = "live"; // any sentence and any edit, as with a server
    this.data = data;
    this.whole = Promise.resolve();
    this.#mark("loading");
    this.#worker.onmessage = ({ data }) => this.#hear(data);
    this.#worker.onerror = () =>
      this.#fail("This browser cannot run the model: it needs WebAssembly and module workers.");
    this.#worker.postMessage({ open: document.baseURI });
  }

  #mark(state) {
    document.documentElement.dataset.model = state;
  }

  #hear({ id, ...told }) {
    if (told.ready) {
      this.#mark("ready");
      showStatus(null);
    } else if (told.failed) this.#fail(told.failed);
    else if (told.total) showStatus({ loaded: told.loaded, total: told.total });
    else this.#waiting.get(id)?.(told);
  }

  #fail(message) {
    this.#failure = message;
    this.#mark("failed");
    showStatus(null);
    for (const answer of this.#waiting.values()) answer({ error: message });
  }

  /** Ask the worker. `each` is told parts, `written` how many pieces there are so far; `signal` takes it back. */
  #ask(ask, question, { signal = undefined, each = undefined, written = undefined } = {}) {
    const id = ++this.#last;
    return new Promise((found, failed) => {
      if (this.#failure) return failed(new Error(this.#failure));
      this.#waiting.set(id, (told) => {
        if (told.part) return each?.(told.part);
        if (told.written !== undefined) return written?.(told.written);
        this.#waiting.delete(id);
        if (told.error) failed(new Error(told.error));
        else found(told.found);
      });
      signal?.addEventListener("abort", () => this.#worker.postMessage({ cancel: id }));
      this.#worker.postMessage({ id, ask, ...question });
    });
  }

  /** A sentence that nobody waits for any more, because another one was asked for, is stopped. */
  trace = remembering(TRACES, async (text, edits) => {
    if (this.#tracing && this.#tracing.text !== text) this.#tracing.stop.abort();
    const job = (this.#tracing = { text, stop: new AbortController() });
    const stop = () => job.stop.abort();
    const written = (pieces) => this.#tracing === job && showStatus({ pieces, stop });
    try {
      return await this.#ask("trace", { text, edits }, { signal: job.stop.signal, written });
    } finally {
      if (this.#tracing === job) {
        this.#tracing = null;
        showStatus(null);
      }
    }
  });

  variant = remembering(VARIANTS, async (text, edits) => {
    const plain = await this.trace(text, []);
    const found = await this.#ask("variant", { text, edits });
    const offered = new Map(
      this.data.about.edits.map((offer) => [offer.edits.join(), offer.label]),
    );
    return {
      ...found,
      label: found.edits.map((edit) => offered.get(edit) ?? edit).join(", "),
      same: found.target.text === plain.target.text,
    };
  });

  heads = (text, edits, { signal, each }) => this.#ask("heads", { text, edits }, { signal, each });
  neurons = (stack, layer, places) => this.#ask("neurons", { stack, layer, places });
  weights = (role, layer, head) => this.#ask("weights", { role, layer, head });
}
