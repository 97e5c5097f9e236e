import { html, svg } from "onehop/vendor/lit-html.js";
import { bars, folded, picker, roving } from "onehop/controls.js";
import { missingMeasurement, provenance, pythonString } from "onehop/frame.js";
import { shade } from "onehop/heatmap.js";
import { argmax, range, sum } from "onehop/maths.js";
import { Tensor, bytesOf, numbersOf } from "onehop/tensors.js";
import { count, number, percent } from "onehop/format.js";

export const id = "patches";
export const item = 26;
export const title = "Where images fit: patches as tokens";
export const needs = [];

const weightsOf = new WeakMap();

/** The weights of all recorded images, decoded once. */
function tensor(data) {
  if (!weightsOf.has(data))
    weightsOf.set(
      data,
      new Tensor(data.tensors.weights, numbersOf(bytesOf(data.blob), data.tensors.weights)),
    );
  return weightsOf.get(data);
}

/**
 * The selected image, head and token. They are the figure's own dials, because this is another model than the
 * translator.
 */
function chosen(view, data) {
  const dial = (name, fallback, length) =>
    Math.max(
      0,
      Math.min(length - 1, Math.trunc(Number(view.dial(`patches.${name}`, fallback))) || 0),
    );
  const across = data.side / data.patch;
  return {
    across,
    tokens: across * across + 1,
    image: dial("image", 0, data.images.length),
    layer: dial("layer", data.layers - 1, data.layers),
    head: dial("head", 0, data.heads),
    token: dial("token", 0, across * across + 1),
  };
}

const row = (data, { image, layer, head, token }) =>
  tensor(data).at({ image, layer, head, query: token });

const tokenName = (token, across) =>
  token === 0
    ? "gathering token"
    : `patch ${Math.ceil(token / across)}, ${((token - 1) % across) + 1}`;
const tokenPhrase = (token, across) => `${token === 0 ? "the " : ""}${tokenName(token, across)}`;
const imageLabel = (image) =>
  `${argmax(image.probabilities) === image.digit ? "a" : "misread: a"} ${image.digit}`;

/** The pixels of an image or patch as grey squares. */
const grey = (value, white) =>
  `color-mix(in srgb, var(--text) ${Math.round((100 * value) / white)}%, var(--panel))`;
const pixels = (rows, white, size) =>
  rows.flatMap((line, y) =>
    line.map(
      (value, x) =>
        svg`<rect x=${x * size} y=${y * size} width=${size + 0.05} height=${size + 0.05} fill=${grey(value, white)} />`,
    ),
  );
const patchOf = (data, image, token, across) => {
  const [top, left] = [
    Math.floor((token - 1) / across) * data.patch,
    ((token - 1) % across) * data.patch,
  ];
  return data.images[image].pixels
    .slice(top, top + data.patch)
    .map((line) => line.slice(left, left + data.patch));
};

/** The attention of the selected token in one head, drawn over the image. */
function attentionOverlay(data, state, size) {
  const weights = row(data, state);
  const top = Math.max(...weights);
  const { across, token } = state;
  const step = size / across;
  return svg`<g>${range(across * across).map((t) => svg`<rect x=${(t % across) * step} y=${Math.floor(t / across) * step} width=${step} height=${step} fill="var(--weight)" fill-opacity=${(0.85 * shade(weights[t + 1] / top)).toFixed(3)} .tip=${size > 100 ? `patch ${Math.floor(t / across) + 1}, ${(t % across) + 1}: ${number(weights[t + 1], 4)}` : null} />`)}
    ${token ? svg`<rect x=${((token - 1) % across) * step + 1} y=${Math.floor((token - 1) / across) * step + 1} width=${step - 2} height=${step - 2} fill="none" stroke="var(--query)" stroke-width=${size > 100 ? 3 : 2} />` : ""}</g>`;
}

function picture(data, state) {
  const { across, image } = state;
  const lines = range(across + 1)
    .map((i) => `M${(i * 160) / across} 0V160M0 ${(i * 160) / across}H160`)
    .join("");
  const label = `${imageLabel(data.images[image])} in ${across} by ${across} patches; shaded is where ${tokenPhrase(state.token, across)} looks`;
  return html`<div class="pair">
    <svg viewBox="0 0 160 160" role="img" aria-label="The image: ${imageLabel(data.images[image])}">
      ${pixels(data.images[image].pixels, data.white, 160 / data.side)}
      <path d=${lines} stroke="var(--rule)" stroke-width="1" />
    </svg>
    <svg viewBox="0 0 160 160" role="img" aria-label=${label}>
      ${attentionOverlay(data, state, 160)}
      <path d=${lines} stroke="var(--rule)" stroke-width="1" />
    </svg>
  </div>`;
}

