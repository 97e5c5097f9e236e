"""The essay, its verdicts, the tour, the glosses and the animations agree with the measurements."""

import json
import re

import numpy as np
import pytest
from explorer_page import TEXT, figure, in_sight, opened, settled
from playwright.sync_api import expect

from onehop.explorer.html import FOLDER

pytestmark = pytest.mark.slow

STOPS = 15


@pytest.fixture(scope="module")
def trace(tracer):
    return tracer.trace(TEXT)


def attentions(header):
    return list(header["inputs"])


def claim(page, name):
    return page.locator(f".ledger [data-claim={name}]")


# --- the essay


def test_the_essay_is_one_argument_of_short_sentences(page):
    """2,500 to 3,500 words with the verdicts between them, and no sentence of more than 25 words."""
    prose = page.locator(".essay p, .conclusion p")
    words = page.eval_on_selector_all(
        ".essay, .conclusion, .claims:not(.ledger)", "all => all.map(e => e.innerText).join(' ').split(/\\s+/).length"
    )
    assert 2500 <= words <= 3500
    long = [
        sentence
        for paragraph in prose.all_inner_texts()
        for sentence in re.split(r"(?<=[.?!:])\s+", re.sub(r"“[^”]*”", "x", paragraph))
        if len(sentence.split()) > 25
    ]
    assert long == []


def test_the_essay_opens_with_the_least_certain_word(page):
    tokens = page.locator(".answer .line.target button").all_inner_texts()
    step = int(page.locator(".bar select").nth(2).input_value())
    assert tokens[step].strip() in page.locator("h1").inner_text()
    assert page.locator("#introduction .essay p").first.inner_text().startswith("Why did the model write")


def test_chapters_end_with_a_conclusion_and_the_last_ones_need_the_sweep(live):
    assert live.locator(".conclusion:not(:empty)").count() >= 9
    expect(live.locator("#conclusion-chapter-9")).to_contain_text("The question is open")
    claim(live, "one").get_by_role("button").click()
    expect(live.locator("#conclusion-chapter-9")).to_contain_text(
        re.compile("No single head decides|take .* out, and the word")
    )


def test_all_prose_is_in_the_text_modules():
    for name in ("chapters.js", "essay.js", "tour.js", "claims.js"):
        code = re.sub(r"//.*|/\*.*?\*/", "", (FOLDER / name).read_text(encoding="utf-8"), flags=re.DOTALL)
        assert re.findall(r">\s*[A-Z][a-z]+ [a-z]+ [a-z]+", code) == [], name


# --- the verdicts


def test_every_claim_is_in_its_chapter_and_in_the_summary(page):
    in_chapters = page.eval_on_selector_all(".chapter .claim", "all => all.map(c => c.dataset.claim)")
    in_ledger = page.eval_on_selector_all(".ledger .claim", "all => all.map(c => c.dataset.claim)")
    assert sorted(in_chapters) == sorted(in_ledger)
    assert len(in_ledger) == len(set(in_ledger)) == 17
    answers = page.eval_on_selector_all(".ledger .claim", "all => all.map(c => c.dataset.answer)")
    assert set(answers) <= {"yes", "no", "partly", "open", "unmeasured"}
    said = page.locator("[data-count]").inner_text()
    counts = [answers.count(answer) for answer in ("yes", "partly", "no")]
    assert [int(n) for n in re.findall(r"\d+", said)] == [
        17,
        *counts,
        *([17 - sum(counts)] if sum(counts) < 17 else []),
    ]


def test_the_summary_of_the_claims_agrees_in_number(page):
    said = page.evaluate(
        "async () => { const { CLAIMS: { count } } = await import('onehop/texts/claims.js');"
        " return [count(15, 1, 1, 0), count(1, 0, 2, 1), count(2, 2, 2, 2)]; }"
    )
    assert said == [
        "Of 17 claims 15 hold, 1 holds in part, and 1 does not.",
        "Of 4 claims 1 holds, 0 hold in part, and 2 do not. 1 is open.",
        "Of 8 claims 2 hold, 2 hold in part, and 2 do not. 2 are open.",
    ]


def test_the_claim_about_the_root_is_computed_from_the_recorded_scores(page, trace):
    scaled, unscaled = [], []
    for path in attentions(trace.header):
        scores, weights = (trace[f"{path}.{name}"].astype(float) for name in ("scores", "weights"))
        for head, rows in enumerate(scores):
            for query, row in enumerate(rows):
                seen = row[: query + 1] if path.startswith("decoder") and "self" in path else row
                powers = np.exp(seen - seen.max())
                unscaled.append((powers / powers.sum()).max())
                scaled.append(weights[head, query].max())
    told = claim(page, "root").inner_text()
    assert f"{100 * np.mean(scaled):.0f}% on average" in told
    assert f"it would be {100 * np.mean(unscaled):.0f}%" in told


