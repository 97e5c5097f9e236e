import { html, nothing, svg } from "onehop/vendor/lit-html.js";
import { bars, folded, indexAfterKey, slider } from "onehop/controls.js";
import { traceCode } from "onehop/frame.js";
import { frameOf, player } from "onehop/player.js";
import { CONTINUED, clipped, joinByteTokens, number, percent, piece } from "onehop/format.js";
import { TEXTS } from "onehop/texts.js";
import { barData } from "onehop/words.js";

export const id = "beam";
export const item = 15;
export const title = "The next word, and the hypotheses that lived";
export const needs = ["beam.cross_attention"];

const T = TEXTS.beam;
const STATES = {
  live: "went on",
  finished: "finished",
  dropped: "dropped",
  open: "open at the end",
  stopped: "stopped",
};
const MARKS = {
  live: "var(--query)",
  finished: "var(--value)",
  dropped: "var(--rule-strong)",
  open: "var(--query)",
  stopped: "var(--key)",
};

/** The node whose cross-attention is shown: the selected one, or the one on the translation's path. */
function chosenNode(view) {
  const { step } = view.selection;
  const nodes = view.trace.json.beam.steps[step] ?? [];
  const selected = Number(view.dial("beam.node", -1));
  return selected >= 0 && selected < nodes.length
    ? selected
    : Math.max(
        0,
        nodes.findIndex((n) => n.chosen),
      );
}

function tree(view, choose) {
  const every = view.trace.json.beam.steps;
  const frame = frameOf(view, id, every.length);
  const steps = every.slice(0, frame);
  const [column, line] = [114, 27];
  const rows = Math.max(...every.map((s) => s.length)); // the picture keeps its size while the tree grows
  const [width, height] = [column * (every.length + 1), line * rows + 44];
  const x = (t) => 8 + column * (t + 1);
  const y = (n) => 34 + line * n;
  const node = chosenNode(view);
  const keys = (t, n) => (event) => {
    const across = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
    const [step, index] = across
      ? [Math.max(0, Math.min(steps.length - 1, t + across)), n]
      : [t, indexAfterKey(event.key, n, steps[t].length)];
    if (index === undefined) return;
    event.preventDefault();
    const group = event.currentTarget.closest("svg");
    const next = Math.min(index, steps[step].length - 1);
    choose(step, next);
    requestAnimationFrame(() => group.querySelector(`[data-node="${step} ${next}"]`)?.focus());
  };
  const start = svg`<text x="8" y=${y(0) + 4}>${clipped(view.trace.target.input_tokens[0], 8)}</text>`;
  const edge = (t, n, item) => {
    const [x0, y0] = t === 0 ? [8 + 30, y(0)] : [x(t - 1) + column - 22, y(item.parent)];
    return svg`<path d="M${x0} ${y0}C${x0 + 14} ${y0} ${x(t) - 16} ${y(n)} ${x(t) - 4} ${y(n)}" fill="none" stroke=${item.chosen ? "var(--output)" : "var(--rule-strong)"} stroke-width=${item.chosen ? 3 : 1} stroke-opacity=${item.chosen ? 1 : 0.7} .tip=${`${piece(item.token)}: ${number(item.log_prob, 2)}`} />`;
  };
  const leaf = (
    t,
    n,
    item,
  ) => svg`<g role="button" tabindex=${t === view.selection.step && n === node ? 0 : -1} data-node="${t} ${n}" data-state=${item.state}
      aria-pressed=${t === view.selection.step && n === node} aria-label="Step ${t + 1}: ${piece(item.token)}, log-probability ${number(item.log_prob, 2)}, ${STATES[item.state]}"
      .tip=${`${piece(item.token)}: log-probability ${number(item.log_prob, 2)}, ${STATES[item.state]}`}
      @click=${() => choose(t, n)} @keydown=${keys(t, n)}>
    <rect class="ring" x=${x(t) - 3} y=${y(n) - 11} width=${column - 20} height="22" rx="5" stroke-width=${t === view.selection.step && n === node ? 2 : 1}
      fill=${item.chosen ? "color-mix(in srgb, var(--output) 22%, var(--panel))" : "var(--panel)"} stroke=${t === view.selection.step && n === node ? "var(--output)" : MARKS[item.state]} stroke-dasharray=${item.state === "dropped" ? "3 2" : "none"} />
    <text x=${x(t) + 4} y=${y(n) + 4} style="font-size:12.5px" font-weight=${item.chosen ? 700 : 400} class=${item.state === "dropped" ? "soft" : ""}>${clipped(item.token, 11)}</text></g>`;
  return html`<div
    class="scroll"
    tabindex="0"
    data-left=${Math.max(0, x(frame < every.length ? frame : view.selection.step) - 260)}
    role="region"
    aria-label="The beam as a tree; scroll sideways for later steps"
  >
    <svg
      viewBox="0 0 ${width} ${height}"
      style="width:${width}px;max-width:none"
      role="group"
      aria-label="Beam search, a column a step"
    >
      ${every.map((_, t) => svg`<text class="soft" x=${x(t)} y="14" font-weight=${t === view.selection.step ? 700 : 400}>step ${t + 1}</text>`)}
      ${start} ${steps.map((nodes, t) => nodes.map((item, n) => edge(t, n, item)))}
      ${steps.map((nodes, t) => nodes.map((item, n) => leaf(t, n, item)))}
    </svg>
  </div>`;
}

