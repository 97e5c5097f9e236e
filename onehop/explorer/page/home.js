// Where the page's data comes from: a live server, a model in the browser, or the file that the page stands in. Figures
// cannot tell the difference.

import { LocalHome } from "onehop/localhome.js";
import { Translations } from "onehop/translating.js";

/** What stands in the page as JSON under a name. */
const written = (name) => JSON.parse(document.getElementById(`onehop-${name}`).textContent);

/** What the page was given at birth. */
const given = () => (document.getElementById("onehop-data") ? written("data") : { home: "live" });

/** When the last byte of the page has been read. */
const complete = () =>
  new Promise((done) =>
    document.readyState === "loading"
      ? document.addEventListener("DOMContentLoaded", done, { once: true })
      : done(null),
  );

/** Send a request to the live server. An error is one line that the reader can use. */
async function send(path, body = null, { signal = undefined, accept = undefined } = {}) {
  // A server that asks for a key is opened as explore/?api_key=KEY.
  const key = new URLSearchParams(location.search).get("api_key");
  const headers = {
    ...(body && { "Content-Type": "application/json" }),
    ...(accept && { Accept: accept }),
    ...(key && { Authorization: `Bearer ${key}` }),
  };
  const options = body ? { method: "POST", headers, body: JSON.stringify(body) } : { headers };
  let answer;
  try {
    answer = await fetch(path, { ...options, signal });
  } catch {
    throw new Error("The server does not answer. Is onehop explore still running?");
  }
  if (answer.ok) return answer;
  const { error } = await answer.json().catch(() => ({}));
  throw new Error(error ?? `The server answered with status ${answer.status}.`);
}

const ask = async (path, body = null) => (await send(path, body)).json();

/** The lines of a streamed answer, each handed on as soon as it is there; `signal` ends it. */
async function askLines(path, body, { signal, each }) {
  const answer = await send(path, body, { signal });
  const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
  let waiting = "";
  for (let { value, done } = await reader.read(); !done; { value, done } = await reader.read()) {
    const lines = (waiting + value).split("\n");
    waiting = lines.pop();
    for (const line of lines) each(JSON.parse(line));
  }
}

/**
 * A trace, streamed: lines of JSON with the number of written pieces, a line with what the top of the page needs, a line
 * with the header, and the bytes of the tensors.
 */
async function askTrace(path, body, { signal, written, opening }) {
  const answer = await send(path, body, { signal, accept: "application/x-onehop-trace" });
  const reader = answer.body.getReader();
  let waiting = new Uint8Array(0);
  let trace = null;
  let filled = 0;
  for (let { value, done } = await reader.read(); !done; { value, done } = await reader.read()) {
    let chunk = value;
    if (!trace) {
      const lines = new Uint8Array(waiting.length + value.length);
      lines.set(waiting);
      lines.set(value, waiting.length);
      let start = 0;
      for (let end; !trace && (end = lines.indexOf(LINE_FEED, start)) >= 0; start = end + 1) {
        const line = JSON.parse(new TextDecoder().decode(lines.subarray(start, end)));
        if (line.error) throw new Error(line.error);
        if (line.trace) trace = { ...line.trace, blob: new Uint8Array(line.bytes) };
        else if (line.opening) opening({ ...line.opening, isPartial: true });
        else written(line.written);
      }
      waiting = lines.subarray(start);
      if (!trace) continue;
      chunk = waiting;
    }
    trace.blob.set(chunk, filled);
    filled += chunk.length;
  }
  if (filled !== trace?.blob.length) throw new Error("The server stopped in the middle.");
  return trace;
}

const LINE_FEED = 10;

const sameEdits = (a, b) => a.length === b.length && a.every((edit) => b.includes(edit));

class LiveHome {
  #api;

  #translations = new Translations();

  constructor(data, api = "api") {
    this.kind = "live";
    this.data = data;
    this.whole = Promise.resolve();
    this.#api = api;
    /** The home of the model that this one can be compared with. */
    this.other = data.other ? new LiveHome(data.other, "other/api") : null;
  }

  /** A trace. `opening` is called before with one that has only what the top of the page needs. */
  trace = (text, edits, opening = (_json) => {}) =>
    this.#translations.run(text, (options) =>
      askTrace(`${this.#api}/trace`, { text, edits }, { ...options, opening }),
    );
  variant = (text, edits) => ask(`${this.#api}/variant`, { text, edits });
  heads = (text, edits, options) => askLines(`${this.#api}/heads`, { text, edits }, options);
  neurons = (stack, layer, places) =>
    ask(`${this.#api}/neurons?stack=${stack}&layer=${layer}&places=${places.join()}`);
  weights = (role, layer, head) =>
    ask(`${this.#api}/weights?role=${role}&layer=${layer}&head=${head}`);
}

/** A file begins with what the first picture needs. The rest lies behind it and is read when it is asked for. */
class FileHome {
  other = null;
  #late = new Map();

  constructor(data) {
    this.kind = data.home;
    this.data = data;
    this.whole = complete();
  }

  #read(name) {
    if (!this.#late.has(name)) this.#late.set(name, written(name));
    return this.#late.get(name);
  }

  async trace() {
    const blob = () => this.#read("blob");
    return {
      ...this.data.trace,
      get blob() {
        return blob();
      },
    };
  }

  async variant(_text, edits) {
    const found = this.#read("variants").find((variant) => sameEdits(variant.edits, edits));
    if (!found)
      throw new Error("This copy holds a dozen edits, one at a time. onehop explore computes any.");
    return found;
  }

  /** A file knows the effects from the start. */
  async heads(_text, _edits, { each, signal: _ }) {
    const parts = this.#read("heads");
    if (!parts)
      throw new Error(
        "The sentence is long, and this copy was made without it. onehop explore computes it.",
      );
    each({ attentions: parts.length });
    parts.forEach(each);
  }

  async neurons(stack, layer, places) {
    const known = new Map(
      this.#read("neurons")
        .filter((n) => n.layer === layer)
        .map((n) => [n.neuron, n]),
    );
    if (stack === "encoder" || !places.every((place) => known.has(place)))
      throw new Error(
        "This copy holds the decoder's strongest neurons alone. onehop explore has all.",
      );
    return places.map((place) => known.get(place));
  }

  async weights(role, layer, head) {
    const found = this.#read("weights").find(
      (w) => w.role === role && w.layer === layer && w.head === head,
    );
    if (!found)
      throw new Error(
        "This copy holds the matrices of the head that it opens with. onehop explore has all.",
      );
    return found;
  }
}

export function openHome() {
  const data = given();
  if (data.home === "local") return new LocalHome(data);
  return data.home === "live" ? new LiveHome(data) : new FileHome(data);
}