def test_the_claim_about_the_blend_compares_outputs_with_first_values(page, trace):
    alike = []
    for path in attentions(trace.header):
        weights, values, outputs = (trace[f"{path}.{name}"].astype(float) for name in ("weights", "v", "head_outputs"))
        for head in range(len(weights)):
            for row, output in zip(weights[head], outputs[head], strict=True):
                value = values[head, row.argmax()]
                alike.append(value @ output / (np.linalg.norm(value) * np.linalg.norm(output)))
    share = np.mean(np.array(alike) > 0.9)
    assert f"In {100 * share:.0f}% of all rows" in claim(page, "blend").inner_text()


def test_the_claim_about_corrections_counts_what_the_trace_says(page, trace):
    smaller = [a < s for r in trace.header["residual"] for a, s in zip(r["added"], r["stream"], strict=True)]
    assert f"In {100 * np.mean(smaller):.0f}% of {len(smaller)} cases" in claim(page, "correction").inner_text()


def test_the_claim_about_one_head_is_the_sweeps_own_verdict(page):
    decided = figure(page, "decides").locator("[data-decides]").get_attribute("data-decides")
    answer = {"one": "yes", "several": "partly", "none": "no"}[decided]
    expect(claim(page, "one")).to_have_attribute("data-answer", answer)


def test_the_claim_about_word_order_is_measured_when_the_reader_asks(live, tracer):
    expect(claim(live, "order")).to_have_attribute("data-answer", "unmeasured")
    claim(live, "order").get_by_role("button").click()
    expect(claim(live, "order")).not_to_have_attribute("data-answer", "unmeasured")
    expect(claim(live, "order")).not_to_contain_text("translating")
    changed = tracer.variant(TEXT, ["positions=off"])["target"]["text"] != tracer.trace(TEXT).text
    expect(claim(live, "order")).to_have_attribute("data-answer", "yes" if changed else "no")


def test_a_look_at_the_first_token_or_the_end_mark_is_no_job(page, measured):
    """The claim about jobs counts the heads that follow another pattern, and the resting ones apart."""

    def following(patterns):
        return {
            (p["role"], layer, head)
            for p in patterns
            for layer, shares in enumerate(p["all"])
            for head, share in enumerate(shares)
            if share >= 0.8
        }

    patterns = json.loads((measured / "patterns.json").read_text(encoding="utf-8"))["patterns"]
    busy = following([p for p in patterns if p["name"] not in ("first token", "end mark")])
    resting = following(patterns) - busy
    heads = sum(sum(map(len, p["all"])) for p in {p["role"]: p for p in patterns}.values())
    told = claim(page, "jobs")
    expect(told).to_contain_text(f"{len(busy)} of {heads} self-attention heads")
    expect(told).to_contain_text(f"Another {len(resting)} only look")
    answer = "yes" if len(busy) > heads / 2 else "partly" if len(busy) > heads / 4 else "no"
    expect(told).to_have_attribute("data-answer", answer)


def test_a_claim_without_measurement_has_no_verdict(page):
    """Without its measurement a claim has no verdict."""
    missing = page.evaluate(
        """async () => {
            const { judgeClaim } = await import("onehop/claims.js");
            const view = { ...window.onehop.view(), measured: {} };
            return ["distance", "cost", "jobs", "coreference", "spare", "lengths", "warmup"]
                .filter((name) => judgeClaim(view, name) !== null);
        }"""
    )
    assert missing == []


# --- the gloss


