// One translation with everything that was computed on the way, as onehop.interpret.tracer gives it.

import { confidenceOf } from "./confidence.js";
import { editTap, parseAll } from "./edits.js";
import * as fields from "./fields.js";
import { headMatrices, neurons } from "./matrices.js";
import { lookedAt, watchedSearch } from "./recorded.js";
import { headsOff, leak } from "./reruns.js";
import { allowing, largest, logSoftmax, outputsOf } from "./search.js";
import { BOS, EOS, normalise } from "./tokenizer.js";
import { Transformer } from "./transformer.js";
import { Trouble } from "./trouble.js";

const TOP = 10;
const POSITIONS = 64;
// What goes first when a trace is too large: what can be computed again from what stays, then what is shown least.
const LEAVE_OUT = [
  "logits",
  "hidden",
  "concatenation",
  "masked_scores",
  "scaled_scores",
  "projection",
];
LEAVE_OUT.push("skip", "norm", "residual", "output");

const lastPart = (name) => name.slice(name.lastIndexOf(".") + 1);

/** Rows of a value's last axis. */
function rowsOf({ shape, data }) {
  const width = shape.at(-1);
  return Array.from({ length: data.length / width }, (_, i) =>
    data.subarray(i * width, (i + 1) * width),
  );
}

function tooLarge(size, limit) {
  const megabytes = (bytes, digits) => (bytes / 2 ** 20).toFixed(digits);
  return new Trouble(
    `The trace of this text takes at least ${megabytes(size, 1)} MB; the limit is ${megabytes(limit, 0)} MB. Give a shorter sentence.`,
  );
}

export class Tracer {
  #recording = null;

  /** `site` is what the page was written with: the model's description, options of the search, the plane. */
  constructor(weights, tokenizer, site) {
    this.site = site;
    this.settings = site.about.settings;
    this.model = new Transformer(this.settings, weights);
    this.tokenizer = tokenizer;
    this.spaces = site.spaces.map((space) => new fields.Space(weights, space));
  }

  /** Translate a sentence and keep everything. `each` is awaited before every step; it may throw to end it. */
  async trace(text, edits, each) {
    const began = performance.now();
    const made = parseAll(edits);
    const ids = this.#source(text);
    const searched = await this.#search(ids, made, each);
    const foundAt = performance.now();
    const recording = this.#record(ids, outputsOf(searched.best), made);
    await each(searched.best.ids);
    const header = this.#header(text, ids, made, searched);
    const numbers = await this.#numbers(ids, searched, recording, each);
    const { kept, left_out } = this.#within(this.#tensors(recording, searched));
    const done = performance.now();
    const seconds = { search: (foundAt - began) / 1000, record: (done - foundAt) / 1000 };
    seconds.total = seconds.search + seconds.record;
    const confidence = confidenceOf(this.site.confidence, header.target, made);
    const own = { left_out, fast: null, confidence, seconds };
    return { ...header, ...numbers, ...own, ...fields.pack(kept) };
  }