function beamPlayer(view) {
  const { steps } = view.trace.json.beam;
  const frame = frameOf(view, id, steps.length);
  const kept = steps[frame - 1]?.find((item) => item.chosen);
  const status = kept ? T.grown(frame, piece(kept.token)) : T.none;
  return player(view, { id, frames: steps.length, label: T.player, status });
}

/** A hypothesis's attention while it wrote this piece, averaged over the heads of the aligner's layer. */
function attentionOfNode(view) {
  const { step } = view.selection;
  const node = view.trace.json.beam.steps[step]?.[chosenNode(view)];
  if (!node) return null;
  const { layer } = view.trace.aligner;
  return {
    node,
    layer,
    weights: view.trace.tensor("beam.cross_attention").at({ step, slot: node.parent, layer }),
  };
}

/** The tokens of a hypothesis, collected from its last piece through its parents. */
function tokensOf(steps, step, index) {
  const tokens = [];
  for (let [t, n] = [step, index]; t >= 0; t--) {
    tokens.unshift(steps[t][n].token);
    n = steps[t][n].parent;
  }
  return tokens;
}

/** Every finished hypothesis, ordered by score. */
function finished(trace) {
  const { steps } = trace.json.beam;
  return steps
    .flatMap((nodes, step) =>
      nodes.flatMap((node, index) =>
        node.state === "finished"
          ? [{ step, index, node, tokens: joinByteTokens(tokensOf(steps, step, index)) }]
          : [],
      ),
    )
    .sort((a, b) => b.node.score - a.node.score);
}

function hypotheses(view, choose) {
  const all = finished(view.trace);
  if (!all.length) return html`<p class="reading">${T.unfinished}</p>`;
  const columns = view.narrow ? T.columns.slice(0, 2) : T.columns;
  return folded(
    view,
    T.finished,
    html`<div class="scroll" tabindex="0" role="region" aria-label=${T.finished}>
      <table>
        <thead>
          <tr>
            ${columns.map((name, i) => html`<th scope="col" class=${i ? "" : "words"}>${name}</th>`)}
          </tr>
        </thead>
        <tbody>
          ${all.map(
            ({ step, index, node, tokens }) =>
              html`<tr data-finished=${node.score} data-chosen=${node.chosen}>
                <td class="words">
                  <button
                    type="button"
                    class="quiet hypothesis"
                    @click=${() => choose(step, index)}
                  >
                    <bdi style=${node.chosen ? "font-weight:700" : ""}>${readable(tokens)}</bdi>
                  </button>
                </td>
                ${[number(node.score, 3), number(node.log_prob, 3), tokens.length].slice(0, columns.length - 1).map((x) => html`<td>${x}</td>`)}
              </tr>`,
          )}
        </tbody>
      </table>
    </div>`,
  );
}

