import { html, nothing, svg } from "onehop/vendor/lit-html.js";
import { scale, tickLabel, ticks } from "onehop/chart.js";
import { bars, segments, tokenPicker } from "onehop/controls.js";
import { traceCode } from "onehop/frame.js";
import { argmax, dot, norm, range } from "onehop/maths.js";
import { pronounAndNoun } from "onehop/verdict.js";
import { clipped, number, percent, piece } from "onehop/format.js";
import { TEXTS } from "onehop/texts.js";

export const id = "embeddings";
export const item = 1;
export const title = "The sentence's pieces as points";
export const needs = [
  "{input}.embeddings",
  "{input}.scaled",
  "{input}.positioned",
  "{attention}.weights",
];

const STAGES = [
  ["embedding", "embedding"],
  ["scaled", html`times √d<sub>model</sub>`],
  ["positioned", "plus position"],
];
const TENSORS = { embedding: "embeddings", scaled: "scaled", positioned: "positioned" };

const side = (view) => (view.selection.role === "encoder" ? "source" : "target");

/** The input tokens; those of the target begin with the start token. */
const inputs = (view) =>
  side(view) === "source" ? view.trace.source.tokens : view.trace.target.input_tokens;

/**
 * The index of the cursor's word among the inputs. Target inputs are shifted by one, and the last piece is no input.
 */
const tokenIndex = (view) =>
  side(view) === "source" ? view.token : Math.min(view.token + 1, inputs(view).length - 1);

/** The start token has no neighbours. */
function neighbours(view) {
  const { neighbours: all } = view.trace.json;
  return side(view) === "source"
    ? all.source[tokenIndex(view)]
    : (all.target[tokenIndex(view) - 1] ?? []);
}

const length = (view, stage) =>
  norm(view.trace.tensor(`${side(view)}_input.${TENSORS[stage]}`).at({ token: tokenIndex(view) }));

function extent(points) {
  const [xs, ys] = [points.map((p) => p[0]), points.map((p) => p[1])];
  const wide = (values) => {
    const [low, high] = [Math.min(...values), Math.max(...values)];
    const edge = 0.08 * (high - low || 1);
    return { min: low - edge, max: high + edge };
  };
  return [wide(xs), wide(ys)];
}

/**
 * Labels that overlap neither each other nor the first point: each takes the first free position around its own
 * point.
 */
function placeLabels(labels, width, height) {
  const occupied = [];
  const isFree = (box) =>
    occupied.every(
      (b) => box.x + box.w < b.x || b.x + b.w < box.x || box.y + box.h < b.y || b.y + b.h < box.y,
    );
  return labels.map((label) => {
    const w = 6.6 * [...label.text].length + 4;
    const offsets = [
      [7, 4],
      [-w - 3, 4],
      [-w / 2, -8],
      [-w / 2, 16],
      [7, -8],
      [7, 16],
      [-w - 3, -8],
      [-w - 3, 16],
      [-w / 2, -20],
      [-w / 2, 28],
    ];
    for (const [dx, dy] of offsets) {
      const box = { x: label.x + dx, y: label.y + dy - 10, w, h: 13 };
      if (box.x < 0 || box.x + w > width || box.y < 0 || box.y + 13 > height || !isFree(box))
        continue;
      occupied.push(box, { x: labels[0].x - 5, y: labels[0].y - 5, w: 10, h: 10 });
      return { ...label, at: [box.x + 2, label.y + dy] };
    }
    return { ...label, at: null };
  });
}

/** The pieces that are the pronoun and its noun, if they are known and each is one piece. */
function knownPair({ trace, measured }) {
  const words = pronounAndNoun(trace, measured);
  if (!words || words.pronoun.length > 1 || words.noun.length > 1) return null;
  return { pronoun: words.pronoun[0], noun: words.noun[0] };
}

/** The two pieces that the verdict below the picture is about, on whichever side the cursor is. */
function pairMarks(view, stage) {
  const pair = knownPair(view);
  if (!pair || stage !== "embedding") return [];
  const { tokens } = view.trace.source;
  return [pair.pronoun, pair.noun].map((i) => ({
    text: clipped(tokens[i]),
    xy: view.trace.json.projection.source.embedding[i],
  }));
}

