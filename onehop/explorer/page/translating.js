// One translation at a time, with its progress and a stop button in the status line.

import { showStatus } from "onehop/status.js";
import { STATUS as TEXTS } from "onehop/texts/status.js";

export class Translations {
  #current = null;
  #idleStatus;

  /** `idleStatus()` is the status line while nothing is translated, or null. */
  constructor(idleStatus = () => null) {
    this.#idleStatus = idleStatus;
  }

  /**
   * The result of `translate({ signal, onProgress })`. A running translation of another text is stopped, because its
   * result is no longer needed.
   */
  async run(text, translate) {
    if (this.#current && this.#current.text !== text) this.#current.stop.abort();
    const job = (this.#current = { text, stop: new AbortController() });
    const onProgress = (pieces) =>
      this.#current === job &&
      showStatus({
        text: TEXTS.translating(pieces),
        progress: { name: TEXTS.translatingName },
        button: { label: TEXTS.stop, act: () => job.stop.abort() },
        isLate: true,
      });
    try {
      return await translate({ signal: job.stop.signal, onProgress });
    } catch (error) {
      throw job.stop.signal.aborted ? new Error(TEXTS.cancelled) : error;
    } finally {
      if (this.#current === job) {
        this.#current = null;
        showStatus(this.#idleStatus());
      }
    }
  }
}
