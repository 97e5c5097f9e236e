// The model file, from the browser's cache or else from the site, straight into the memory that computes with it.

import { Cancelled, Trouble } from "./trouble.js";
import { room } from "./weights.js";

const CACHE = "onehop-model";

/** The cache, where the browser has one: it is missing at an address that is neither local nor https. */
const cacheOf = () => globalThis.caches?.open(CACHE).catch(() => null) ?? null;

/** @param {RequestCache} cache the browser's own cache may hold half a file, or that of an older site */
async function ask(address, signal, cache = "no-cache") {
  const answer = await fetch(address, { cache, signal }).catch(() => null);
  if (signal.aborted) throw new Cancelled();
  if (!answer?.ok) {
    const why = answer ? `status ${answer.status}` : "no answer";
    throw new Trouble(
      `The model cannot be fetched (${why}). Check the connection, then try again.`,
    );
  }
  return answer;
}

/** Read a body into bytes that are there; `progress(loaded, total)` is told now and then. */
async function readInto(file, answer, progress, signal) {
  const reader = answer.body.getReader();
  const next = () =>
    reader.read().catch(() => {
      if (signal.aborted) throw new Cancelled();
      return { done: true, value: null }; // the connection broke
    });
  let loaded = 0;
  for (let part = await next(); !part.done; part = await next()) {
    if (loaded + part.value.length > file.length) break;
    file.set(part.value, loaded);
    loaded += part.value.length;
    progress(loaded, file.length);
  }
  if (loaded !== file.length)
    throw new Trouble(`The model has ${file.length} bytes, and ${loaded} have come. Try again.`);
}

function roomFor(bytes) {
  if (!globalThis.WebAssembly)
    throw new Trouble("This browser has no WebAssembly, which the model needs. Use a newer one.");
  try {
    return room(bytes);
  } catch {
    throw new Trouble(
      `The browser gives no ${Math.ceil(bytes / 1e6)} MB of memory to the model. Close other tabs, then try again.`,
    );
  }
}

/** The model's description and its weights. A newer model takes the place of the one in the cache. */
export async function fetchModel(base, progress, signal) {
  const site = await (await ask(new URL("model.json", base), signal)).json();
  const place = roomFor(site.bytes);
  progress(0, site.bytes);
  const key = new URL(`${site.file}?${site.about.hash}`, base).href;
  const cache = await cacheOf();
  const kept = await cache?.match(key);
  if (kept)
    try {
      await readInto(place.file, kept, progress, signal);
      return { site, place };
    } catch (error) {
      if (error instanceof Cancelled) throw error;
      await cache.delete(key); // it was cut off: the site has it whole
    }
  const answer = await ask(key, signal, cache ? "no-store" : "no-cache");
  await readInto(place.file, answer, progress, signal);
  await keep(cache, key, place.file);
  return { site, place };
}

/** A full disk is no reason to stop. */
async function keep(cache, key, file) {
  try {
    for (const old of (await cache?.keys()) ?? [])
      if (old.url.split("?")[0] === key.split("?")[0]) await cache.delete(old);
    await cache?.put(key, new Response(file.slice()));
  } catch {
    // it is fetched again next time
  }
}