function picture(view, stage) {
  const projection = view.trace.json.projection;
  const points = projection[side(view)][stage];
  const near = stage === "embedding" ? neighbours(view) : [];
  const scaleUp = stage === "embedding" ? 1 : Math.sqrt(view.trace.settings.d_model);
  const cloud = projection.cloud.map(([x, y]) => [x * scaleUp, y * scaleUp]);
  const [width, height] = view.narrow ? [340, 320] : [620, 400];
  const [left, down] = [0, 1].map(
    (axis) => cloud.map((p) => p[axis]).sort((a, b) => a - b)[Math.floor(cloud.length / 2)] ?? 0,
  );
  const distances = cloud.map(([x, y]) => Math.hypot(x - left, y - down));
  const radius = distances.toSorted((a, b) => a - b)[Math.floor(0.97 * cloud.length)];
  const core = cloud.filter((_, i) => distances[i] <= radius);
  const pair = pairMarks(view, stage);
  const [xs, ys] = extent([
    ...points,
    ...pair.map((p) => p.xy),
    ...near.map((n) => n.xy),
    ...(stage === "positioned" ? projection[side(view)].scaled : []),
    ...core,
  ]);
  const across = scale(xs, 34, width - 8);
  const up = scale(ys, height - 24, 8);
  const [tokens, current] = [inputs(view), tokenIndex(view)];
  const order = [current, ...tokens.keys()].filter((t, i, all) => all.indexOf(t) === i);
  const [chosen, ...others] = order.map((i) => ({
    text: clipped(tokens[i]),
    x: across(points[i][0]),
    y: up(points[i][1]),
    i,
  }));
  const labels = placeLabels(
    [
      chosen,
      ...(side(view) === "source" ? [] : pair).map((p) => ({
        text: p.text,
        x: across(p.xy[0]),
        y: up(p.xy[1]),
        i: "pair",
      })),
      ...others,
      ...near.map((n) => ({ text: clipped(n.token), x: across(n.xy[0]), y: up(n.xy[1]), i: null })),
    ],
    width,
    height,
  );
  return html`<svg
    viewBox="0 0 ${width} ${height}"
    style="width:100%;max-width:${width}px"
    role="img"
    aria-label="${tokens.length} pieces as points in two dimensions; ${piece(tokens[current])} is chosen"
  >
    ${ticks(xs, 4).map((t) => svg`<text class="soft" x=${across(t)} y=${height - 6} text-anchor="middle">${tickLabel(t)}</text>`)}
    ${ticks(ys, 4).map((t) => svg`<text class="soft" x="28" y=${up(t) + 4} text-anchor="end">${tickLabel(t)}</text>`)}
    <path
      fill="none"
      stroke="var(--rule-strong)"
      stroke-width="2.4"
      stroke-linecap="round"
      opacity=".45"
      d=${core.map(([x, y]) => `M${across(x).toFixed(1)} ${up(y).toFixed(1)}h.01`).join("")}
    />
    ${
      stage === "positioned"
        ? points.map(([x, y], i) => {
            const [a, b] = projection[side(view)].scaled[i];
            return svg`<line x1=${across(a)} y1=${up(b)} x2=${across(x)} y2=${up(y)} stroke="var(--position)" stroke-width="1.4" />`;
          })
        : nothing
    }
    ${near.map((n) => svg`<line x1=${across(points[current][0])} y1=${up(points[current][1])} x2=${across(n.xy[0])} y2=${up(n.xy[1])} stroke="var(--rule-strong)" stroke-dasharray="2 3" /><circle cx=${across(n.xy[0])} cy=${up(n.xy[1])} r="3" fill="var(--neutral)" .tip=${`${piece(n.token)}: cosine ${number(n.cosine, 3)}`} />`)}
    ${points.map(([x, y], i) => svg`<circle cx=${across(x)} cy=${up(y)} r=${i === current ? 6 : 4} fill=${i === current ? "var(--output)" : "var(--query)"} .tip=${`${piece(tokens[i])}: ${number(x, 2)}, ${number(y, 2)}`} />`)}
    ${pair.length ? svg`<path data-pair d="M${pair.map((p) => `${across(p.xy[0])} ${up(p.xy[1])}`).join("L")}" fill="none" stroke="var(--key)" stroke-width="1.6" />` : nothing}
    ${pair.map((p) => svg`<circle cx=${across(p.xy[0])} cy=${up(p.xy[1])} r="4.5" fill="var(--key)" .tip=${p.text} />`)}
    ${labels.filter((l) => l.at).map((l) => svg`<text x=${l.at[0]} y=${l.at[1]} class=${l.i === null ? "soft" : ""} style=${l.i === "pair" ? "fill:var(--key-ink)" : ""} font-weight=${l.i === current || l.i === "pair" ? 700 : 400} font-style=${l.i === null ? "italic" : "normal"} paint-order="stroke" stroke="var(--panel)" stroke-width="3">${l.text}</text>`)}
  </svg>`;
}