/** Pieces as text with spaces, without the end-of-sentence token. */
const readable = (tokens) =>
  tokens
    .filter((token) => token !== "</s>" && token !== CONTINUED)
    .join("")
    .replaceAll("▁", " ")
    .trim() || "␣";

export function draw(view) {
  const { step } = view.selection;
  const current = view.trace.steps[step];
  const written = view.trace.target.output_tokens;
  const attention = attentionOfNode(view);
  const choose = (at, n) => {
    view.chooseWord("target", at);
    view.setDial("beam.node", n);
  };
  const shown = barData(view, view.trace.source.tokens);
  return html` <div class="controls">
      ${slider({
        label: "Step",
        min: 0,
        max: view.trace.steps.length - 1,
        value: step,
        choose: (s) => {
          view.setDial("beam.node", -1);
          view.chooseWord("target", s);
        },
        shown: (s) => `${s + 1} of ${view.trace.steps.length}`,
      })}
    </div>
    <p class="reading" style="margin:0 0 ${view.narrow ? ".3rem" : "1.2rem"}">
      Read so far:
      <bdi
        >${view.trace.target.input_tokens
          .slice(0, step + 1)
          .map(piece)
          .join(" · ")}</bdi
      >
      → written next: <strong class="c-output"><bdi>${piece(written[step])}</bdi></strong>
    </p>
    <div class="columns">
      <div>
        <h4>The ${view.narrow ? "five" : "ten"} likeliest next pieces</h4>
        ${bars({ rows: current.top.slice(0, view.narrow ? 5 : 10).map((c) => ({ name: piece(c.token), value: c.p, concept: c.id === current.chosen.id ? "output" : "neutral" })), concept: "neutral", number: (p) => percent(p), from: 0, to: 1, top: current.top.findIndex((c) => c.id === current.chosen.id) })}
        <p class="reading numbers">
          entropy ${number(current.entropy, 2)} bits · the chosen piece ranks ${current.rank + 1}
        </p>
      </div>
      ${
        attention
          ? html`<div>
              <h4>
                Where “<bdi>${piece(attention.node.token)}</bdi>” looked: the heads of
                cross-attention layer ${attention.layer + 1}, averaged
              </h4>
              ${bars({ rows: shown.names.map((name, j) => ({ name, value: shown.sumByWord(attention.weights)[j] })), concept: "weight", from: 0, to: 1, most: view.narrow ? 5 : 20 })}
              <p class="reading numbers">
                This hypothesis ${STATES[attention.node.state]}: log-probability
                ${number(attention.node.log_prob, 2)}, with length penalty
                ${number(attention.node.score, 2)}.
              </p>
            </div>`
          : nothing
      }
    </div>
    <h4 style="margin-top:1.5rem">
      The beam: ${view.trace.json.options.beam} hypotheses at a time
    </h4>
    ${beamPlayer(view)} ${tree(view, choose)}
    <ul class="legend">
      <li><i style="background:var(--output)"></i>the translation</li>
      ${["live", "finished", "dropped"].map((s) => html`<li><i style="background:${MARKS[s]}"></i>${STATES[s]}</li>`)}
    </ul>
    ${hypotheses(view, choose)}`;
}

export const caption = () =>
  html`A step reads everything written so far, shifted by one behind the start sign. The beam keeps
  the hypotheses with the largest summed log-probability; at the end they are compared by that sum
  divided by the length penalty. Click a box to see where it looked.`;

export const table = (view) => ({
  columns: ["piece", "probability"],
  rows: view.trace.steps[view.selection.step].top.map((c) => [c.token, c.p]),
});

export const python = (view) =>
  `${traceCode(view)}rows = [[c["token"], c["p"]] for c in trace.header["steps"][${view.selection.step}]["top"]]`;
