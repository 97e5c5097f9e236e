// Downloads the model file, or reads it from the browser's cache, straight into the WebAssembly memory.

import { Cancelled, UserError } from "./errors.js";
import { allocate } from "./weights.js";

const CACHE = "onehop-model";

/** The cache, if the browser has one: it exists only at localhost and over https. */
const cacheOf = () => globalThis.caches?.open(CACHE).catch(() => null) ?? null;

/** @param {RequestCache} cache the HTTP cache may hold a partial file, or that of an older site */
async function request(address, signal, cache = "no-cache") {
  const response = await fetch(address, { cache, signal }).catch(() => null);
  if (signal.aborted) throw new Cancelled();
  if (!response?.ok) {
    const why = response ? `status ${response.status}` : "no answer";
    throw new UserError(
      `The model cannot be fetched (${why}). Check the connection, then try again.`,
    );
  }
  return response;
}

/** Read a body into existing memory; `progress(loaded, total)` is called after each part. */
async function readInto(file, response, progress, signal) {
  const reader = response.body.getReader();
  const read = () =>
    reader.read().catch(() => {
      if (signal.aborted) throw new Cancelled();
      return { done: true, value: null }; // the connection broke
    });
  let loaded = 0;
  for (let part = await read(); !part.done; part = await read()) {
    if (loaded + part.value.length > file.length) break;
    file.set(part.value, loaded);
    loaded += part.value.length;
    progress(loaded, file.length);
  }
  if (loaded !== file.length)
    throw new UserError(`The model has ${file.length} bytes, and ${loaded} have come. Try again.`);
}

function allocateMemory(bytes) {
  if (!globalThis.WebAssembly)
    throw new UserError("This browser has no WebAssembly, which the model needs. Use a newer one.");
  try {
    return allocate(bytes);
  } catch {
    throw new UserError(
      `The browser gives no ${Math.ceil(bytes / 1e6)} MB of memory to the model. Close other tabs, then try again.`,
    );
  }
}

/** The model's description and weights. A newer model replaces the cached one. */
export async function fetchModel(base, progress, signal) {
  const site = await (await request(new URL("model.json", base), signal)).json();
  const memory = allocateMemory(site.bytes);
  progress(0, site.bytes);
  const key = new URL(`${site.file}?${site.about.hash}`, base).href;
  const cache = await cacheOf();
  const cached = await cache?.match(key);
  if (cached)
    try {
      await readInto(memory.file, cached, progress, signal);
      return { site, memory };
    } catch (error) {
      if (error instanceof Cancelled) throw error;
      await cache.delete(key); // the cached copy was cut off: the site has the whole file
    }
  const response = await request(key, signal, cache ? "no-store" : "no-cache");
  await readInto(memory.file, response, progress, signal);
  await store(cache, key, memory.file);
  return { site, memory };
}

/** A full disk is no error: the model is fetched again next time. */
async function store(cache, key, file) {
  try {
    for (const old of (await cache?.keys()) ?? [])
      if (old.url.split("?")[0] === key.split("?")[0]) await cache.delete(old);
    await cache?.put(key, new Response(file.slice()));
  } catch {}
}
