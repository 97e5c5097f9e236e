// Where the page's data comes from: a live server, or the file it stands in. Figures cannot tell the difference.

/** What stands in the page as JSON under a name. */
const written = (name) => JSON.parse(document.getElementById(`onehop-${name}`).textContent);

/** What the page was given at birth. */
const given = () => (document.getElementById("onehop-data") ? written("data") : { home: "live" });

/** When the last byte of the page has been read. */
const complete = () => new Promise((done) => (document.readyState === "loading" ? document.addEventListener("DOMContentLoaded", () => done(), { once: true }) : done()));

/** A request to the live server; its errors are one line that the reader can use. */
async function ask(path, body) {
  // A server that asks for a key is opened as explore/?api_key=KEY.
  const key = new URLSearchParams(location.search).get("api_key");
  const headers = { ...(body && { "Content-Type": "application/json" }), ...(key && { Authorization: `Bearer ${key}` }) };
  const options = body ? { method: "POST", headers, body: JSON.stringify(body) } : { headers };
  let answer;
  try {
    answer = await fetch(path, options);
  } catch {
    throw new Error("The server does not answer. Is onehop explore still running?");
  }
  const json = await answer.json().catch(() => ({ error: `The server answered with status ${answer.status}.` }));
  if (!answer.ok) throw new Error(json.error ?? `The server answered with status ${answer.status}.`);
  return json;
}

const sameEdits = (a, b) => a.length === b.length && a.every((edit) => b.includes(edit));

class LiveHome {
  constructor(data) {
    this.kind = "live";
    this.data = data;
    this.whole = Promise.resolve();
  }

  trace = (text, edits) => ask("api/trace", { text, edits });
  variant = (text, edits) => ask("api/variant", { text, edits });
  weights = (role, layer, head) => ask(`api/weights?role=${role}&layer=${layer}&head=${head}`);
}

/** A file begins with what the first picture needs. The rest lies behind it and is read when it is asked for. */
class FileHome {
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
    return { ...this.data.trace, get blob() { return blob(); } };
  }

  async variant(_text, edits) {
    const found = this.#read("variants").find((variant) => sameEdits(variant.edits, edits));
    if (!found) throw new Error("This copy holds a dozen edits, one at a time. onehop explore computes any.");
    return found;
  }

  async weights(role, layer, head) {
    const found = this.#read("weights").find((w) => w.role === role && w.layer === layer && w.head === head);
    if (!found) throw new Error("This copy holds the matrices of the head that it opens with. onehop explore has all.");
    return found;
  }
}

export function openHome() {
  const data = given();
  return data.home === "live" ? new LiveHome(data) : new FileHome(data);
}
