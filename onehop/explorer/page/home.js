// Where the page's data comes from: a live server, or the file it stands in. Figures cannot tell the difference.

/** What the page was given at birth. */
function given() {
  const script = document.getElementById("onehop-data");
  return script ? JSON.parse(script.textContent) : { home: "live" };
}

/** A request to the live server; its errors are one line that the reader can use. */
async function ask(path, body) {
  const options = body && { method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify(body) };
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
  }

  trace = (text, edits) => ask("api/trace", { text, edits });
  variant = (text, edits) => ask("api/variant", { text, edits });
  weights = (role, layer, head) => ask(`api/weights?role=${role}&layer=${layer}&head=${head}`);
  takes = () => true;
}

class FileHome {
  constructor(data) {
    this.kind = data.home;
    this.data = data;
  }

  async trace() {
    return this.data.trace;
  }

  async variant(_text, edits) {
    const found = this.data.variants.find((variant) => sameEdits(variant.edits, edits));
    if (!found) throw new Error("This copy holds a dozen edits, one at a time. onehop explore computes any.");
    return found;
  }

  async weights(role, layer, head) {
    const found = this.data.weights.find((w) => w.role === role && w.layer === layer && w.head === head);
    if (!found) throw new Error("This copy holds the matrices of the first layer's first head. onehop explore has all.");
    return found;
  }

  /** Whether the copy knows this combination of edits. */
  takes = (edits) => edits.length === 0 || this.data.variants.some((variant) => sameEdits(variant.edits, edits));
}

export function openHome() {
  const data = given();
  return data.home === "live" ? new LiveHome(data) : new FileHome(data);
}