def test_a_gloss_is_the_word_that_the_cross_attention_looked_at(page, trace):
    """Every head is counted by the square of how well it aligns, over the pieces of a word."""
    share = np.array(trace.header["aligner"]["all"])
    looks = [trace[f"decoder.layers.{layer}.cross_attention.weights"].astype(float) for layer in range(len(share))]
    looked = sum(share[i, h] ** 2 * looks[i][h] for i in range(share.shape[0]) for h in range(share.shape[1]))
    words = {"the": [0], "old": [1], "house": [2], "saw": [4, 5, 6], "it": [7]}
    tokens = page.evaluate("window.onehop.view().trace.target.output_tokens")  # bytes are joined to characters
    control = {i for i, token in enumerate(tokens) if re.fullmatch("<.*>", token)}
    groups = []
    for i, token in enumerate(tokens):
        if token.startswith("▁") or token == "</s>" or not groups:
            groups.append([])
        groups[-1].append(i)
    looks = []  # of each group: the word that it looks at most, and that word's share
    for group in groups:
        own = [i for i in group if i not in control and re.search(r"[^\W_]", tokens[i])]
        sums = {word: looked[np.ix_(own, places)].sum() for word, places in words.items()} if own else {}
        best = max(sums, key=sums.get, default="")
        looks.append((best, sums[best] / sum(sums.values()) if own else 0))
    wanted = [
        word if not word or share >= 0.5 or (share >= 0.25 and share == max(s for w, s in looks if w == word)) else "·"
        for word, share in looks
    ]
    assert page.eval_on_selector_all(".answer [data-gloss]", "all => all.map(g => g.dataset.gloss)") == wanted


GLOSS = """async ([tokens, language]) => {
    const { alignedGlosses } = await import("onehop/gloss.js");
    const weight = (i, j) => (i === j ? 1 : 0);
    return alignedGlosses(tokens, ["▁it", "'", "s", "▁cold", "."], weight, language).map((g) => g.gloss);
}"""


def test_glosses_name_a_pronouns_gender_and_group_the_pieces_of_a_word(page):
    assert page.evaluate(GLOSS, [["▁sie", "x", "y", "▁kalt", "."], "de"]) == ["it's", "cold"]
    assert page.evaluate(GLOSS, [["▁sie", "▁ist"], "de"]) == ["it's (fem.)", "it's"]
    assert page.evaluate(GLOSS, [["▁a", "▁b", "▁c", "▁d", "▁e"], "de"])[-1] == "·"  # looks at the full stop alone
    assert page.evaluate(GLOSS, [["▁il"], "fr"]) == ["it's (masc.)"]
    assert page.evaluate(GLOSS, [["▁er"], "fr"]) == ["it's"]


def test_a_word_that_looks_where_another_looks_more_has_no_gloss(page):
    """The article of “die Straße” looks at “didn't” with 0.41, but “nicht” does so with 0.53."""
    found = page.evaluate("""async () => {
        const { alignedGlosses } = await import("onehop/gloss.js");
        const weights = [[0.41, 0.35, 0.24], [0.53, 0.27, 0.2], [0.3, 0.45, 0.25]];
        return alignedGlosses(["▁die", "▁nicht", "▁war"], ["▁didn't", "▁was", "▁the"], (i, j) => weights[i][j], "de")
            .map((g) => g.gloss);
    }""")
    assert found == ["·", "didn't", "was"]


def test_an_edited_translation_has_glosses_and_a_reason(fresh):
    """The first word is replaced, because the tiny model writes the same under every edit."""
    reason, glosses, marked = fresh.evaluate(
        """async () => {
            const { draw } = await import("onehop/figures/breaking.js");
            const { render } = await import("onehop/vendor/lit-html.js");
            const view = window.onehop.view();
            const found = await view.backend.variant(view.base.source.text, ["positions=off"]);
            const [, ...rest] = found.target.output_tokens;
            const text = `anders ${found.target.text}`;
            const target = { ...found.target, text, output_tokens: ["▁anders", ...rest] };
            const resource = () => ({ value: { ...found, target } });
            const place = document.createElement("div");
            const selection = { ...view.selection, edits: ["positions=off"] };
            render(draw({ ...view, selection, resource }), place);
            const inside = (selector) => place.querySelector(`[data-variant] ${selector}`);
            return [place.querySelector("[data-why='positions=off']").textContent,
                    inside("[data-gloss]").dataset.gloss, inside("mark").textContent];
        }"""
    )
    assert "bag of words" in reason
    assert glosses in ("the", "old", "house", "saw", "it", "·")
    assert "anders" in marked


def test_every_offered_edit_has_a_reason(page, explorer):
    reasons = page.evaluate("async () => Object.keys((await import('onehop/texts.js')).TEXTS.breaking.why)")
    for edit in explorer.edits():
        assert edit.split("@")[0] in reasons or edit.split("=")[0] in reasons, edit


# --- the tour


def stop(page):
    return page.locator("#tour .panel")


