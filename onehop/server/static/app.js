// The server's page: a form, a translation, and files. It uses the public API.

import { events } from "./events.js";
import { startFiles } from "./files.js";

const byId = (id) => document.getElementById(id);
const ALTERNATIVES = 3;
const AUTO = "auto";
let currentRequest = null; // the current request, aborted by a newer one
let settings, names, languages;
let previousPair = {}; // the pair of languages before the last change
let detected = null; // the detected language of the last text

async function start() {
  [settings, languages] = await Promise.all([get("frontend/settings"), get("languages")]);
  names = Object.fromEntries(languages.map((l) => [l.code, l.name]));
  languages = Object.fromEntries(
    languages.map((l) => [l.code, l.targets.filter((t) => t !== l.code)]),
  );
  const { source, target } = settings.language;
  const targets = Object.keys(languages).filter((code) => reaches(AUTO, code));
  const option = (code) => new Option(names[code], code);
  byId("from").append(
    ...(settings.detects ? [new Option("Detect", AUTO)] : []),
    ...sources().map(option),
  );
  byId("to").append(...targets.map(option));
  byId("from").value = source.code;
  byId("to").value = target.code;
  byId("languages").hidden = settings.pairs.length < 2;
  byId("ask").classList.toggle("with-menus", settings.pairs.length > 1);
  byId("explore").hidden = !settings.explorer;
  byId("key-label").hidden = !settings.keyRequired;
  byId("from").addEventListener("change", () => adjustMenu("to"));
  byId("to").addEventListener("change", () => adjustMenu("from"));
  byId("swap").addEventListener("click", swap);
  byId("text").addEventListener("input", count);
  byId("key").addEventListener("input", count);
  byId("text").addEventListener("keydown", (e) => {
    if (e.key === "Enter" && (e.ctrlKey || e.metaKey)) byId("ask").requestSubmit();
  });
  byId("ask").addEventListener("submit", (e) => {
    e.preventDefault();
    translate();
  });
  startFiles(settings, chosen, send);
  showPair();
  count();
}

// --- languages

const chosen = () => ({ source: byId("from").value, target: byId("to").value });
const sources = () => Object.keys(languages).filter((code) => languages[code].length);
const reaches = (source, target) =>
  (source === AUTO ? sources() : [source]).some((code) => languages[code]?.includes(target));
const pairOf = (source, target) =>
  settings.pairs.find((p) => p.source === source && p.target === target);

/** If the two menus do not form a pair, change the other one; most often the reader wanted to swap them. */
function adjustMenu(menu) {
  const { source, target } = chosen();
  if (!reaches(source, target)) {
    const codes =
      menu === "to"
        ? [previousPair.source, ...languages[source]]
        : [previousPair.target, ...sources()];
    byId(menu).value = codes.find((code) =>
      menu === "to" ? reaches(source, code) : reaches(code, target),
    );
  }
  detected = null;
  showPair();
}

/** Swap the languages and the texts: the translation becomes the text to translate. */
function swap() {
  const { source, target } = chosen();
  const newTarget = source === AUTO ? detected : source;
  if (!languages[target].length)
    return showStatus(`Nothing is translated from ${names[target]} here.`, true);
  byId("from").value = target;
  if (newTarget) byId("to").value = newTarget;
  adjustMenu("to");
  const translation = byId("translation").textContent;
  if (translation) {
    byId("translation").textContent = byId("text").value;
    byId("text").value = translation;
    byId("more").hidden = true;
    showStatus("");
  }
  count();
}

function showPair() {
  const { source, target } = chosen();
  const via = pairOf(source, target)?.via;
  previousPair = { source, target };
  byId("source-name").textContent = names[source] ?? "Text";
  byId("target-name").textContent = names[target];
  byId("text").lang = source === AUTO ? "" : source;
  byId("translation").lang = target;
  const from = source === AUTO ? "into" : `from ${names[source]} to`;
  byId("direction").textContent =
    `A Transformer translates ${from} ${names[target]}${via ? `, through ${names[via]}` : ""}.`;
  showExplorer();
}