  /** The translation under edits, with its cross-attention and choices alone. */
  async variant(text, edits, each) {
    const made = parseAll(edits);
    const ids = this.#source(text);
    const searched = await this.#search(ids, made, each);
    const { recorder } = this.#record(ids, outputsOf(searched.best), made);
    const layers = fields.range(this.settings.n_decoder_layers);
    const weights = layers.map((i) => recorder.get(`decoder.layers.${i}.cross_attention.weights`));
    const cross = {
      axes: ["layer", "head", "query", "key"],
      shape: [layers.length, ...weights[0].shape.slice(1)],
      data: fields.joined(weights.map((w) => w.data)),
    };
    return {
      edits: made.map((edit) => edit.text),
      target: this.#target(searched),
      steps: outputsOf(searched.best).map((_, i) => this.#step(searched, i)),
      ...fields.pack({ cross }),
    };
  }

  /** Every head off in turn: what the written pieces then lose, an attention at a time. */
  async *heads(text, edits, each) {
    const made = parseAll(edits);
    const ids = this.#source(text);
    const key = JSON.stringify([ids, made.map((edit) => edit.text)]);
    if (this.#recording?.key !== key)
      this.#record(ids, outputsOf((await this.#search(ids, made, each)).best), made);
    yield* headsOff(this.#recording, this.tokenizer.token, each);
  }

  // --- its parts

  #source(text) {
    const ids = this.tokenizer.encode(text);
    if (!ids.length)
      throw new Trouble("There is nothing to trace: the text is empty. Give a sentence.");
    const { n_encoder_layers, n_heads, d_k, d_v, positions, max_length } = this.settings;
    const n = ids.length + 1;
    if (positions === "learned" && n > max_length)
      throw new Trouble(
        `A sentence of ${n} tokens is longer than the ${max_length} learned positions. Split it.`,
      );
    const least = n_encoder_layers * n_heads * (n * n * 8 + n * 8 * (d_k + d_v));
    if (least > this.site.limit) throw tooLarge(least, this.site.limit);
    return ids;
  }

  /** Ids as the model reads them: most with the end mark. */
  #read = (ids) => (this.settings.source_end === false ? ids : [...ids, EOS]);

  async #search(ids, edits, each) {
    const options = allowing(this.site.options, ids);
    const { positions, max_length } = this.settings;
    const most = ids.length + options.more_than_source;
    const longest = positions === "learned" ? Math.min(most, max_length) : most;
    return watchedSearch(this.model, this.#read(ids), longest, options, edits, each);
  }

  /** One forward pass over the source and what was written, with every quantity of it. */
  #record(ids, outputs, edits) {
    const recorder = new Map();
    const edit = editTap(edits, this.settings);
    const tap = (name, raw) => {
      const value = edit(name, raw);
      recorder.set(name, value);
      return value;
    };
    const inputs = [BOS, ...outputs.slice(0, -1)];
    const memory = this.model.encode(this.#read(ids), tap);
    this.model.logits(this.model.decode([inputs], memory, tap), tap);
    const key = JSON.stringify([ids, edits.map((edit) => edit.text)]);
    this.#recording = { key, model: this.model, inputs, outputs, edits, memory, recorder };
    return this.#recording;
  }

  #tensors({ recorder }, searched) {
    const tensors = {};
    for (const [name, { shape, data }] of recorder)
      tensors[name] = { axes: fields.AXES[lastPart(name)], shape: shape.slice(1), data };
    tensors["beam.cross_attention"] = lookedAt(searched.looked);
    const { d_model, positions, max_length } = this.settings;
    const length = recorder.get("source_input.scaled").shape[1];
    const wanted = Math.max(POSITIONS, length);
    const rows = positions === "learned" ? Math.min(wanted, max_length) : wanted;
    const table = this.model.positions("source", rows).slice(0, rows * d_model);
    tensors.positions = { axes: ["position", "d_model"], shape: [rows, d_model], data: table };
    return tensors;
  }

  /** What fits into the page's memory, and what had to be left out. */
  #within(tensors) {
    const { limit } = this.site;
    const kept = { ...tensors };
    const left_out = [];
    const size = () => Object.values(kept).reduce((sum, { data }) => sum + data.byteLength, 0);
    const why = `the trace was larger than ${limit.toLocaleString("en")} bytes`;
    for (const kind of LEAVE_OUT) {
      if (size() <= limit) break;
      for (const name of Object.keys(kept).filter((name) => lastPart(name) === kind)) {
        left_out.push({ name, bytes: kept[name].data.byteLength, why });
        delete kept[name];
      }
    }
    if (size() > limit) throw tooLarge(size(), limit);
    return { kept, left_out };
  }