def test_the_keyboard_alone_completes_the_tour(live):
    """Each stop has a selection, a text and its own figure."""
    live.keyboard.press("t")
    seen = []
    for number in range(1, STOPS + 1):
        expect(stop(live)).to_have_attribute("data-stop", str(number))
        expect(live.locator("[data-here]")).to_have_count(1)
        expect(stop(live)).not_to_contain_text("attentions are done")
        if number == 10:  # the head that was found stands above the panel
            ringed = live.locator("#figure-decides [data-grid=effect] .marked")
            expect(ringed).to_be_in_viewport()
            live.wait_for_function(  # the page scrolls there when the sweep has ended
                """() => {
                    const head = document.querySelector("#figure-decides [data-grid=effect] .marked");
                    const panel = document.querySelector("#tour .panel");
                    return head.getBoundingClientRect().top < panel.getBoundingClientRect().top;
                }"""
            )
        seen.append(live.locator("[data-here]").get_attribute("id"))
        assert len(stop(live).locator("p").nth(1).inner_text().split()) > 8
        live.keyboard.press("ArrowRight")
    assert len(set(seen)) == STOPS
    assert f"tour.stop={STOPS}" in live.evaluate("location.hash")
    live.keyboard.press("ArrowLeft")
    expect(stop(live)).to_have_attribute("data-stop", str(STOPS - 1))
    live.keyboard.press("Escape")
    expect(stop(live)).to_have_count(0)
    assert "tour" not in live.evaluate("location.hash")


def test_a_stops_text_and_mark_change_in_the_same_frame(fresh):
    """Otherwise a busy machine would show the old stop's mark beside the new text."""
    fresh.keyboard.press("t")
    expect(stop(fresh)).to_have_attribute("data-stop", "1")
    seen = fresh.evaluate(
        """() => {
            const here = () => [...document.querySelectorAll("[data-here]")].map((e) => e.id);
            document.querySelector("[data-tour=next]").click();
            const next = [document.querySelector("#tour .panel").dataset.stop, ...here()];
            document.querySelector("[data-tour=leave]").click();
            const frame = () => new Promise((done) => requestAnimationFrame(() => done(null)));
            return frame().then(frame).then(() => [next, here()]);
        }"""
    )
    assert seen == [["2", "figure-paths"], []]


def test_the_proof_switches_off_the_strongest_head(browser, address):
    """A link to the stop runs the sweep first, then translates without the head."""
    with opened(browser, f"{address}#tour.stop=13") as page:
        expect(page.locator(".bar .edited")).to_have_attribute("data-edits", re.compile(r"head=off@\w+\.\d\.\d"))
        edit = page.locator(".bar .edited").get_attribute("data-edits").removeprefix("head=off@")
        page.keyboard.press("Escape")
        expect(page.locator(".bar .edited")).to_have_count(0)
        settled(page)
        strongest = figure(page, "decides").locator("[data-strongest]").get_attribute("data-strongest")
        assert edit == strongest


def test_the_tour_selects_the_strongest_head_and_returns_to_the_best_aligning_one(fresh, trace):
    settled(fresh)
    strongest = figure(fresh, "decides").locator("[data-strongest]").get_attribute("data-strongest")
    fresh.locator("[data-begin-tour]").click()
    for _ in range(10):
        fresh.locator("[data-tour=next]").click()
    expect(stop(fresh)).to_have_attribute("data-stop", "11")
    role, layer, head = strongest.split(".")
    expect(fresh.locator(f".bar input[value={role}]")).to_be_checked()
    expect(fresh.locator(".bar select").nth(0)).to_have_value(layer)
    expect(fresh.locator(".bar select").nth(1)).to_have_value(head)
    fresh.locator("[data-tour=next]").click()
    aligner = trace.header["aligner"]
    expect(fresh.locator(".bar select").nth(0)).to_have_value(str(aligner["layer"]))
    expect(fresh.locator(".bar select").nth(1)).to_have_value(str(aligner["head"]))


def test_t_typed_into_the_sentence_is_a_letter(live):
    live.locator("input[name=sentence]").press("t")
    expect(stop(live)).to_have_count(0)


# --- motion

PLAYED = ("scores", "divisor", "blend", "mask", "beam")


@pytest.mark.parametrize("name", PLAYED)
def test_an_animation_is_stepped_by_key_and_ends_with_the_whole_figure(fresh, name):
    place = in_sight(fresh, name)
    whole = place.locator(".figure-body").inner_text()
    player = place.locator("[data-player]")
    frames = int(player.get_attribute("data-frames"))
    place.locator("[data-step='1']").focus()
    fresh.keyboard.press("ArrowRight")
    expect(player).to_have_attribute("data-frame", "0")
    fresh.keyboard.press("ArrowRight")
    expect(player).to_have_attribute("data-frame", "1")
    fresh.keyboard.press("ArrowLeft")
    expect(player).to_have_attribute("data-frame", "0")
    for frame in range(1, frames + 1):
        fresh.keyboard.press("ArrowRight")
        expect(player).to_have_attribute("data-frame", str(frame))
    settled(fresh)
    assert place.locator(".figure-body").inner_text() == whole


