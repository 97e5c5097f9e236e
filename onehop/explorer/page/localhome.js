// The page's data from a model in the browser: the same questions as to a server, answered by a worker.

import { showStatus } from "onehop/status.js";
import { STATUS as TEXTS } from "onehop/texts/status.js";
import { Translations } from "onehop/translating.js";

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
  other = null;
  #worker = new Worker(new URL("./local/worker.js", import.meta.url), { type: "module" });
  #waiting = new Map();
  #failure = null;
  #standing = null; // what the foot of the page says while nothing else is to be said
  #last = 0;
  #translations = new Translations(() => this.#standing);
  #example = null; // what figures need of the stored trace: its tensors, and what each head decides

  constructor(data) {
    this.kind = "live"; // any sentence and any edit, as with a server
    this.data = data;
    this.#worker.onmessage = ({ data }) => this.#hear(data);
    this.#worker.onerror = () => this.#fail(TEXTS.unable);
    this.whole = this.#fetchExample();
    this.#open();
  }

  #mark(state) {
    document.documentElement.dataset.model = state;
  }

  #stand(state) {
    this.#standing = state;
    showStatus(state);
  }

  /** Fetch the model; also once more after it was stopped or has failed. */
  #open = () => {
    this.#failure = null;
    this.#mark("loading");
    this.#stand(null);
    this.#worker.postMessage({ open: document.baseURI });
  };

  #hear({ id, ...told }) {
    if (told.ready) {
      this.#mark("ready");
      const button = { label: TEXTS.close, act: () => this.#stand(null) };
      this.#stand(told.slow ? { text: TEXTS.slow, button } : null);
    } else if (told.failed) this.#fail(told.failed);
    else if (told.stopped) this.#fail(TEXTS.notLoaded, "stopped", TEXTS.stopped);
    else if (told.total) this.#loading(told.loaded, told.total);
    else this.#waiting.get(id)?.(told);
  }

  #loading(loaded, total) {
    this.#stand({
      text: TEXTS.loading(loaded, total),
      progress: { name: TEXTS.loadingName, value: loaded, max: total },
      button: { label: TEXTS.stop, act: () => this.#worker.postMessage({ stop: true }) },
    });
  }

  #fail(message, state = "failed", text = message) {
    this.#failure = message;
    this.#mark(state);
    for (const answer of this.#waiting.values()) answer({ error: message });
    const button = { label: TEXTS.again, act: this.#open };
    this.#stand({ text, button, isTrouble: state === "failed" });
  }

  /** The tensors of the stored example; where they cannot be had, the model computes them when it is there. */
  async #fetchExample() {
    const { trace } = this.data;
    try {
      const late = await (await fetch(new URL("example.json", document.baseURI))).json();
      this.#example = { tensors: trace.tensors, ...late };
    } catch {
      this.#example = await this.#ask("trace", { text: trace.source.text, edits: [] });
    }
  }

  #isExample = (text, edits) => !edits.length && text === this.data.trace.source.text;

  /** The stored trace. Its header is in the page; its tensors are there when the page is whole. */
  #stored() {
    const [header, example] = [this.data.trace, () => this.#example];
    return {
      ...header,
      get tensors() {
        return (example() ?? header).tensors;
      },
      get blob() {
        return example().blob;
      },
    };
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

  trace = remembering(TRACES, async (text, edits) =>
    this.#isExample(text, edits)
      ? this.#stored()
      : this.#translations.run(text, (options) => this.#ask("trace", { text, edits }, options)),
  );

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

  async heads(text, edits, { signal, each }) {
    if (!this.#isExample(text, edits) || !this.#example?.heads)
      return this.#ask("heads", { text, edits }, { signal, each });
    each({ attentions: this.#example.heads.length });
    this.#example.heads.forEach(each);
  }
  neurons = (stack, layer, places) => this.#ask("neurons", { stack, layer, places });
  weights = (role, layer, head) => this.#ask("weights", { role, layer, head });
}
