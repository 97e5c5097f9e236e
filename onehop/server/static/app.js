// The page: one form, one answer. It speaks the same API as everybody else.

const at = (id) => document.getElementById(id);
const ALTERNATIVES = 3;
let running = null; // what is being asked, to be given up when something newer is

async function start() {
  const [settings, languages] = await Promise.all([get("frontend/settings"), get("languages")]);
  const names = Object.fromEntries(languages.map((l) => [l.code, l.name]));
  const pairs = languages.flatMap((l) => l.targets.filter((t) => t !== l.code).map((t) => [l.code, t]));
  for (const [source, target] of pairs) {
    at("pair").append(new Option(`${names[source]} → ${names[target]}`, `${source} ${target}`));
  }
  if (pairs.length > 1) {
    at("pair").hidden = false;
    document.querySelector("label[for=pair]").hidden = false;
  }
  const showPair = () => {
    const [source, target] = at("pair").value.split(" ");
    at("source-name").textContent = names[source];
    at("target-name").textContent = names[target];
    at("text").lang = source;
    at("translation").lang = target;
    at("direction").textContent = `A Transformer translates from ${names[source]} to ${names[target]}.`;
  };
  const count = () => {
    const length = [...at("text").value].length;
    at("count").textContent = `${length.toLocaleString()} of ${settings.charLimit.toLocaleString()} characters`;
    at("count").classList.toggle("bad", length > settings.charLimit);
    const sentence = at("text").value.trim();
    const key = at("key").value && `?${new URLSearchParams({ api_key: at("key").value })}`;
    at("explore").href = `explore/${key}${sentence && `#${new URLSearchParams({ sentence })}`}`;
  };
  at("explore").hidden = !settings.explorer;
  at("key-label").hidden = !settings.keyRequired;
  at("pair").addEventListener("change", showPair);
  at("text").addEventListener("input", count);
  at("key").addEventListener("input", count);
  at("text").addEventListener("keydown", (e) => {
    if (e.key === "Enter" && (e.ctrlKey || e.metaKey)) at("ask").requestSubmit();
  });
  at("ask").addEventListener("submit", (e) => {
    e.preventDefault();
    translate();
  });
  showPair();
  count();
}

async function get(path) {
  const answer = await fetch(path);
  if (!answer.ok) throw new Error(`The server answers ${answer.status}.`);
  return answer.json();
}

async function post(path, body, signal) {
  const headers = { "Content-Type": "application/json" };
  if (at("key").value) headers.Authorization = `Bearer ${at("key").value}`;
  const answer = await fetch(path, { method: "POST", headers, body: JSON.stringify(body), signal });
  if (!answer.ok) throw new Error((await answer.json()).error ?? `The server answers ${answer.status}.`);
  return answer;
}

async function translate() {
  running?.abort();
  const mine = (running = new AbortController());
  const [source, target] = at("pair").value.split(" ");
  const began = performance.now();
  say("Translating …");
  at("go").disabled = true;
  at("more").hidden = true;
  at("translation").textContent = "";
  try {
    await (at("stream").checked ? byWord : atOnce)(at("text").value, source, target, mine.signal);
    say(`${((performance.now() - began) / 1000).toFixed(2)} s`);
  } catch (error) {
    if (error.name !== "AbortError") say(error.message, true);
  } finally {
    if (running === mine) at("go").disabled = false;
  }
}

async function atOnce(text, source, target, signal) {
  const body = { q: text, source, target, alternatives: ALTERNATIVES };
  const answer = await (await post("translate", body, signal)).json();
  at("translation").textContent = answer.translatedText;
  at("others").replaceChildren(
    ...answer.alternatives.map((other) => Object.assign(document.createElement("li"), { textContent: other, lang: target })),
  );
  at("more").hidden = answer.alternatives.length === 0;
}

async function byWord(text, source, target, signal) {
  const answer = await post("v1/stream", { text, source, target }, signal);
  const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
  const sentences = [];
  for (let rest = "", part = await reader.read(); !part.done; part = await reader.read()) {
    const blocks = (rest + part.value).split("\n\n");
    rest = blocks.pop();
    for (const block of blocks) {
      const [, name, data] = block.match(/^event: (\w+)\ndata: (.*)$/s);
      const event = JSON.parse(data);
      if (name === "error") throw new Error(event.error);
      if (name === "settled") sentences[event.sentence] = (sentences[event.sentence] ?? "") + event.text;
      if (name === "sentence") sentences[event.sentence] = event.text;
      at("translation").textContent = name === "done" ? event.translation.text : sentences.join(" ");
    }
  }
}

function say(text, bad = false) {
  at("status").textContent = text;
  at("status").classList.toggle("bad", bad);
}

start().catch((error) => say(error.message, true));
