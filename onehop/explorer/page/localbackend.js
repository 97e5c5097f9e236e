// The backend with the model in the browser: a worker answers the requests that a server would.

import { showStatus } from "onehop/status.js";
import { STATUS as TEXTS } from "onehop/texts/status.js";
import { Translations } from "onehop/translating.js";

const [TRACES, VARIANTS] = [8, 32]; // sizes of the caches

/** Cache the last answers by their arguments; failed ones are asked again. */
function memoize(limit, compute) {
  const answers = new Map();
  return (text, edits) => {
    const key = JSON.stringify([text, edits]);
    const promise = answers.get(key) ?? compute(text, edits);
    answers.delete(key);
    answers.set(key, promise);
    promise.catch(() => answers.get(key) === promise && answers.delete(key));
    if (answers.size > limit) answers.delete(answers.keys().next().value);
    return promise;
  };
}

export class LocalBackend {
  other = null;
  #worker = new Worker(new URL("./local/worker.js", import.meta.url), { type: "module" });
  #pending = new Map();
  #failure = null;
  #idleStatus = null; // the status line while nothing is running
  #lastId = 0;
  #translations = new Translations(() => this.#idleStatus);
  #stored = null; // the rest of the stored trace: its tensors and the heads' effects

  constructor(data) {
    this.kind = "live"; // any sentence and any edit, as with a server
    this.data = data;
    this.#worker.onmessage = ({ data }) => this.#onMessage(data);
    this.#worker.onerror = () => this.#fail(TEXTS.unable);
    this.loaded = this.#fetchStored();
    this.#fetchModel();
  }

  #setState(state) {
    document.documentElement.dataset.model = state;
  }

  #setIdleStatus(state) {
    this.#idleStatus = state;
    showStatus(state);
  }

  /** Fetch the model; also again after a stop or a failure. */
  #fetchModel = () => {
    this.#failure = null;
    this.#setState("loading");
    this.#setIdleStatus(null);
    this.#worker.postMessage({ open: document.baseURI });
  };

  #onMessage({ id, ...message }) {
    if (message.ready) {
      this.#setState("ready");
      const button = { label: TEXTS.close, act: () => this.#setIdleStatus(null) };
      this.#setIdleStatus(message.slow ? { text: TEXTS.slow, button } : null);
    } else if (message.failed) this.#fail(message.failed);
    else if (message.stopped) this.#fail(TEXTS.notLoaded, "stopped", TEXTS.stopped);
    else if (message.total) this.#showProgress(message.loaded, message.total);
    else this.#pending.get(id)?.(message);
  }

  #showProgress(loaded, total) {
    this.#setIdleStatus({
      text: TEXTS.loading(loaded, total),
      progress: { name: TEXTS.loadingName, value: loaded, max: total },
      button: { label: TEXTS.stop, act: () => this.#worker.postMessage({ stop: true }) },
    });
  }

  #fail(message, state = "failed", text = message) {
    this.#failure = message;
    this.#setState(state);
    for (const answer of this.#pending.values()) answer({ error: message });
    const button = { label: TEXTS.again, act: this.#fetchModel };
    this.#setIdleStatus({ text, button, isError: state === "failed" });
  }

  /** The tensors of the stored example. If they cannot be fetched, the model computes them later. */
  async #fetchStored() {
    const { trace } = this.data;
    try {
      const rest = await (await fetch(new URL("example.json", document.baseURI))).json();
      this.#stored = { tensors: trace.tensors, ...rest };
    } catch {
      this.#stored = await this.#request("trace", { text: trace.source.text, edits: [] });
    }
  }

  #isStored = (text, edits) => !edits.length && text === this.data.trace.source.text;

  /** The stored trace. The page embeds its header; its tensors are fetched later. */
  #storedTrace() {
    const [header, stored] = [this.data.trace, () => this.#stored];
    return {
      ...header,
      get tensors() {
        return (stored() ?? header).tensors;
      },
      get blob() {
        return stored().blob;
      },
    };
  }

  /**
   * Send a request to the worker. `onPart` gets parts, `onProgress` the number of written pieces; `signal` cancels
   * it.
   */
  #request(ask, question, { signal = undefined, onPart = undefined, onProgress = undefined } = {}) {
    const id = ++this.#lastId;
    return new Promise((resolve, reject) => {
      if (this.#failure) return reject(new Error(this.#failure));
      this.#pending.set(id, (message) => {
        if (message.part) return onPart?.(message.part);
        if (message.written !== undefined) return onProgress?.(message.written);
        this.#pending.delete(id);
        if (message.error) reject(new Error(message.error));
        else resolve(message.result);
      });
      signal?.addEventListener("abort", () => this.#worker.postMessage({ cancel: id }));
      this.#worker.postMessage({ id, ask, ...question });
    });
  }

  trace = memoize(TRACES, async (text, edits) =>
    this.#isStored(text, edits)
      ? this.#storedTrace()
      : this.#translations.run(text, (options) => this.#request("trace", { text, edits }, options)),
  );

  variant = memoize(VARIANTS, async (text, edits) => {
    const unedited = await this.trace(text, []);
    const variant = await this.#request("variant", { text, edits });
    const labels = new Map(this.data.about.edits.map((offer) => [offer.edits.join(), offer.label]));
    return {
      ...variant,
      label: variant.edits.map((edit) => labels.get(edit) ?? edit).join(", "),
      same: variant.target.text === unedited.target.text,
    };
  });

  async heads(text, edits, { signal, onPart }) {
    if (!this.#isStored(text, edits) || !this.#stored?.heads)
      return this.#request("heads", { text, edits }, { signal, onPart });
    onPart({ attentions: this.#stored.heads.length });
    this.#stored.heads.forEach(onPart);
  }
  neurons = (stack, layer, indices) => this.#request("neurons", { stack, layer, indices });
  weights = (role, layer, head) => this.#request("weights", { role, layer, head });
}
