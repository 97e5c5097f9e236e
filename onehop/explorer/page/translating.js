// One translation at a time. The foot of the page says how far it is and has a button that stops it.

import { showStatus } from "onehop/status.js";
import { STATUS as TEXTS } from "onehop/texts/status.js";

export class Translations {
  #current = null;
  #idleStatus;

  /** `idleStatus()` is what the foot of the page says while nothing is translated, or null. */
  constructor(idleStatus = () => null) {
    this.#idleStatus = idleStatus;
  }

  /**
   * The result of `translate({ signal, written })`, which calls `written(count)` with the number of pieces so far. A
   * translation of another text that is still running is stopped: its result is no longer needed.
   */
  async run(text, translate) {
    if (this.#current && this.#current.text !== text) this.#current.stop.abort();
    const job = (this.#current = { text, stop: new AbortController() });
    const written = (pieces) =>
      this.#current === job &&
      showStatus({
        text: TEXTS.translating(pieces),
        progress: { name: TEXTS.translatingName },
        button: { label: TEXTS.stop, act: () => job.stop.abort() },
        isLate: true,
      });
    try {
      return await translate({ signal: job.stop.signal, written });
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
