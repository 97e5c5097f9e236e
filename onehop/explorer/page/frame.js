// The frame around every figure: its title, table, Python code, link and picture.

import { html, nothing } from "onehop/vendor/lit-html.js";
import { isCompared, sideBySide } from "onehop/compare.js";
import { asPng, asSvg, save } from "onehop/picture.js";
import { number } from "onehop/format.js";
import { TEXTS } from "onehop/texts.js";

const T = TEXTS.frame;

const tool = (figure, name, label, act, open) =>
  html`<button
    type="button"
    class="quiet"
    data-tool=${name}
    aria-expanded=${open ?? nothing}
    aria-label="${label}: ${figure.title}"
    @click=${(event) => act(event.currentTarget)}
  >
    ${label}
  </button>`;

/** The address that reopens this figure in its current state. */
const linkTo = (id) => `${location.href.split("#")[0]}#${location.hash.slice(1)}&at=${id}`;

const figureElement = (id) => document.getElementById(`figure-${id}`);
const svgOf = (id) => new Blob([asSvg(figureElement(id))], { type: "image/svg+xml" });
const pngOf = (id) => asPng(figureElement(id));

export function figureFrame(figure, label, view) {
  const open = view.openTables.has(figure.id);
  return html`
    <div class="figure-head">
      <span class="figure-number">Figure ${label}</span>
      <h3 id="${figure.id}-name">${figure.title}</h3>
      <span class="figure-tools">
        ${tool(figure, "table", T.table, () => view.openTable(figure.id, !open), open)}
        ${tool(figure, "python", T.python, (button) => copy(button, snippet(figure, view)))}
        ${tool(figure, "link", T.link, (button) => copy(button, linkTo(figure.id)))}
        ${tool(figure, "svg", T.svg, () => save(svgOf(figure.id), `${figure.id}.svg`))}
        ${tool(figure, "png", T.png, async () => save(await pngOf(figure.id), `${figure.id}.png`))}
      </span>
    </div>
    <div class="figure-body">
      ${view.other && isCompared(figure) ? sideBySide(figure, view, guarded) : guarded(() => figure.draw(view))}
    </div>
    ${figure.caption ? html`<figcaption>${guarded(() => figure.caption(view))}</figcaption>` : nothing}
    ${open ? html`<div class="figure-table" tabindex="0" role="region" aria-label="Table: ${figure.title}">${guarded(() => tableOf(figure.table(view), figure.title))}</div>` : nothing}
  `;
}

/** The trace of a long sentence leaves out tensors, which is no bug: the figure says so. */
function guarded(draw) {
  try {
    return draw();
  } catch (error) {
    if (!(error instanceof RangeError)) throw error;
    return html`<div class="unmeasured">
      <p>${error.message} A shorter sentence keeps every tensor.</p>
    </div>`;
  }
}

const cell = (value) =>
  typeof value === "number" && !Number.isInteger(value) ? number(value, 4) : String(value ?? "–");

function tableOf({ columns, rows }, title) {
  return html`<table>
    <caption class="hidden">
      ${title}
    </caption>
    <thead>
      <tr>
        ${columns.map((name) => html`<th scope="col">${name}</th>`)}
      </tr>
    </thead>
    <tbody>
      ${rows.map(
        (row) =>
          html`<tr>
            ${row.map((value, i) => (i === 0 ? html`<th scope="row">${cell(value)}</th>` : html`<td data-value=${value ?? nothing}>${cell(value)}</td>`))}
          </tr>`,
      )}
    </tbody>
  </table>`;
}

/** A text as a Python string literal; JSON's escapes are valid in Python. */
export const pythonString = (text) =>
  JSON.stringify(text).replace(/[\u007f-\uffff]/g, (c) =>
    /[\p{L}\p{M}\p{N}\p{P}]/u.test(c) ? c : `\\u${c.charCodeAt(0).toString(16).padStart(4, "0")}`,
  );

/** The Python code of a figure; its last variable `rows` equals the table's rows. */
export function snippet(figure, view) {
  return `${figure.python(view).trim()}\n`;
}

/** The Python code that makes the current trace. */
export function traceCode(view) {
  const edits = view.trace.edits.length
    ? `, edits=[${view.trace.edits.map(pythonString).join(", ")}]`
    : "";
  return `from onehop.interpret.tracer import Tracer

trace = Tracer.load(${pythonString(view.trace.model.name)}).trace(${pythonString(view.trace.source.text)}${edits})
`;
}

async function copy(button, text) {
  const label = button.textContent;
  try {
    await navigator.clipboard.writeText(text);
    button.textContent = T.copied;
  } catch {
    button.textContent = copyByHand(text) ? T.copied : T.forbidden;
  }
  setTimeout(() => (button.textContent = label), 1500);
}

/** Pages opened from disk have no clipboard API, but the deprecated command still works. */
function copyByHand(text) {
  const textarea = document.createElement("textarea");
  textarea.value = text;
  textarea.className = "hidden";
  document.body.append(textarea);
  textarea.select();
  const copied = document.execCommand("copy");
  textarea.remove();
  return copied;
}

const OPTIONS = {
  coreference: "-m MODEL",
  patterns: "-m MODEL --source FILE",
  pruning: "-m MODEL --source FILE --reference FILE",
  lengths: "-m MODEL --source FILE --reference FILE",
  warmup: "--store STORE",
  twins: "--table3 FILE",
};

const command = (name) =>
  name === "patches"
    ? "onehop demo digits -o FOLDER"
    : `onehop paper measure ${name} ${OPTIONS[name] ?? ""}`;

/** What a figure shows if its measurement is missing. */
export function missingMeasurement(name, what) {
  return html`<div class="unmeasured" data-unmeasured=${name}>
    <p>Not measured for this model yet: ${what}</p>
    <p>This makes it: <code>${command(name)}</code></p>
  </div>`;
}

/** Which sentences a score is of: scores of two test sets cannot be compared. */
export const scoreNote = ({ set, search, sentences }) =>
  set
    ? html`Scored on
      ${sentences ? `the first ${sentences} sentences of ` : ""}<strong>${set}</strong>, ${search}
      search${/newstest/.test(set) ? "" : html`; “What it won”, the last figure of chapter 9, is of newstest2014, and the two cannot be compared`}.`
    : nothing;

const deviceOf = ({ machine }) => machine?.device ?? machine?.cpu;

export const provenance = (data) =>
  html`Measured
  ${data.date.slice(0, 10)}${data.model ? html` on ${data.model.name} (${data.model.hash.slice(0, 8)})` : nothing}${deviceOf(data) ? html`, ${deviceOf(data)}` : nothing}${data.seed === undefined ? nothing : html`, seed ${data.seed}`}.`;