const isWord = (token) => /\p{L}/u.test(token);

/** Whether the pronoun's embedding is near that of its noun. */
function nearNoun(view) {
  const pair = knownPair(view);
  if (!pair) return nothing;
  const { pronoun, noun } = pair;
  const { trace } = view;
  const { tokens } = trace.source;
  const vectors = range(tokens.length).map((token) =>
    trace.tensor("source_input.embeddings").at({ token }),
  );
  const cosine = (i) =>
    dot(vectors[pronoun], vectors[i]) / (norm(vectors[pronoun]) * norm(vectors[i]));
  const others = range(tokens.length).filter(
    (i) => isWord(tokens[i]) && tokens[i] !== tokens[pronoun] && !/^<.*>$/.test(tokens[i]),
  );
  const nearest = others[argmax(others.map(cosine))];
  return html`<p class="reading" data-noun=${cosine(noun)} data-nearest=${nearest}>
    <span class="verdict ${nearest === noun ? "yes" : "no"}"
      >${nearest === noun ? "yes" : "no"}</span
    >
    ${TEXTS.embeddings.nearNoun({
      pronoun: piece(tokens[pronoun]),
      noun: piece(tokens[noun]),
      cosine: number(cosine(noun), 2),
      nearest: nearest === noun ? null : piece(tokens[nearest]),
      largest: number(cosine(nearest), 2),
    })}
  </p>`;
}

export function draw(view) {
  const stage = view.dial("embeddings.stage", "embedding");
  const tokens = side(view) === "source" ? inputs(view) : inputs(view).slice(1);
  const near = neighbours(view);
  return html` <div class="controls">
      ${segments({ name: "embeddings-stage", label: "Which stage", options: STAGES, value: stage, choose: (s) => view.setDial("embeddings.stage", s) })}
    </div>
    ${tokenPicker({ label: "Token", tokens, value: view.selection.token, previewed: view.previewed, choose: view.chooseToken, preview: view.preview })}
    <div
      class="columns"
      style="grid-template-columns:repeat(auto-fit,minmax(min(100%,15rem),1fr));margin-top:1rem"
    >
      <div style="grid-column:span ${view.narrow ? 1 : 2}">${picture(view, stage)}</div>
      <div>
        <h4>Nearest to “<bdi>${piece(inputs(view)[tokenIndex(view)])}</bdi>” by cosine</h4>
        ${
          near.length
            ? bars({
                rows: near.map((n) => ({ name: piece(n.token), value: n.cosine })),
                concept: "query",
                from: 0,
                to: 1,
              })
            : html`<p class="reading">
                The start sign is read before any word; no piece of the text is like it.
              </p>`
        }
        <p class="reading numbers">length of this vector: ${number(length(view, stage), 2)}</p>
      </div>
    </div>
    ${nearNoun(view)}`;
}

export function caption(view) {
  const [first, second] = view.trace.json.projection.explained;
  return html`The two directions are those in which the whole embedding matrix of this model varies
  most; they hold ${percent(first + second)} of its variance, so trust the cosines more than the
  map. Grey points are other pieces of the vocabulary.`;
}

export const table = (view) => ({
  columns: ["neighbour", "cosine"],
  rows: neighbours(view).map((n) => [n.token, n.cosine]),
});

export const python = (view) => {
  const index = side(view) === "source" ? view.token : tokenIndex(view) - 1;
  return `${traceCode(view)}rows = [[n["token"], n["cosine"]] for n in ${index < 0 ? "[]" : `trace.header["neighbours"]["${side(view)}"][${index}]`}]`;
};
