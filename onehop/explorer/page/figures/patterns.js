import { html } from "onehop/vendor/lit-html.js";
import { cachedImage, tint } from "onehop/colour.js";
import { roving } from "onehop/controls.js";
import { missingMeasurement, provenance } from "onehop/frame.js";
import { ROLE_NAMES } from "onehop/tensors.js";
import { percent } from "onehop/format.js";
import { relativePosition } from "onehop/tips.js";

export const id = "patterns";
export const item = 21;
export const title = "Heads that do something one can name";
export const needs = [];

const key = (pattern) => `${pattern.name}, ${ROLE_NAMES[pattern.role]}`;
const chosen = (view, data) =>
  data.patterns.find((p) => key(p) === view.dial("patterns.name", "")) ?? data.patterns[0];

/** Percent without digits; only a share of exactly 1 is shown as 100. */
const wholePercent = (share) => (share < 1 ? Math.min(99, Math.round(100 * share)) : 100);

/** All heads with their counts of sentences, in descending order. */
function ranked({ all, sentences }) {
  const heads = all.flatMap((row, layer) =>
    row.map((share, head) => ({ layer, head, times: Math.round(share * sentences) })),
  );
  return heads.sort((a, b) => b.times - a.times);
}

const headName = ({ layer, head }) => `layer ${layer + 1}, head ${head + 1}`;

/** The best head, or all that share the first rank, and the next one. */
function clearest(pattern) {
  const heads = ranked(pattern);
  const first = heads.filter((h) => h.times === heads[0].times);
  if (first.length > 3)
    return html`${first.length} heads share the first place: it holds in
      <strong>${first[0].times}</strong> of ${pattern.sentences} sentences.`;
  const next = heads[first.length];
  return html`${first.length > 1 ? "Equally clear" : "The clearest"}: ${ROLE_NAMES[pattern.role]},
    ${first.map(headName).join("; ")}, where it holds in <strong>${first[0].times}</strong> of
    ${pattern.sentences} sentences${next ? `; next ${headName(next)} with ${next.times}` : ""}.`;
}

/** Every pattern as a small grid of all heads. */
function overview(view, { patterns }, pattern) {
  const choose = (i) => view.setDial("patterns.name", key(patterns[i]));
  const small = (p, i) => {
    const tip = (event) => {
      const [x, y] = relativePosition(event, event.target);
      const [layer, head] = [Math.floor(y * p.all.length), Math.floor(x * p.all[0].length)];
      const share = p.all[layer]?.[head];
      return share === undefined ? null : `${headName({ layer, head })}: ${wholePercent(share)}%`;
    };
    const [best] = ranked(p);
    return html`<button
      type="button"
      role="radio"
      class="small"
      data-index=${i}
      data-best=${best.times / p.sentences}
      aria-checked=${p === pattern}
      tabindex=${p === pattern ? 0 : -1}
      @click=${() => choose(i)}
      @keydown=${roving(i, patterns.length, choose)}
    >
      <img
        class="pixels"
        style="--ratio:${p.all[0].length} / ${p.all.length}"
        alt=""
        .tip=${tip}
        src=${cachedImage(`pattern ${key(p)} ${p.sentences} ${p.all}`, () => p.all, view.rgb("weight"))}
      />
      <span
        ><b>${p.name}</b>, ${ROLE_NAMES[p.role]}: at best
        ${wholePercent(best.times / p.sentences)}%</span
      >
    </button>`;
  };
  return html`<div class="smalls overview" data-roving role="radiogroup" aria-label="Pattern">
    ${patterns.map(small)}
  </div>`;
}

function grid(view, { name, all: rows, role }) {
  return html`<div>
    <h4 style="margin-top:1.2rem">${name}, ${ROLE_NAMES[role]}: layers downwards, heads across</h4>
    <div
      class="scroll"
      tabindex="0"
      role="region"
      aria-label="Share of sentences by layer and head, ${ROLE_NAMES[role]}"
    >
      <table class="matrix even">
        <thead>
          <tr>
            <td></td>
            ${rows[0].map((_, h) => html`<th scope="col">${h + 1}</th>`)}
          </tr>
        </thead>
        <tbody>
          ${rows.map(
            (row, layer) =>
              html`<tr>
                <th scope="row">${layer + 1}</th>
                ${row.map((share, head) => html`<td class="cell" style="background:${tint("weight", share * 0.75)}"><button type="button" class="quiet" style="font:inherit;width:100%;padding:0;color:var(--text)" aria-label="layer ${layer + 1}, head ${head + 1}: ${wholePercent(share)}%" @click=${() => view.choose({ role, layer, head })}>${wholePercent(share)}</button></td>`)}
              </tr>`,
          )}
        </tbody>
      </table>
    </div>
  </div>`;
}

export function draw(view) {
  const data = view.measured.patterns;
  if (!data)
    return missingMeasurement(
      "patterns",
      "how often each head looks at the previous token, the first, the same word, the subject, the noun.",
    );
  const pattern = chosen(view, data);
  const best = pattern.heads[0];
  return html` ${overview(view, data, pattern)} ${grid(view, pattern)}
    <p class="reading">
      ${clearest(pattern)} By chance it would hold for ${percent(pattern.chance)}.
      <button
        type="button"
        @click=${() => view.choose({ role: best.role, layer: best.layer, head: best.head })}
      >
        Show ${headName(best)}
      </button>
    </p>`;
}

export const caption = (view) =>
  view.measured.patterns
    ? html`Percent of sentences in which most tokens of a head look there more than anywhere else.
      ${provenance(view.measured.patterns)}`
    : html`Some heads have a habit that can be named, most have none.`;

export const table = (view) => {
  const data = view.measured.patterns;
  const rows = data
    ? chosen(view, data).heads.map((h) => [
        ROLE_NAMES[h.role],
        h.layer + 1,
        h.head + 1,
        h.share,
        h.weight,
      ])
    : [];
  return { columns: ["attention", "layer", "head", "share", "mean weight"], rows };
};

export const python = (view) => {
  const data = view.measured.patterns;
  return `from onehop.explorer.content import measured

names = {"encoder": "encoder self", "decoder": "decoder self", "cross": "cross"}
data = measured()["patterns"]
patterns = [p for p in (data["patterns"] if data else []) if [p["name"], p["role"]] == ${JSON.stringify(data ? [chosen(view, data).name, chosen(view, data).role] : [])}]
rows = [[names[h["role"]], h["layer"] + 1, h["head"] + 1, h["share"], h["weight"]] for p in patterns for h in p["heads"]]`;
};
