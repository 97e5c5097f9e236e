// One translation with all intermediate values, as onehop.interpret.tracer computes it.

import { confidenceOf } from "./confidence.js";
import { editTap, parseEdits } from "./edits.js";
import * as fields from "./fields.js";
import { headMatrices, neurons } from "./matrices.js";
import { beamAttention, recordedSearch } from "./recordedsearch.js";
import { headsOff, maskLeak } from "./reruns.js";
import { logSoftmax, outputsOf, topK, withLoopAllowance } from "./search.js";
import { BOS, EOS, normalise } from "./tokenizer.js";
import { Transformer } from "./transformer.js";
import { UserError } from "./errors.js";

const TOP = 10;
const POSITIONS = 64;
// What is left out first if a trace is too large: values that can be recomputed, then values that few figures show.
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

function rowsOf({ shape, data }) {
  const width = shape.at(-1);
  return Array.from({ length: data.length / width }, (_, i) =>
    data.subarray(i * width, (i + 1) * width),
  );
}

function tooLarge(size, limit) {
  const megabytes = (bytes, digits) => (bytes / 2 ** 20).toFixed(digits);
  return new UserError(
    `The trace of this text takes at least ${megabytes(size, 1)} MB; the limit is ${megabytes(limit, 0)} MB. Give a shorter sentence.`,
  );
}

export class Tracer {
  #recording = null;

  /** `site` has the model's description, the search options and the embedding plane. */
  constructor(weights, tokenizer, site) {
    this.site = site;
    this.settings = site.about.settings;
    this.model = new Transformer(this.settings, weights);
    this.tokenizer = tokenizer;
    this.spaces = site.spaces.map((space) => new fields.Space(weights, space));
  }

  /** Translate a sentence and record everything. `onStep` is awaited before every step and may throw to cancel. */
  async trace(text, edits, onStep) {
    const start = performance.now();
    const parsed = parseEdits(edits);
    const ids = this.#sourceIds(text);
    const searched = await this.#search(ids, parsed, onStep);
    const searchedAt = performance.now();
    const recording = this.#record(ids, outputsOf(searched.best), parsed);
    await onStep(searched.best.ids);
    const header = this.#header(text, ids, parsed, searched);
    const numbers = await this.#analyses(ids, searched, recording, onStep);
    const { kept, left_out } = this.#fit(this.#tensors(recording, searched));
    const end = performance.now();
    const seconds = { search: (searchedAt - start) / 1000, record: (end - searchedAt) / 1000 };
    seconds.total = seconds.search + seconds.record;
    const confidence = confidenceOf(this.site.confidence, header.target, parsed);
    const own = { left_out, fast: null, confidence, seconds };
    return { ...header, ...numbers, ...own, ...fields.pack(kept) };
  }