/** The link to the explorer of the current model; of a pivot's two models it is the first. */
function showExplorer() {
  const { source, target } = chosen();
  const pair =
    pairOf(source === AUTO ? detected : source, target) ??
    settings.pairs.find((p) => p.target === target);
  const model =
    settings.pairs.length > 1
      ? `${encodeURIComponent(`${pair.source}-${pair.via ?? pair.target}`)}/`
      : "";
  const sentence = byId("text").value.trim();
  const key = byId("key").value && `?${new URLSearchParams({ api_key: byId("key").value })}`;
  byId("explore").href =
    `explore/${model}${key}${sentence && `#${new URLSearchParams({ sentence })}`}`;
  byId("explore").textContent = pair.via
    ? `Look inside the translation into ${names[pair.via]}.`
    : "Look inside a translation.";
}

function count() {
  const length = [...byId("text").value].length;
  byId("count").textContent =
    `${length.toLocaleString()} of ${settings.charLimit.toLocaleString()} characters`;
  byId("count").classList.toggle("bad", length > settings.charLimit);
  showExplorer();
}

// --- translating

async function get(path) {
  const response = await fetch(path);
  if (!response.ok) throw new Error(`The server answers ${response.status}.`);
  return response.json();
}

const post = (path, body, signal) =>
  send(path, JSON.stringify(body), signal, { "Content-Type": "application/json" });

async function send(path, body, signal, headers) {
  if (byId("key").value) headers = { ...headers, Authorization: `Bearer ${byId("key").value}` };
  const response = await fetch(path, { method: "POST", headers, body, signal });
  if (!response.ok)
    throw new Error((await response.json()).error ?? `The server answers ${response.status}.`);
  return response;
}

async function translate() {
  currentRequest?.abort();
  const request = (currentRequest = new AbortController());
  const { source, target } = chosen();
  const start = performance.now();
  showStatus("Translating …");
  byId("go").disabled = true;
  byId("more").hidden = true;
  byId("translation").textContent = "";
  try {
    const usedSource = await (byId("stream").checked ? translateStreamed : translateWhole)(
      byId("text").value,
      source,
      target,
      request.signal,
    );
    detected = source === AUTO ? usedSource : null;
    const via = pairOf(usedSource, target)?.via;
    const way = [detected && `${names[detected]} detected`, via && `through ${names[via]}`].filter(
      Boolean,
    );
    showStatus([...way, `${((performance.now() - start) / 1000).toFixed(2)} s`].join(", "));
    showExplorer();
  } catch (error) {
    if (error.name !== "AbortError") showStatus(error.message, true);
  } finally {
    if (currentRequest === request) byId("go").disabled = false;
  }
}

/** Both ways show the translation and return the source language. */
async function translateWhole(text, source, target, signal) {
  const body = { q: text, source, target, alternatives: ALTERNATIVES, doubtful: true };
  const response = await (await post("translate", body, signal)).json();
  show(response.translatedText, response.doubtful);
  byId("others").replaceChildren(
    ...response.alternatives.map((other) =>
      Object.assign(document.createElement("li"), { textContent: other, lang: target }),
    ),
  );
  byId("more").hidden = response.alternatives.length === 0;
  return response.detectedLanguage?.language ?? source;
}

async function translateStreamed(text, source, target, signal) {
  const response = await post("v1/stream", { text, source, target }, signal);
  const sentences = [];
  let usedSource = source;
  for await (const [name, event] of events(response)) {
    if (name === "error") throw new Error(event.error);
    if (name === "settled")
      sentences[event.sentence] = (sentences[event.sentence] ?? "") + event.text;
    if (name === "sentence") sentences[event.sentence] = event.text;
    if (name === "done") usedSource = event.source;
    if (name !== "done") byId("translation").textContent = sentences.join(" ");
    else show(event.translation.text, event.doubtful);
  }
  return usedSource;
}

/** Show a translation with its doubtful sentences marked; they come in the order of the text. */
function show(text, doubtful) {
  const parts = [];
  let begin = 0;
  for (const sentence of doubtful) {
    const index = text.indexOf(sentence, begin);
    if (index < 0 || !sentence) continue;
    const mark = Object.assign(document.createElement("mark"), {
      textContent: sentence,
      title: "The model is not sure of this sentence.",
    });
    parts.push(text.slice(begin, index), mark);
    begin = index + sentence.length;
  }
  byId("translation").replaceChildren(...parts, text.slice(begin));
}

function showStatus(text, bad = false) {
  byId("status").textContent = text;
  byId("status").classList.toggle("bad", bad);
}

start().catch((error) => showStatus(error.message, true));
