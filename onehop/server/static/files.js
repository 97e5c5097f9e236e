// Translates dropped or chosen files one after the other and links to the results.

import { events } from "./events.js";

const byId = (id) => document.getElementById(id);
let queue = Promise.resolve(); // resolves after the last file

/** `settings` are the server's, `chosenLanguages` reads the form, and `send` posts a form. */
export function startFiles(settings, chosenLanguages, send) {
  const endings = settings.supportedFilesFormat;
  byId("files").hidden = !settings.filesTranslation;
  byId("file").accept = endings.join(",");
  const most = `at most ${(settings.fileLimit / 2 ** 20).toLocaleString(undefined, { maximumFractionDigits: 1 })} MiB`;
  byId("formats").textContent = `${endings.map((ending) => ending.slice(1)).join(", ")}; ${most}`;
  const addAll = (files) =>
    [...files].forEach((file) => addFile(file, settings, chosenLanguages, send));
  byId("file").addEventListener("change", () => {
    addAll(byId("file").files);
    byId("file").value = ""; // so that the same file can be chosen again
  });
  for (const name of ["dragenter", "dragover", "dragleave", "drop"]) {
    byId("drop").addEventListener(name, (e) => {
      e.preventDefault();
      byId("drop").classList.toggle("over", name === "dragenter" || name === "dragover");
      if (name === "drop") addAll(e.dataTransfer.files);
    });
  }
}

/** A line in the list for a file, which waits for earlier files. */
function addFile(file, settings, chosenLanguages, send) {
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
  byId("jobs").append(line);
  const controller = new AbortController();
  stop.addEventListener("click", () => controller.abort());
  const languages = chosenLanguages();
  queue = queue.then(async () => {
    try {
      state.replaceChildren(
        await translate(file, settings, languages, send, bar, state, controller.signal),
      );
    } catch (error) {
      state.textContent = error.name === "AbortError" ? "stopped" : error.message;
      state.classList.toggle("bad", error.name !== "AbortError");
    }
    bar.remove();
    stop.remove();
  });
}

/** A link to the translated file. */
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
