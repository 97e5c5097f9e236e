// The page: one form, one answer, and files. It speaks the same API as everybody else.

import { events } from "./events.js";
import { startFiles } from "./files.js";

const at = (id) => document.getElementById(id);
const ALTERNATIVES = 3;
const AUTO = "auto";
let running = null; // what is being asked, to be given up when something newer is
let settings, names, languages;
let before = {}; // the pair that was chosen before the one on show
let detected = null; // the language of the last text, where the server was to find it out

async function start() {
  [settings, languages] = await Promise.all([get("frontend/settings"), get("languages")]);
  names = Object.fromEntries(languages.map((l) => [l.code, l.name]));
  languages = Object.fromEntries(
    languages.map((l) => [l.code, l.targets.filter((t) => t !== l.code)]),
  );
  const { source, target } = settings.language;
  const targets = Object.keys(languages).filter((code) => reaches(AUTO, code));
  const option = (code) => new Option(names[code], code);
  at("from").append(
    ...(settings.detects ? [new Option("Detect", AUTO)] : []),
    ...sources().map(option),
  );
  at("to").append(...targets.map(option));
  at("from").value = source.code;
  at("to").value = target.code;
  at("languages").hidden = settings.pairs.length < 2;
  at("ask").classList.toggle("with-menus", settings.pairs.length > 1);
  at("explore").hidden = !settings.explorer;
  at("key-label").hidden = !settings.keyRequired;
  at("from").addEventListener("change", () => fit("to"));
  at("to").addEventListener("change", () => fit("from"));
  at("swap").addEventListener("click", swap);
  at("text").addEventListener("input", count);
  at("key").addEventListener("input", count);
  at("text").addEventListener("keydown", (e) => {
    if (e.key === "Enter" && (e.ctrlKey || e.metaKey)) at("ask").requestSubmit();
  });
  at("ask").addEventListener("submit", (e) => {
    e.preventDefault();
    translate();
  });
  startFiles(settings, chosen, send);
  showPair();
  count();
}

// --- languages

const chosen = () => ({ source: at("from").value, target: at("to").value });
const sources = () => Object.keys(languages).filter((code) => languages[code].length);
const reaches = (source, target) =>
  (source === AUTO ? sources() : [source]).some((code) => languages[code]?.includes(target));
const pairOf = (source, target) =>
  settings.pairs.find((p) => p.source === source && p.target === target);

/** Where the two menus no longer go together, the other one follows: most often they were to be swapped. */
function fit(other) {
  const { source, target } = chosen();
  if (!reaches(source, target)) {
    const codes =
      other === "to" ? [before.source, ...languages[source]] : [before.target, ...sources()];
    at(other).value = codes.find((code) =>
      other === "to" ? reaches(source, code) : reaches(code, target),
    );
  }
  detected = null;
  showPair();
}

/** The languages change places, and so do the texts: what stood on the right is a text to translate. */
function swap() {
  const { source, target } = chosen();
  const back = source === AUTO ? detected : source;
  if (!languages[target].length)
    return say(`Nothing is translated from ${names[target]} here.`, true);
  at("from").value = target;
  if (back) at("to").value = back;
  fit("to");
  const translation = at("translation").textContent;
  if (translation) {
    at("translation").textContent = at("text").value;
    at("text").value = translation;
    at("more").hidden = true;
    say("");
  }
  count();
}

function showPair() {
  const { source, target } = chosen();
  const via = pairOf(source, target)?.via;
  before = { source, target };
  at("source-name").textContent = names[source] ?? "Text";
  at("target-name").textContent = names[target];
  at("text").lang = source === AUTO ? "" : source;
  at("translation").lang = target;
  const from = source === AUTO ? "into" : `from ${names[source]} to`;
  at("direction").textContent =
    `A Transformer translates ${from} ${names[target]}${via ? `, through ${names[via]}` : ""}.`;
  showExplorer();
}