/** The input sequence: the gathering token and the patches, row by row. */
function strip(view, data, state) {
  const { across, tokens, image } = state;
  const choose = (token) => view.setDial("patches.token", token);
  return html`<div
    class="tokens patches"
    role="radiogroup"
    aria-label="Token that looks"
    data-roving
  >
    ${range(tokens).map(
      (token) =>
        html`<button
          role="radio"
          type="button"
          data-index=${token}
          aria-checked=${token === state.token}
          tabindex=${token === state.token ? 0 : -1}
          aria-label=${tokenName(token, across)}
          @click=${() => choose(token)}
          @keydown=${roving(token, tokens, choose)}
        >
          ${token === 0 ? "gathers" : html`<svg viewBox="0 0 ${data.patch} ${data.patch}" aria-hidden="true">${pixels(patchOf(data, image, token, across), data.white, 1)}</svg>`}
        </button>`,
    )}
  </div>`;
}

function heads(view, data, state) {
  const turn = (layer, head) => view.setDials({ "patches.layer": layer, "patches.head": head });
  const total = data.layers * data.heads;
  const walk = (next) => turn(Math.floor(next / data.heads), next % data.heads);
  return html`<div
    class="smalls"
    style="grid-template-columns:repeat(${data.heads},minmax(0,1fr))"
    data-roving
    role="radiogroup"
    aria-label="Layer and head"
  >
    ${range(total).map((i) => {
      const [layer, head] = [Math.floor(i / data.heads), i % data.heads];
      const on = layer === state.layer && head === state.head;
      return html`<button
        type="button"
        role="radio"
        class="small"
        data-index=${i}
        aria-checked=${on}
        tabindex=${on ? 0 : -1}
        aria-label="layer ${layer + 1}, head ${head + 1}"
        @click=${() => turn(layer, head)}
        @keydown=${roving(i, total, walk)}
      >
        <svg viewBox="0 0 40 40" aria-hidden="true">
          <rect width="40" height="40" fill="var(--sunken)" />
          ${attentionOverlay(data, { ...state, layer, head }, 40)}</svg
        ><span>${layer + 1}.${head + 1}</span>
      </button>`;
    })}
  </div>`;
}

export function draw(view) {
  const data = view.measured.patches;
  if (!data)
    return missingMeasurement("patches", "images, and where a vision model looks in them.");
  const state = chosen(view, data);
  const image = data.images[state.image];
  const weights = Array.from(row(data, state));
  const read = argmax(image.probabilities);
  const top = argmax(weights);
  return html` <div class="controls">
      ${picker({ label: "Image", options: data.images.map((one, i) => [i, imageLabel(one)]), value: state.image, choose: (i) => view.setDial("patches.image", i) })}
      <span
        >${state.tokens} tokens: ${state.tokens - 1} patches of ${data.patch} × ${data.patch}
        pixels, and one that gathers the answer</span
      >
    </div>
    ${strip(view, data, state)}
    <div class="columns" style="margin-top:1.2rem">
      <div>
        <h4>
          Where ${tokenPhrase(state.token, state.across)} looks, layer ${state.layer + 1}, head
          ${state.head + 1}
        </h4>
        ${picture(data, state)}
      </div>
      <div>${folded(view, "Every layer, every head", heads(view, data, state))}</div>
      <div>
        ${folded(view, "What it reads", bars({ rows: image.probabilities.map((p, digit) => ({ name: String(digit), value: p })), concept: "output", number: (p) => percent(p), from: 0, to: 1, top: read }))}
      </div>
    </div>
    <p class="reading">
      <span class="verdict ${read === image.digit ? "yes" : "no"}"
        >${read === image.digit ? "right" : "wrong"}</span
      >
      It is a ${image.digit}, read as <strong>${read}</strong>. Most goes to
      <strong>${tokenPhrase(top, state.across)}</strong> (${percent(weights[top])}); the row adds up
      to <span class="numbers" data-patch-sum=${sum(weights)}>${number(sum(weights), 3)}</span>.
    </p>`;
}

export const caption = (view) => {
  const data = view.measured.patches;
  if (!data) return html`Nothing above the embedding knows that it sees a picture.`;
  return html`Another model than the translator, made of the same layers and trained on handwritten
  digits; these images it has never seen. Of ${count(data.of)} such it reads ${count(data.right)}
  right. One matrix turns a patch into a vector, and from there on it is a token. A photograph of
  224 × 224 in patches of 16 × 16 makes 196. Each head is shaded relative to its largest weight.
  ${provenance(data)}`;
};

export const table = (view) => {
  const data = view.measured.patches;
  const state = data && chosen(view, data);
  return {
    columns: ["token that is looked at", "weight"],
    rows: data
      ? Array.from(row(data, state), (w, token) => [tokenName(token, state.across), w])
      : [],
  };
};

export const python = (view) => {
  const data = view.measured.patches;
  const state = data ? chosen(view, data) : { image: 0, layer: 0, head: 0, token: 0, across: 1 };
  const source = data?.file ? `patches_in(${pythonString(data.file)})` : 'measured()["patches"]';
  return `from onehop.explorer.content import ${data?.file ? "patches_in" : "measured"}
from onehop.interpret.trace_file import unpack

data = ${source}
weights = unpack(data)["weights"].values[${state.image}, ${state.layer}, ${state.head}, ${state.token}] if data else []
names = ["gathering token", *(f"patch {i // ${state.across} + 1}, {i % ${state.across} + 1}" for i in range(${state.across ** 2}))]
rows = [[name, float(weight)] for name, weight in zip(names, weights)]`;
};
