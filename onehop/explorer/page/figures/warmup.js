import { html } from "onehop/vendor/lit-html.js";
import { lines } from "onehop/chart.js";
import { toggle } from "onehop/controls.js";
import { missingMeasurement, provenance } from "onehop/frame.js";
import { mean } from "onehop/maths.js";
import { count, number, power } from "onehop/format.js";

export const id = "warmup";
export const item = 24;
export const title = "Four short trainings: with and without warm-up";
export const needs = [];

const name = (run) =>
  `${run.norm}-norm, ${run.warmup > 1 ? `warm-up ${run.warmup}` : "no warm-up"}`;

export function draw(view) {
  const data = view.measured.warmup;
  if (!data) return missingMeasurement("warmup", "the loss of short post-norm and pre-norm runs.");
  const on = (key) => view.dial(`warmup.${key}`, "yes") === "yes";
  const visibleRuns = data.runs.filter(
    (run) => on(run.norm) && on(run.warmup > 1 ? "with" : "without"),
  );
  const switches = [
    ["post", "post-norm"],
    ["pre", "pre-norm"],
    ["with", "with warm-up"],
    ["without", "without"],
  ];
  const all = data.runs.flatMap((run) => run.curve.map(([, loss]) => loss)).filter(Number.isFinite);
  const last = Math.max(...data.runs.map((run) => run.curve.at(-1)[0]));
  return html` <div class="controls">
      ${switches.map(([key, label]) => toggle({ label, on: on(key), choose: (yes) => view.setDial(`warmup.${key}`, yes ? "yes" : "no") }))}
    </div>
    ${lines({
      view,
      label: "Training loss against the step",
      x: { min: 0, max: last, label: "step" },
      y: { min: Math.min(...all) * 0.95, max: Math.max(...all) * 1.02, label: "training loss" },
      series: visibleRuns.map((run) => ({
        end: `${run.norm}, ${run.warmup > 1 ? "warm-up" : view.narrow ? "none" : "no warm-up"}`,
        name: `${name(run)}${run.diverged ? " (diverged)" : ""}`,
        concept: run.norm === "post" ? "output" : "query",
        dash: run.warmup > 1 ? null : "6 4",
        points: run.curve,
      })),
    })}
    <p class="reading">
      ${visibleRuns.map((run, i) => html`${i ? "; " : "Loss at the end: "}${name(run)} <strong>${run.diverged ? "diverged" : number(run.curve.at(-1)[1], 2)}</strong>`)}${visibleRuns.length ? "." : ""}
      ${penalty(data)}
    </p>`;
}

const TAIL = 10; // points; a single one is too noisy

/** How much higher the loss ends without warm-up: in post-norm and in pre-norm. */
export function warmupPenalty({ runs }) {
  const finalLoss = (norm, warm) =>
    mean(
      runs
        .find((run) => run.norm === norm && run.warmup > 1 === warm)
        .curve.slice(-TAIL)
        .map(([, loss]) => loss),
    );
  return ["post", "pre"].map((norm) => finalLoss(norm, false) - finalLoss(norm, true));
}

function penalty(data) {
  const [post, pre] = warmupPenalty(data);
  return html`Without warm-up the loss of the last ${TAIL} points is
    <strong>${number(post, 2)}</strong> higher in post-norm and
    <strong>${number(pre, 2)}</strong> higher in pre-norm.`;
}

/** The settings that the compared runs share. */
const scaleOf = ({ layers, d_model, steps, batch_tokens, learning_rate, data }) =>
  html`${layers[0]}+${layers[1]} layers of width ${d_model}, ${count(steps)} steps of
  ${count(batch_tokens)} tokens, rate up to ${power(learning_rate)} and down to zero on a cosine,
  ${count(data.pairs)} pairs in ${count(data.vocab_size)} pieces`;

export const caption = (view) =>
  view.measured.warmup
    ? html`Recorded runs of this project, small and short: ${scaleOf(view.measured.warmup)}. They
      differ in nothing but what the switches say. Each point is a mean over the steps before it.
      ${provenance(view.measured.warmup)}`
    : html`Post-norm is said to need a gentle start, pre-norm not.`;

export const table = (view) => ({
  columns: ["run", "last step", "last loss", "diverged"],
  rows: (view.measured.warmup?.runs ?? []).map((run) => [
    name(run),
    run.curve.at(-1)[0],
    run.curve.at(-1)[1],
    run.diverged ? "yes" : "no",
  ]),
});

export const python = () => `from onehop.explorer.content import measured

data = measured()["warmup"]
rows = []
for run in data["runs"] if data else []:
    start = f"warm-up {run['warmup']}" if run["warmup"] > 1 else "no warm-up"
    rows.append([f"{run['norm']}-norm, {start}", *run["curve"][-1], "yes" if run["diverged"] else "no"])`;