/** The way to the model at work; of two it is the first, which reads the text. */
function showExplorer() {
  const { source, target } = chosen();
  const pair =
    pairOf(source === AUTO ? detected : source, target) ??
    settings.pairs.find((p) => p.target === target);
  const model =
    settings.pairs.length > 1
      ? `${encodeURIComponent(`${pair.source}-${pair.via ?? pair.target}`)}/`
      : "";
  const sentence = at("text").value.trim();
  const key = at("key").value && `?${new URLSearchParams({ api_key: at("key").value })}`;
  at("explore").href =
    `explore/${model}${key}${sentence && `#${new URLSearchParams({ sentence })}`}`;
  at("explore").textContent = pair.via
    ? `Look inside the translation into ${names[pair.via]}.`
    : "Look inside a translation.";
}

function count() {
  const length = [...at("text").value].length;
  at("count").textContent =
    `${length.toLocaleString()} of ${settings.charLimit.toLocaleString()} characters`;
  at("count").classList.toggle("bad", length > settings.charLimit);
  showExplorer();
}

// --- translating

async function get(path) {
  const answer = await fetch(path);
  if (!answer.ok) throw new Error(`The server answers ${answer.status}.`);
  return answer.json();
}

const post = (path, body, signal) =>
  send(path, JSON.stringify(body), signal, { "Content-Type": "application/json" });

async function send(path, body, signal, headers) {
  if (at("key").value) headers = { ...headers, Authorization: `Bearer ${at("key").value}` };
  const answer = await fetch(path, { method: "POST", headers, body, signal });
  if (!answer.ok)
    throw new Error((await answer.json()).error ?? `The server answers ${answer.status}.`);
  return answer;
}

async function translate() {
  running?.abort();
  const mine = (running = new AbortController());
  const { source, target } = chosen();
  const began = performance.now();
  say("Translating …");
  at("go").disabled = true;
  at("more").hidden = true;
  at("translation").textContent = "";
  try {
    const used = await (at("stream").checked ? byWord : atOnce)(
      at("text").value,
      source,
      target,
      mine.signal,
    );
    detected = source === AUTO ? used : null;
    const via = pairOf(used, target)?.via;
    const way = [detected && `${names[detected]} detected`, via && `through ${names[via]}`].filter(
      Boolean,
    );
    say([...way, `${((performance.now() - began) / 1000).toFixed(2)} s`].join(", "));
    showExplorer();
  } catch (error) {
    if (error.name !== "AbortError") say(error.message, true);
  } finally {
    if (running === mine) at("go").disabled = false;
  }
}

/** Both ways of asking show the translation and give the language that it was made from. */
async function atOnce(text, source, target, signal) {
  const body = { q: text, source, target, alternatives: ALTERNATIVES, doubtful: true };
  const answer = await (await post("translate", body, signal)).json();
  show(answer.translatedText, answer.doubtful);
  at("others").replaceChildren(
    ...answer.alternatives.map((other) =>
      Object.assign(document.createElement("li"), { textContent: other, lang: target }),
    ),
  );
  at("more").hidden = answer.alternatives.length === 0;
  return answer.detectedLanguage?.language ?? source;
}

async function byWord(text, source, target, signal) {
  const answer = await post("v1/stream", { text, source, target }, signal);
  const sentences = [];
  let used = source;
  for await (const [name, event] of events(answer)) {
    if (name === "error") throw new Error(event.error);
    if (name === "settled")
      sentences[event.sentence] = (sentences[event.sentence] ?? "") + event.text;
    if (name === "sentence") sentences[event.sentence] = event.text;
    if (name === "done") used = event.source;
    if (name !== "done") at("translation").textContent = sentences.join(" ");
    else show(event.translation.text, event.doubtful);
  }
  return used;
}

/** Shows a translation, with its doubtful sentences marked; they come in the order of the text. */
function show(text, doubtful) {
  const parts = [];
  let begin = 0;
  for (const sentence of doubtful) {
    const found = text.indexOf(sentence, begin);
    if (found < 0 || !sentence) continue;
    const mark = Object.assign(document.createElement("mark"), {
      textContent: sentence,
      title: "The model is not sure of this sentence.",
    });
    parts.push(text.slice(begin, found), mark);
    begin = found + sentence.length;
  }
  at("translation").replaceChildren(...parts, text.slice(begin));
}

function say(text, bad = false) {
  at("status").textContent = text;
  at("status").classList.toggle("bad", bad);
}

start().catch((error) => say(error.message, true));