  /** The translation under edits, with its cross-attention and token choices only. */
  async variant(text, edits, onStep) {
    const parsed = parseEdits(edits);
    const ids = this.#sourceIds(text);
    const searched = await this.#search(ids, parsed, onStep);
    const { recorder } = this.#record(ids, outputsOf(searched.best), parsed);
    const layers = fields.range(this.settings.n_decoder_layers);
    const weights = layers.map((i) => recorder.get(`decoder.layers.${i}.cross_attention.weights`));
    const cross = {
      axes: ["layer", "head", "query", "key"],
      shape: [layers.length, ...weights[0].shape.slice(1)],
      data: fields.concatenate(weights.map((w) => w.data)),
    };
    return {
      edits: parsed.map((edit) => edit.text),
      target: this.#target(searched),
      steps: outputsOf(searched.best).map((_, i) => this.#step(searched, i)),
      ...fields.pack({ cross }),
    };
  }

  /** Ablate every head in turn: yields the effect on the written pieces, one attention at a time. */
  async *heads(text, edits, onStep) {
    const parsed = parseEdits(edits);
    const ids = this.#sourceIds(text);
    const key = JSON.stringify([ids, parsed.map((edit) => edit.text)]);
    if (this.#recording?.key !== key)
      this.#record(ids, outputsOf((await this.#search(ids, parsed, onStep)).best), parsed);
    yield* headsOff(this.#recording, this.tokenizer.token, onStep);
  }

  #sourceIds(text) {
    const ids = this.tokenizer.encode(text);
    if (!ids.length)
      throw new UserError("There is nothing to trace: the text is empty. Give a sentence.");
    const { n_encoder_layers, n_heads, d_k, d_v, positions, max_length } = this.settings;
    const n = ids.length + 1;
    if (positions === "learned" && n > max_length)
      throw new UserError(
        `A sentence of ${n} tokens is longer than the ${max_length} learned positions. Split it.`,
      );
    const least = n_encoder_layers * n_heads * (n * n * 8 + n * 8 * (d_k + d_v));
    if (least > this.site.limit) throw tooLarge(least, this.site.limit);
    return ids;
  }

  /** Ids as the model reads them; most models need the end-of-sentence token. */
  #withEnd = (ids) => (this.settings.source_end === false ? ids : [...ids, EOS]);

  async #search(ids, edits, onStep) {
    const options = withLoopAllowance(this.site.options, ids);
    const { positions, max_length } = this.settings;
    const most = ids.length + options.more_than_source;
    const longest = positions === "learned" ? Math.min(most, max_length) : most;
    return recordedSearch(this.model, this.#withEnd(ids), longest, options, edits, onStep);
  }

  /** One forward pass over source and translation that records every value. */
  #record(ids, outputs, edits) {
    const recorder = new Map();
    const edit = editTap(edits, this.settings);
    const tap = (name, raw) => {
      const value = edit(name, raw);
      recorder.set(name, value);
      return value;
    };
    const inputs = [BOS, ...outputs.slice(0, -1)];
    const memory = this.model.encode(this.#withEnd(ids), tap);
    this.model.logits(this.model.decode([inputs], memory, tap), tap);
    const key = JSON.stringify([ids, edits.map((edit) => edit.text)]);
    this.#recording = { key, model: this.model, inputs, outputs, edits, memory, recorder };
    return this.#recording;
  }

  #tensors({ recorder }, searched) {
    const tensors = {};
    for (const [name, { shape, data }] of recorder)
      tensors[name] = { axes: fields.AXES[lastPart(name)], shape: shape.slice(1), data };
    tensors["beam.cross_attention"] = beamAttention(searched.attention);
    const { d_model, positions, max_length } = this.settings;
    const length = recorder.get("source_input.scaled").shape[1];
    const wanted = Math.max(POSITIONS, length);
    const rows = positions === "learned" ? Math.min(wanted, max_length) : wanted;
    const table = this.model.positions("source", rows).slice(0, rows * d_model);
    tensors.positions = { axes: ["position", "d_model"], shape: [rows, d_model], data: table };
    return tensors;
  }

  /** The tensors that fit into the limit, and the names of the others. */
  #fit(tensors) {
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
    const read = this.#withEnd(ids);
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

  /** The analyses of this translation. */
  async #analyses(ids, searched, recording, onStep) {
    const outputs = outputsOf(searched.best);
    const { recorder } = recording;
    const steps = outputs.map((_, i) => this.#step(searched, i));
    const pause = () => onStep(searched.best.ids);
    const candidates = steps.map((step) => step.top.map((choice) => choice.id));
    const inputs = fields.attentionInputs(this.settings);
    const lens = [];
    for (const layer of fields.range(this.settings.n_decoder_layers)) {
      await pause();
      lens.push(fields.logitLens(this.model, recorder, layer, candidates, this.#choice));
    }
    const sides = { source: this.#withEnd(ids), target: outputs };
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
      residual: fields.residualAdditions(recorder),
      score_variance: fields.scoreVariance(recorder),
      leak: maskLeak(recording),
    };
  }

  #choice = (id, p) => ({ id, token: this.tokenizer.token(id), p });

  /** The probabilities at one step, as the search saw them. */
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
      top: topK(p, Math.min(TOP, p.length)).map((id) => this.#choice(id, p[id])),
    };
  }

  /** The beam as a tree: what each step kept, from which parent, and what became of it. */
  #tree({ steps, path }) {
    return steps.map((step, t) => {
      const parents = new Set((steps[t + 1] ?? []).map((kept) => kept.parent));
      const fate = (kept, slot) => {
        if (kept.state !== "live" || parents.has(slot)) return kept.state;
        return t + 1 === steps.length ? "open" : "dropped";
      };
      return step.map((kept, slot) => ({
        id: kept.token,
        token: this.tokenizer.token(kept.token),
        parent: kept.parent,
        log_prob: kept.log_prob,
        score: kept.score,
        state: fate(kept, slot),
        chosen: t < path.length && path[t] === slot,
      }));
    });
  }

  /** The tokens on the PCA plane: as embeddings, scaled, and with positions. */
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
          rowsOf(recorder.get(`${side}_input.${name}`)).map((row) => space.project(row, scale)),
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

  // --- weights that figures request separately

  neurons = (stack, layer, indices) =>
    neurons(this.model, stack, layer, indices, this.tokenizer.token);
  weights = (role, layer, head) => headMatrices(this.model, role, layer, head);
}
