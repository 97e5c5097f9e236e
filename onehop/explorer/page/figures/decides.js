import { html, nothing } from "onehop/vendor/lit-html.js";
import { tint } from "onehop/colour.js";
import { bars, folded, segments, wordPicker } from "onehop/controls.js";
import {
  TOP_HEADS,
  canMake,
  headEffects,
  headOffEdit,
  sortedByEffect,
  sweepResult,
  wordInQuestion,
} from "onehop/ablation.js";
import { traceCode } from "onehop/frame.js";
import { headGrid, headName } from "onehop/headgrid.js";
import { argmax, maxOf } from "onehop/maths.js";
import { scrollTo } from "onehop/scrolling.js";
import { number, percent, piece } from "onehop/format.js";
import { TEXTS } from "onehop/texts.js";
import { joinPieces } from "onehop/words.js";

export const id = "decides";
export const item = 21;
export const { title } = TEXTS.decides;
export const needs = ["{attention}.weights"];

const T = TEXTS.decides;
const patch = (concept, strength) =>
  html`<span class="patch"><i style="background:${tint(concept, strength)}"></i></span>`;

function grids(view, heads) {
  const most = Math.max(1e-9, maxOf(heads.map((h) => Math.abs(h.effect))));
  const byHead = new Map(heads.map((h) => [headName(h), h]));
  const [strongest] = sortedByEffect(heads);
  const effectOf = (headRef) => byHead.get(headName(headRef));
  const keys = (headRef) => view.trace.keys(headRef.role);
  const empty = { content: patch("neutral", 0), tip: null, value: null };
  const byLook = (headRef) => {
    const h = effectOf(headRef);
    if (!h) return empty;
    const words = T.look(percent(h.maxWeight, 0), piece(keys(headRef)[argmax(h.row)]));
    return {
      content: patch("weight", Math.sqrt(h.maxWeight)),
      tip: `${headName(headRef)}: ${words}`,
      label: words,
      value: h.maxWeight,
    };
  };
  const byEffect = (headRef) => {
    const h = effectOf(headRef);
    if (!h) return empty;
    const [token, p] = h.topWithout[0];
    const words = T.effect(number(h.effect, 3), piece(token), percent(p, 0));
    const strength = Math.sqrt(Math.abs(h.effect) / most);
    return {
      content: patch(h.effect < 0 ? "key" : "query", strength),
      tip: `${headName(headRef)}: ${words}`,
      label: words,
      value: h.effect,
    };
  };
  const isMarked = (headRef) => Boolean(strongest) && headName(headRef) === headName(strongest);
  const look = () =>
    html`<h4 class="gridhead">
        ${T.byLook(piece(view.trace.source.tokens[view.selection.source]))}
      </h4>
      <div data-grid="look">
        ${headGrid({ view, label: T.lookLabel, cell: byLook, isMarked })}
      </div>`;
  const effect = () =>
    html`<h4 class="gridhead" data-heading="effect">
        ${view.narrow ? T.byEffectShort : T.byEffect}
      </h4>
      <div data-grid="effect">
        ${headGrid({ view, label: T.effectLabel, cell: byEffect, isMarked })}
      </div>`;
  // A phone has room for one of them.
  const both = { look, effect };
  const one =
    view.dial("decides.grid", "effect") in both ? view.dial("decides.grid", "effect") : "effect";
  const options = Object.keys(both).map((key) => [key, T.grids[key]]);
  const choose = (key) => view.setDial("decides.grid", key);
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

/** How many heads change the first choice, in words. */
function flippingText({ isFirstChoice, flipping, heads, standsOut }) {
  if (!isFirstChoice) return T.notFirst;
  if (!flipping.length) return T.noneTurns(heads.length);
  return flipping.length === 1
    ? T.noOther(heads.length)
    : T.flipping(flipping.length, heads.length, standsOut);
}

/** On a phone, the text about the other heads is folded together with the strongest head's attention. */
const rest = (result) => html`${flippingText(result)} ${T.overlap(TOP_HEADS, result.overlap)}`;

function verdict(view) {
  const result = sweepResult(view);
  const { strongest, text, answer, standsOut, flips, before, after } = result;
  const [token, p] = strongest.topWithout[0];
  return html`<p
      class="reading"
      data-decides=${answer}
      data-strongest="${strongest.role}.${strongest.layer}.${strongest.head}"
    >
      <span class="verdict ${answer === "none" ? "no" : "yes"}">${T.answers[answer]}</span>
      ${(standsOut ? T.decides : T.strongest)(headName(strongest), text)}
      ${T.falls(percent(before), percent(after))}
      ${flips ? T.flips(piece(token), percent(p)) : T.stays(piece(token))}
      ${view.narrow ? nothing : rest(result)}
    </p>
    ${strongestHead(view, strongest, view.narrow ? html`<p class="reading">${rest(result)}</p>` : nothing)}`;
}

/** Translate without a head, and show both translations. An exported file holds its edits one at a time. */
function prove(view, edit) {
  const isLive = view.backend.kind === "live";
  view.changeEdits((edits) => (isLive ? [...new Set([...edits, edit])] : [edit]));
  scrollTo(document.getElementById("figure-breaking"));
}

/** The strongest head's attention, and a button that translates without it. */
function strongestHead(view, strongest, others) {
  const keys = view.trace.keys(strongest.role);
  const edit = headOffEdit(strongest);
  const order = [...keys.keys()].sort((a, b) => strongest.row[b] - strongest.row[a]).slice(0, 4);
  const from =
    strongest.role === "encoder"
      ? piece(view.trace.source.tokens[view.selection.source])
      : joinPieces(view.trace.target.output_tokens, wordInQuestion(view));
  const off = view.selection.edits.includes(edit);
  const look = bars({
    rows: order.map((j) => ({ name: piece(keys[j]), value: strongest.row[j] })),
    concept: "weight",
    from: 0,
    to: 1,
  });
  return html`${folded(view, T.looks(headName(strongest), from), html`${look}${others}`)}
    <div class="controls" style="margin:1rem 0 0;gap:.5rem">
      <button
        type="button"
        @click=${() => view.choose({ role: strongest.role, layer: strongest.layer, head: strongest.head })}
      >
        ${T.show}
      </button>
      ${canMake(view, edit) ? html`<button type="button" class="primary" data-proof ?disabled=${off} @click=${() => prove(view, edit)}>${T.proof}</button>` : nothing}
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

const hasStarted = ({ sweep }) => sweep.state === "running" || sweep.parts.length > 0;

export function draw(view) {
  const { sweep, trace } = view;
  const total = 2 * trace.heads * trace.layers("decoder") + trace.heads * trace.layers("encoder");
  const heads = hasStarted(view) ? headEffects(view) : [];
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
    ${sweep.state === "failed" ? html`<div class="error"><p>${sweep.error}</p></div>` : nothing}
    ${hasStarted(view) ? grids(view, heads) : nothing}
    ${sweep.state === "done" ? verdict(view) : nothing}`;
}

export const caption = () => T.caption;

export const table = (view) => ({
  columns: ["attention", "layer", "head", "effect", "largest weight", "first choice without it"],
  rows: headEffects(view).map((h) => [
    h.role,
    h.layer + 1,
    h.head + 1,
    h.effect,
    h.maxWeight,
    h.topWithout[0][0],
  ]),
});

export const python = (view) => {
  const word = wordInQuestion(view);
  if (!view.sweep.parts.length) return `${traceCode(view)}rows = []  # switch the heads off first`;
  return `from onehop.interpret.tracer import Tracer

tracer = Tracer.load(${JSON.stringify(view.trace.model.name)})
${traceCode(view)
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
