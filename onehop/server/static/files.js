// Files: dropped or chosen, translated one after the other, and kept as a link to download.

import { events } from "./events.js";

const at = (id) => document.getElementById(id);
let last = Promise.resolve(); // the file before the next one

/** `settings` are the server's, `form` gives the languages, and `send` posts a form and gives the answer. */
export function startFiles(settings, form, send) {
  const endings = settings.supportedFilesFormat;
  at("files").hidden = !settings.filesTranslation;
  at("file").accept = endings.join(",");
  const most = `at most ${(settings.fileLimit / 2 ** 20).toLocaleString(undefined, { maximumFractionDigits: 1 })} MiB`;
  at("formats").textContent = `${endings.map((ending) => ending.slice(1)).join(", ")}; ${most}`;
  const take = (files) => [...files].forEach((file) => add(file, settings, form, send));
  at("file").addEventListener("change", () => {
    take(at("file").files);
    at("file").value = ""; // the same file may be chosen again
  });
  for (const name of ["dragenter", "dragover", "dragleave", "drop"]) {
    at("drop").addEventListener(name, (e) => {
      e.preventDefault();
      at("drop").classList.toggle("over", name === "dragenter" || name === "dragover");
      if (name === "drop") take(e.dataTransfer.files);
    });
  }
}

/** A line for a file, which waits for those before it. */
function add(file, settings, form, send) {
  const line = document.createElement("li");
  const name = Object.assign(document.createElement("span"), { textContent: file.name });
  const bar = document.createElement("progress");
  const state = Object.assign(document.createElement("span"), {
    className: "small",
    role: "status",
  });
  const stop = Object.assign(document.createElement("button"), {
    type: "button",
    textContent: "×",
    title: "Stop",
  });
  stop.setAttribute("aria-label", `Stop ${file.name}`);
  bar.setAttribute("aria-label", `How far ${file.name} is`);
  line.append(name, bar, state, stop);
  at("jobs").append(line);
  const giveUp = new AbortController();
  stop.addEventListener("click", () => giveUp.abort());
  const languages = form();
  last = last.then(async () => {
    try {
      state.replaceChildren(
        await translate(file, settings, languages, send, bar, state, giveUp.signal),
      );
    } catch (error) {
      state.textContent = error.name === "AbortError" ? "stopped" : error.message;
      state.classList.toggle("bad", error.name !== "AbortError");
    }
    bar.remove();
    stop.remove();
  });
}

/** The link to a translated file. */
async function translate(file, settings, languages, send, bar, state, signal) {
  signal.throwIfAborted();
  if (file.size > settings.fileLimit)
    throw new Error("It is too large: split it into several files.");
  const body = new FormData();
  for (const [name, value] of Object.entries(languages)) body.append(name, value);
  body.append("file", file);
  state.textContent = "sending …";
  const answer = await send("v1/translate_file", body, signal, { Accept: "text/event-stream" });
  for await (const [name, event] of events(answer)) {
    if (name === "error") throw new Error(event.error);
    if (name === "done") return link(event);
    bar.max = event.of;
    bar.value = event.done;
    state.textContent = `${event.done.toLocaleString()} of ${event.of.toLocaleString()} segments`;
  }
  throw new Error("The server has stopped.");
}

function link({ file, name, target }) {
  return Object.assign(document.createElement("a"), {
    href: file,
    download: name,
    textContent: name,
    hreflang: target,
  });
}