  #header(text, ids, edits, searched) {
    const read = this.#read(ids);
    const { beam, alpha, penalty } = searched.options;
    return {
      format: "onehop trace",
      version: 1,
      model: this.site.about,
      source: { text: normalise(text), tokens: this.tokenizer.tokens(read), ids: read },
      target: this.#target(searched),
      engine: "JavaScript",
      compute: "float32",
      options: { beam, alpha, penalty },
      edits: edits.map((edit) => edit.text),
    };
  }

  #target({ best }) {
    const outputs = outputsOf(best);
    return {
      text: this.tokenizer.decode(best.ids),
      tokens: this.tokenizer.tokens(best.ids),
      ids: best.ids,
      input_tokens: this.tokenizer.tokens([BOS, ...outputs.slice(0, -1)]),
      output_tokens: this.tokenizer.tokens(outputs),
      finished: best.finished,
      looped: best.looped,
      score: best.score,
      log_prob: best.log_prob,
    };
  }

  /** What is counted and measured on this translation. */
  async #numbers(ids, searched, recording, each) {
    const outputs = outputsOf(searched.best);
    const { recorder } = recording;
    const steps = outputs.map((_, i) => this.#step(searched, i));
    const pause = () => each(searched.best.ids);
    const candidates = steps.map((step) => step.top.map((choice) => choice.id));
    const inputs = fields.attentionInputs(this.settings);
    const lens = [];
    for (const layer of fields.range(this.settings.n_decoder_layers)) {
      await pause();
      lens.push(fields.lensAfter(this.model, recorder, layer, candidates, this.#choice));
    }
    const sides = { source: this.#read(ids), target: outputs };
    const neighbours = {};
    for (const [i, side] of Object.keys(sides).entries()) {
      await pause();
      neighbours[side] = this.spaces[i].nearest(sides[side], this.tokenizer.token);
    }
    await pause();
    return {
      inputs,
      steps,
      lens,
      aligner: fields.aligner(this.settings, recorder),
      beam: {
        width: Math.max(...searched.steps.map((s) => s.length)),
        steps: this.#tree(searched),
      },
      neighbours,
      projection: this.#projection(recorder),
      residual: fields.additions(recorder),
      score_variance: fields.scoreVariance(recorder),
      leak: leak(recording),
    };
  }

  #choice = (id, p) => ({ id, token: this.tokenizer.token(id), p });

  /** How one token was chosen: the most probable ones, as the search saw them. */
  #step({ steps, path, logits }, position) {
    const chosen = steps[position][path[position]];
    const p = logSoftmax(logits[position][chosen.parent]).map(Math.exp);
    let [rank, entropy] = [0, 0];
    for (const x of p) {
      if (x > p[chosen.token]) rank += 1;
      if (x > 0) entropy -= x * Math.log2(x);
    }
    return {
      position,
      chosen: this.#choice(chosen.token, p[chosen.token]),
      rank,
      entropy,
      top: largest(p, Math.min(TOP, p.length)).map((id) => this.#choice(id, p[id])),
    };
  }

  /** The beam: what each step kept, from which parent, and what became of it. */
  #tree({ steps, path }) {
    return steps.map((step, t) => {
      const parents = new Set((steps[t + 1] ?? []).map((kept) => kept.parent));
      const fate = (kept, place) => {
        if (kept.state !== "live" || parents.has(place)) return kept.state;
        return t + 1 === steps.length ? "open" : "dropped";
      };
      return step.map((kept, place) => ({
        id: kept.token,
        token: this.tokenizer.token(kept.token),
        parent: kept.parent,
        log_prob: kept.log_prob,
        score: kept.score,
        state: fate(kept, place),
        chosen: t < path.length && path[t] === place,
      }));
    });
  }

  /** The tokens on a plane: embedded, scaled, with their positions added. */
  #projection(recorder) {
    const [space] = this.spaces;
    const root = Math.sqrt(this.settings.d_model);
    const stages = {
      embedding: ["embeddings", 1],
      scaled: ["scaled", root],
      positioned: ["positioned", root],
    };
    const of = (side, space) =>
      Object.fromEntries(
        Object.entries(stages).map(([stage, [name, scale]]) => [
          stage,
          rowsOf(recorder.get(`${side}_input.${name}`)).map((row) => space.place(row, scale)),
        ]),
      );
    return {
      method: "PCA of the embedding matrix",
      explained: space.explained,
      cloud: space.cloud(),
      cloud_tokens: this.tokenizer.tokens(space.cloudIds()),
      source: of("source", this.spaces[0]),
      target: of("target", this.spaces[1]),
    };
  }

  // --- asked for by themselves

  neurons = (stack, layer, places) =>
    neurons(this.model, stack, layer, places, this.tokenizer.token);
  weights = (role, layer, head) => headMatrices(this.model, role, layer, head);
}
