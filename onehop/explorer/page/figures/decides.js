import { html, nothing } from "onehop/vendor/lit-html.js";
import { tint } from "onehop/colour.js";
import { bars, folded, segments, wordPicker } from "onehop/controls.js";
import { COMPARED, finding, offEdit, strongestFirst, suspects, wordOf } from "onehop/findings.js";
import { opening } from "onehop/frame.js";
import { called, headGrid } from "onehop/headgrid.js";
import { argmax, largest } from "onehop/maths.js";
import { number, percent, piece } from "onehop/text.js";
import { TEXTS } from "onehop/texts.js";
import { written } from "onehop/words.js";

export const id = "decides";
export const item = 21;
export const { title } = TEXTS.decides;
export const needs = ["{attention}.weights"];

const T = TEXTS.decides;
const patch = (concept, strength) =>
  html`<span class="patch"><i style="background:${tint(concept, strength)}"></i></span>`;

function grids(view, heads) {
  const most = Math.max(1e-9, largest(heads.map((h) => Math.abs(h.effect))));
  const at = new Map(heads.map((h) => [called(h), h]));
  const [worst] = strongestFirst(heads);
  const found = (place) => at.get(called(place));
  const keys = (place) => view.trace.keys(place.role);
  const empty = { content: patch("neutral", 0), tip: null, value: null };
  const byLook = (place) => {
    const h = found(place);
    if (!h) return empty;
    const words = T.look(percent(h.sharp, 0), piece(keys(place)[argmax(h.row)]));
    return {
      content: patch("weight", Math.sqrt(h.sharp)),
      tip: `${called(place)}: ${words}`,
      label: words,
      value: h.sharp,
    };
  };
  const byEffect = (place) => {
    const h = found(place);
    if (!h) return empty;
    const [token, p] = h.instead[0];
    const words = T.effect(number(h.effect, 3), piece(token), percent(p, 0));
    const strength = Math.sqrt(Math.abs(h.effect) / most);
    return {
      content: patch(h.effect < 0 ? "key" : "query", strength),
      tip: `${called(place)}: ${words}`,
      label: words,
      value: h.effect,
    };
  };
  const marked = (place) => Boolean(worst) && called(place) === called(worst);
  const look = () =>
    html`<h4 class="gridhead">
        ${T.byLook(piece(view.trace.source.tokens[view.selection.source]))}
      </h4>
      <div data-grid="look">${headGrid({ view, label: T.lookLabel, cell: byLook, marked })}</div>`;
  const effect = () =>
    html`<h4 class="gridhead" data-heading="effect">
        ${view.narrow ? T.byEffectShort : T.byEffect}
      </h4>
      <div data-grid="effect">
        ${headGrid({ view, label: T.effectLabel, cell: byEffect, marked })}
      </div>`;
  // A phone has room for one of them.
  const both = { look, effect };
  const one =
    view.dial("decides.grid", "effect") in both ? view.dial("decides.grid", "effect") : "effect";
  const options = Object.keys(both).map((key) => [key, T.grids[key]]);
  const choose = (key) => view.turn("decides.grid", key);
  return html`${
      view.narrow
        ? html`<div class="controls" style="margin:0">
              ${segments({ name: "decides-grid", label: T.gridsLabel, options, value: one, choose })}
            </div>
            ${both[one]()}`
        : html`${look()}${effect()}`
    }
    <ul class="legend">
      <li><i style="background:var(--key)"></i>${T.less(number(most, 2))}</li>
      <li><i style="background:var(--query)"></i>${T.more}</li>
      <li>${T.ring}</li>
    </ul>`;
}

/** How many heads turn the choice, in words. */
function turned({ isFirstChoice, turning, heads, alone }) {
  if (!isFirstChoice) return T.notFirst;
  if (!turning.length) return T.noneTurns(heads.length);
  return turning.length === 1
    ? T.noOther(heads.length)
    : T.turning(turning.length, heads.length, alone);
}

/** On a phone what concerns the other heads is folded with the strongest one's look. */
const rest = (found) => html`${turned(found)} ${T.shared(COMPARED, found.shared)}`;

function verdict(view) {
  const found = finding(view);
  const { worst, text, answer, alone, turns, before, after } = found;
  const [token, p] = worst.instead[0];
  return html`<p
      class="reading"
      data-decides=${answer}
      data-strongest="${worst.role}.${worst.layer}.${worst.head}"
    >
      <span class="verdict ${answer === "none" ? "no" : "yes"}">${T.answers[answer]}</span>
      ${(alone ? T.decides : T.strongest)(called(worst), text)}
      ${T.falls(percent(before), percent(after))}
      ${turns ? T.turns(piece(token), percent(p)) : T.stays(piece(token))}
      ${view.narrow ? nothing : rest(found)}
    </p>
    ${culprit(view, worst, view.narrow ? html`<p class="reading">${rest(found)}</p>` : nothing)}`;
}