def test_each_frame_shows_a_part_of_the_real_numbers(browser, file, trace):
    aligner = trace.header["aligner"]
    path = f"decoder.layers.{aligner['layer']}.cross_attention"
    state = "step=2&scores.frame=3&blend.frame=2&mask.frame=2&beam.frame=2&divisor.frame=2&divisor.place=0"
    with opened(browser, f"{file.as_uri()}#{state}", offline=True) as page:
        met = page.eval_on_selector_all("#figure-scores .track", "all => all.map(t => Number(t.dataset.value))")
        scores = trace[f"{path}.scores"][aligner["head"], 1].tolist()
        assert met[:3] == pytest.approx(scores[:3], rel=1e-4)
        assert np.isnan(met[3:]).all()
        assert page.locator("#figure-blend [data-added=true]").count() == 2
        powers = page.eval_on_selector_all("#figure-divisor .track", "all => all.map(t => Number(t.dataset.value))")
        scaled = np.array(scores) / np.sqrt(6)
        assert powers == pytest.approx(np.exp(scaled - scaled.max()).tolist(), rel=1e-3, abs=1e-6)
        steps = {
            int(n.split()[0]) for n in page.eval_on_selector_all("[data-node]", "all => all.map(n => n.dataset.node)")
        }
        assert steps == {0, 1}
        future = float(page.locator("[data-future]").get_attribute("data-future"))
        assert future > 0


def test_play_plays_to_the_end_and_stop_stops(browser, file):
    with opened(browser, file.as_uri(), offline=True, reduced_motion="no-preference") as page:
        player = figure(page, "divisor").locator("[data-player]")
        player.locator("[data-play]").click()
        expect(player.locator("[data-play]")).to_have_attribute("aria-pressed", "true")
        player.locator("[data-play]").click()
        expect(player.locator("[data-play]")).to_have_attribute("aria-pressed", "false")
        player.locator("[data-play]").press(" ")
        expect(player).to_have_attribute("data-frame", player.get_attribute("data-frames"))


def test_reduced_motion_disables_playing_and_space_steps(browser, file):
    with opened(browser, file.as_uri(), offline=True, reduced_motion="reduce") as page:
        expect(page.locator("[data-play]")).to_have_count(0)
        player = figure(page, "divisor").locator("[data-player]")
        player.locator("[data-step='1']").focus()
        player.locator("[data-step='1']").dispatch_event("keydown", {"key": " ", "bubbles": True})
        expect(player).to_have_attribute("data-frame", "0")


def test_the_tour_has_a_play_button(browser, file):
    with opened(browser, file.as_uri(), offline=True, reduced_motion="reduce") as page:
        page.keyboard.press("t")
        expect(page.locator("[data-tour=play]")).to_have_count(0)
        for _ in range(3):
            page.locator("[data-tour=next]").click()
        page.locator("[data-tour=play]").click()
        expect(figure(page, "scores").locator("[data-player]")).to_have_attribute("data-frame", "0")


def test_the_last_stop_of_an_exported_page_names_the_command(browser, file):
    with opened(browser, f"{file.as_uri()}#tour.stop={STOPS}", offline=True, reduced_motion="reduce") as page:
        expect(stop(page)).to_contain_text("onehop explore opens a sentence of your own")


def test_a_dial_redraws_its_figure_only(fresh):
    fresh.evaluate(
        "window.redrawn = 0; new MutationObserver(() => window.redrawn++).observe("
        "document.querySelector('#figure-scores'), { subtree: true, childList: true, attributes: true,"
        " characterData: true })"
    )
    paths = figure(fresh, "paths").locator("input[type=range]")
    paths.fill("20")
    settled(fresh)
    expect(figure(fresh, "paths").locator("[data-steps]")).to_have_attribute("data-steps", "19")
    assert fresh.evaluate("window.redrawn") == 0


def test_the_memory_of_a_sentence_is_one_vector_or_one_per_word(fresh):
    paths = figure(fresh, "paths")
    expect(paths.locator("[data-vectors]")).to_have_attribute("data-vectors", "1")
    expect(paths.locator("[data-word]")).to_have_count(12)
    paths.locator("input[value=attention]").check()
    expect(paths.locator("[data-vectors]")).to_have_attribute("data-vectors", "12")
