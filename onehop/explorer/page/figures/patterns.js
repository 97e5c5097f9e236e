import { html } from "onehop/vendor/lit-html.js";
import { tint } from "onehop/colour.js";
import { picker } from "onehop/controls.js";
import { provenance, unmeasured } from "onehop/frame.js";
import { ROLE_NAMES } from "onehop/tensors.js";
import { percent } from "onehop/text.js";

export const id = "patterns";
export const item = 21;
export const title = "Heads that do something one can name";
export const needs = [];

const key = (pattern) => `${pattern.name}, ${ROLE_NAMES[pattern.role]}`;
const chosen = (view, data) =>
  data.patterns.find((p) => key(p) === view.dial("patterns.name", "")) ?? data.patterns[0];

/** Percent without digits; only what always holds is 100. */
const whole = (share) => (share < 1 ? Math.min(99, Math.round(100 * share)) : 100);

/** All heads in the order of the share, as numbers of sentences. */
function ranked({ all, sentences }) {
  const heads = all.flatMap((row, layer) =>
    row.map((share, head) => ({ layer, head, times: Math.round(share * sentences) })),
  );
  return heads.sort((a, b) => b.times - a.times);
}

const called = ({ layer, head }) => `layer ${layer + 1}, head ${head + 1}`;

/** The clearest head, or all that share the first place; then the next. */
function clearest(pattern) {
  const heads = ranked(pattern);
  const first = heads.filter((h) => h.times === heads[0].times);
  if (first.length > 3)
    return html`${first.length} heads share the first place: it holds in
      <strong>${first[0].times}</strong> of ${pattern.sentences} sentences.`;
  const next = heads[first.length];
  return html`${first.length > 1 ? "Equally clear" : "The clearest"}: ${ROLE_NAMES[pattern.role]},
    ${first.map(called).join("; ")}, where it holds in <strong>${first[0].times}</strong> of
    ${pattern.sentences} sentences${next ? `; next ${called(next)} with ${next.times}` : ""}.`;
}

function grid(view, { all: rows, role }) {
  return html`<div>
    <h4>${ROLE_NAMES[role]}: layers downwards, heads across</h4>
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
                ${row.map((share, head) => html`<td class="cell" style="background:${tint("weight", share * 0.75)}"><button type="button" class="quiet" style="font:inherit;padding:0;color:var(--text)" aria-label="layer ${layer + 1}, head ${head + 1}: ${whole(share)} %" @click=${() => view.choose({ role, layer, head })}>${whole(share)}</button></td>`)}
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
    return unmeasured(
      "patterns",
      "how often each head looks at the previous token, the first, the same word, the subject, the noun.",
    );
  const pattern = chosen(view, data);
  const best = pattern.heads[0];
  return html` <div class="controls">
      ${picker({ label: "Pattern", options: data.patterns.map((p) => [key(p), key(p)]), value: key(pattern), choose: (name) => view.turn("patterns.name", name) })}
      <span>by chance: ${percent(pattern.chance)}</span>
    </div>
    ${grid(view, pattern)}
    <p class="reading">
      ${clearest(pattern)}
      <button
        type="button"
        @click=${() => view.choose({ role: best.role, layer: best.layer, head: best.head })}
      >
        Show ${called(best)}
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