/** Where the strongest head looked, and the proof: translate again without it. */
function culprit(view, worst, others) {
  const keys = view.trace.keys(worst.role);
  const edit = offEdit(worst);
  const order = [...keys.keys()].sort((a, b) => worst.row[b] - worst.row[a]).slice(0, 4);
  const from =
    worst.role === "encoder"
      ? piece(view.trace.source.tokens[view.selection.source])
      : written(view.trace.target.output_tokens, wordOf(view));
  const off = view.selection.edits.includes(edit);
  const look = bars({
    rows: order.map((j) => ({ name: piece(keys[j]), value: worst.row[j] })),
    concept: "weight",
    number,
    from: 0,
    to: 1,
  });
  return html`${folded(view, T.looks(called(worst), from), html`${look}${others}`)}
    <div class="controls" style="margin:1rem 0 0;gap:.5rem">
      <button
        type="button"
        @click=${() => view.choose({ role: worst.role, layer: worst.layer, head: worst.head })}
      >
        ${T.show}
      </button>
      ${view.home.kind === "live" ? html`<button type="button" class="primary" data-proof ?disabled=${off} @click=${() => view.edit((edits) => [...new Set([...edits, edit])])}>${T.proof}</button>` : nothing}
    </div>`;
}

function progress({ sweep, stopSweep }) {
  return html`<div class="controls" role="status">
    <progress
      max=${sweep.total || 1}
      value=${sweep.parts.length}
      aria-label="Attentions done"
    ></progress>
    <span>${T.progress(sweep.parts.length, sweep.total || "…")}</span
    ><button type="button" data-cancel @click=${stopSweep}>${T.cancel}</button>
  </div>`;
}

const started = ({ sweep }) => sweep.state === "running" || sweep.parts.length > 0;

export function draw(view) {
  const { sweep, trace } = view;
  const total = 2 * trace.heads * trace.layers("decoder") + trace.heads * trace.layers("encoder");
  const heads = started(view) ? suspects(view) : [];
  return html` ${wordPicker(view, T.picker)}
    <div style="height:${view.narrow ? ".4rem" : "1rem"}"></div>
    ${
      sweep.state === "running"
        ? progress(view)
        : sweep.state === "done"
          ? nothing
          : html`<div class="controls">
              <button type="button" class="primary" data-start @click=${view.startSweep}>
                ${T.start(total)}
              </button>
              <span>${sweep.state === "cancelled" ? T.cancelled : T.idle}</span>
            </div>`
    }
    ${sweep.state === "failed" ? html`<div class="trouble"><p>${sweep.error}</p></div>` : nothing}
    ${started(view) ? grids(view, heads) : nothing}
    ${sweep.state === "done" ? verdict(view) : nothing}`;
}

export const caption = () => T.caption;

export const table = (view) => ({
  columns: ["attention", "layer", "head", "effect", "largest weight", "first choice without it"],
  rows: suspects(view).map((h) => [
    h.role,
    h.layer + 1,
    h.head + 1,
    h.effect,
    h.sharp,
    h.instead[0][0],
  ]),
});

export const python = (view) => {
  const word = wordOf(view);
  if (!view.sweep.parts.length) return `${opening(view)}rows = []  # switch the heads off first`;
  return `from onehop.interpret.tracer import Tracer

tracer = Tracer.load(${JSON.stringify(view.trace.model.name)})
${opening(view)
  .split("\n")
  .slice(2)
  .join("\n")
  .replace(/Tracer\.load\([^)]*\)/, "tracer")}rows = []
for part in tracer.heads_off(trace.header):
    path = ("encoder" if part.role == "encoder" else "decoder") + f".layers.{part.layer}."
    weights = trace[path + ("cross" if part.role == "cross" else "self") + "_attention.weights"]
    query = ${view.selection.source} if part.role == "encoder" else ${word[0]}
    for head, effects in enumerate(part.effect.tolist()):
        first = tracer.pieces([part.top[head][${word[0]}][0][0]])[0]
        largest = float(weights[head, query].max())
        rows.append([part.role, part.layer + 1, head + 1, sum(effects[${word[0]} : ${word.at(-1) + 1}]), largest, first])`;
};
