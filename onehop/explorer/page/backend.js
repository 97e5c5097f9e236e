// Where the page's data comes from: a server, a model in the browser, or the exported file itself. All have the same
// methods.

import { LocalBackend } from "onehop/localbackend.js";
import { Translations } from "onehop/translating.js";

/** The JSON that the page embeds under a name. */
const embeddedJson = (name) => JSON.parse(document.getElementById(`onehop-${name}`).textContent);

const initialData = () =>
  document.getElementById("onehop-data") ? embeddedJson("data") : { backend: "live" };

/** Resolves when the whole document has been parsed: an exported file carries data at its end. */
const whenParsed = () =>
  new Promise((resolve) =>
    document.readyState === "loading"
      ? document.addEventListener("DOMContentLoaded", resolve, { once: true })
      : resolve(null),
  );

/** Send a request to the server. A failure becomes an error with one line that the reader can act on. */
async function send(path, body = null, { signal = undefined, accept = undefined } = {}) {
  // If the server asks for a key, the page is opened as explore/?api_key=KEY.
  const key = new URLSearchParams(location.search).get("api_key");
  const headers = {
    ...(body && { "Content-Type": "application/json" }),
    ...(accept && { Accept: accept }),
    ...(key && { Authorization: `Bearer ${key}` }),
  };
  const options = body ? { method: "POST", headers, body: JSON.stringify(body) } : { headers };
  let response;
  try {
    response = await fetch(path, { ...options, signal });
  } catch {
    throw new Error("The server does not answer. Is onehop explore still running?");
  }
  if (response.ok) return response;
  const { error } = await response.json().catch(() => ({}));
  throw new Error(error ?? `The server answered with status ${response.status}.`);
}

const requestJson = async (path, body = null) => (await send(path, body)).json();

/** Pass each line of a streamed response to `onPart`; `signal` aborts the request. */
async function requestLines(path, body, { signal, onPart }) {
  const response = await send(path, body, { signal });
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let pending = "";
  for (let { value, done } = await reader.read(); !done; { value, done } = await reader.read()) {
    const lines = (pending + value).split("\n");
    pending = lines.pop();
    for (const line of lines) onPart(JSON.parse(line));
  }
}

/**
 * Read a streamed trace: JSON lines with the progress, the first picture's data and the header, then the tensors'
 * bytes.
 */
async function requestTrace(path, body, { signal, onProgress, onOpening }) {
  const response = await send(path, body, { signal, accept: "application/x-onehop-trace" });
  const reader = response.body.getReader();
  let pending = new Uint8Array(0);
  let trace = null;
  let received = 0;
  for (let { value, done } = await reader.read(); !done; { value, done } = await reader.read()) {
    let chunk = value;
    if (!trace) {
      const lines = new Uint8Array(pending.length + value.length);
      lines.set(pending);
      lines.set(value, pending.length);
      let start = 0;
      for (let end; !trace && (end = lines.indexOf(LINE_FEED, start)) >= 0; start = end + 1) {
        const line = JSON.parse(new TextDecoder().decode(lines.subarray(start, end)));
        if (line.error) throw new Error(line.error);
        if (line.trace) trace = { ...line.trace, blob: new Uint8Array(line.bytes) };
        else if (line.opening) onOpening({ ...line.opening, isPartial: true });
        else onProgress(line.written);
      }
      pending = lines.subarray(start);
      if (!trace) continue;
      chunk = pending;
    }
    trace.blob.set(chunk, received);
    received += chunk.length;
  }
  if (received !== trace?.blob.length) throw new Error("The server stopped in the middle.");
  return trace;
}

const LINE_FEED = 10;

const sameEdits = (a, b) => a.length === b.length && a.every((edit) => b.includes(edit));

class ServerBackend {
  #api;

  #translations = new Translations();

  constructor(data, api = "api") {
    this.kind = "live";
    this.data = data;
    this.loaded = Promise.resolve();
    this.#api = api;
    /** The backend of the model that this one can be compared with. */
    this.other = data.other ? new ServerBackend(data.other, "other/api") : null;
  }

  /** A trace. Before it, `onOpening` gets a partial trace with what the top of the page needs. */
  trace = (text, edits, onOpening = (_json) => {}) =>
    this.#translations.run(text, (options) =>
      requestTrace(`${this.#api}/trace`, { text, edits }, { ...options, onOpening }),
    );
  variant = (text, edits) => requestJson(`${this.#api}/variant`, { text, edits });
  heads = (text, edits, options) => requestLines(`${this.#api}/heads`, { text, edits }, options);
  neurons = (stack, layer, indices) =>
    requestJson(`${this.#api}/neurons?stack=${stack}&layer=${layer}&places=${indices.join()}`);
  weights = (role, layer, head) =>
    requestJson(`${this.#api}/weights?role=${role}&layer=${layer}&head=${head}`);
}

/** An exported file. Data for the first picture is at its start; the rest is parsed when a figure needs it. */
class FileBackend {
  other = null;
  #parsed = new Map();

  constructor(data) {
    this.kind = data.backend;
    this.data = data;
    this.loaded = whenParsed();
  }

  #read(name) {
    if (!this.#parsed.has(name)) this.#parsed.set(name, embeddedJson(name));
    return this.#parsed.get(name);
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
    const variant = this.#read("variants").find((candidate) => sameEdits(candidate.edits, edits));
    if (!variant)
      throw new Error("This copy holds some edits, one at a time. onehop explore computes any.");
    return variant;
  }

  /** An exported file already holds the effects of all heads. */
  async heads(_text, _edits, { onPart, signal: _ }) {
    const heads = this.#read("heads");
    if (!heads)
      throw new Error(
        "The sentence is long, and this copy was made without it. onehop explore computes it.",
      );
    onPart({ attentions: heads.length });
    heads.forEach(onPart);
  }

  async neurons(stack, layer, indices) {
    const byIndex = new Map(
      this.#read("neurons")
        .filter((n) => n.layer === layer)
        .map((n) => [n.neuron, n]),
    );
    if (stack === "encoder" || !indices.every((index) => byIndex.has(index)))
      throw new Error(
        "This copy holds the decoder's strongest neurons alone. onehop explore has all.",
      );
    return indices.map((index) => byIndex.get(index));
  }

  async weights(role, layer, head) {
    const matrices = this.#read("weights").find(
      (w) => w.role === role && w.layer === layer && w.head === head,
    );
    if (!matrices)
      throw new Error(
        "This copy holds the matrices of the head that it opens with. onehop explore has all.",
      );
    return matrices;
  }
}

export function openBackend() {
  const data = initialData();
  if (data.backend === "local") return new LocalBackend(data);
  return data.backend === "live" ? new ServerBackend(data) : new FileBackend(data);
}
