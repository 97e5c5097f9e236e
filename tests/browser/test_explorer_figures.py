"""Figures of the page: their marks have the trace's numbers, and they share one cursor."""

import json
import re
import threading

import numpy as np
import pytest
import torch
from explorer_page import TEXT, TOKENS, figure, in_sight, opened, settled
from playwright.sync_api import expect

from onehop.explorer.content import Explorer
from onehop.interpret.ablations import parse_edits

pytestmark = pytest.mark.slow

ROLES = ("encoder", "decoder", "cross")


def tip(page, selector, position=None):
    """What the tooltip says over a mark; it goes away while the page still scrolls to it."""
    mark, box = page.locator(selector).first, page.locator(".tip")
    for _ in range(50):
        mark.hover(position=position)
        if box.is_visible():
            return box.inner_text()
        page.mouse.move(0, 0)
        page.wait_for_timeout(50)
    raise AssertionError(f"{selector} says nothing")


def weights(trace, role, layer):
    stack, kind = ("encoder" if role == "encoder" else "decoder"), ("cross" if role == "cross" else "self")
    return trace[f"{stack}.layers.{layer}.{kind}_attention.weights"]


@pytest.fixture(scope="module")
def trace(tracer):
    return tracer.trace(TEXT)


# --- one cursor, on the head that aligns best


def test_the_page_opens_on_the_best_aligning_head_and_the_least_certain_word(page, trace):
    aligner, steps = trace.header["aligner"], trace.header["steps"]
    expect(page.locator(".bar input[value=cross]")).to_be_checked()
    expect(page.locator(".bar select").nth(0)).to_have_value(str(aligner["layer"]))
    expect(page.locator(".bar select").nth(1)).to_have_value(str(aligner["head"]))
    tokens = trace.header["target"]["output_tokens"]
    words = [i for i, t in enumerate(tokens) if t.startswith("▁") and re.search(r"[^\W\d_]", t)]
    doubted = min(words, key=lambda i: steps[i]["top"][0]["p"] - steps[i]["top"][1]["p"]) if words else 0
    expect(page.locator(".bar select").nth(2)).to_have_value(str(doubted))


@pytest.mark.parametrize("side", ["source", "target"])
def test_a_word_of_either_side_is_the_cursor_of_every_figure(fresh, trace, side):
    place = 2
    fresh.locator(f".answer .line.{side} button").nth(place).click()
    settled(fresh)
    role = "encoder" if side == "source" else "cross"
    expect(fresh.locator(f".bar input[value={role}]")).to_be_checked()
    for name in ("scores", "blend", "matrix", "residual", "neurons"):
        expect(figure(fresh, name).locator("[aria-checked=true]").first).to_have_attribute("data-index", str(place))
    layer, head = (int(fresh.locator(".bar select").nth(i).input_value()) for i in (0, 1))
    sums = fresh.eval_on_selector_all("#figure-scores .track", "all => all.map(t => Number(t.dataset.value))")
    stack, kind = ("encoder", "self") if side == "source" else ("decoder", "cross")
    scores = trace[f"{stack}.layers.{layer}.{kind}_attention.scores"][head, place]
    assert sums == pytest.approx(scores.tolist(), rel=1e-4, abs=1e-6)
    if side == "target":
        for name in ("decides", "lens"):
            expect(figure(fresh, name).locator("[aria-checked=true]").first).to_have_attribute("data-index", str(place))
        expect(figure(fresh, "beam").locator("output")).to_have_text(re.compile(f"^{place + 1} of"))


def test_a_step_of_the_beam_brings_the_cursor_to_the_translation(fresh):
    fresh.locator(".answer .line.source button").nth(1).click()
    figure(fresh, "beam").locator("input[type=range]").fill("3")
    settled(fresh)
    expect(fresh.locator(".answer .line.target .cursor")).to_have_attribute("data-index", "3")
    expect(fresh.locator(".bar input[value=cross]")).to_be_checked()


def test_hovering_redraws_visible_figures_only(fresh):
    """A visible figure follows the mouse; one far below is not drawn again."""
    matrix, far = figure(fresh, "matrix"), figure(fresh, "residual")
    matrix.scroll_into_view_if_needed()
    settled(fresh)
    fresh.evaluate(
        "window.redrawn = 0; new MutationObserver(() => window.redrawn++).observe("
        "document.querySelector('#figure-residual'), { subtree: true, childList: true, attributes: true,"
        " characterData: true })"
    )
    ringed = matrix.locator("g[data-index]:has(rect.ring)")
    chosen = ringed.get_attribute("data-index")
    assert chosen != "3"
    matrix.locator(TOKENS.format(3)).hover()
    expect(ringed).to_have_attribute("data-index", "3")
    fresh.mouse.move(0, 0)
    expect(ringed).to_have_attribute("data-index", chosen)
    assert fresh.evaluate("window.redrawn") == 0
    assert far.locator("[aria-checked=true]").count() == 1


# --- the first screen


def test_the_masthead_is_shaded_by_the_best_aligning_heads_weights(fresh, trace):
    """A target piece shows its row of weights, a source piece its column."""
    aligner = trace.header["aligner"]
    looks = weights(trace, "cross", aligner["layer"])[aligner["head"]]
    shown = "all => all.map(x => Number(x.dataset.weight))"
    for step in (0, len(looks) - 1):
        fresh.locator(".answer .target button").nth(step).click()
        fresh.mouse.move(0, 0)
        found = fresh.eval_on_selector_all(".answer .source button", shown)
        assert found == pytest.approx((looks[step] / looks[step].max()).tolist(), rel=1e-4)
    fresh.locator(".answer .source button").nth(2).click()
    fresh.mouse.move(0, 0)
    found = fresh.eval_on_selector_all(".answer .target button", shown)
    assert found == pytest.approx((looks[:, 2] / looks[:, 2].max()).tolist(), rel=1e-4)


VERDICT = """async ([text, tokens, language]) => {
    const { pronounVerdict } = await import("onehop/verdict.js");
    const known = { source: "It slept.", tokens: ["▁It", "▁slept", "."], noun: [1], german: "Tier", expected: "es" };
    const trace = { source: { text: "It slept." }, target: { text, output_tokens: tokens },
                    model: { source: "en", target: language } };
    return pronounVerdict(trace, { coreference: { sentences: [known] } });
}"""


def test_a_known_sentence_is_judged_by_the_translation_on_show(page):
    wrong = page.evaluate(VERDICT, ["Das Tier, weil sie", ["▁Das", "▁Tier", ",", "▁weil", "▁sie", "</s>"], "de"])
    assert (wrong["right"], wrong["step"], wrong["written"], wrong["needed"]) == (False, 4, "sie", "es")
    assert wrong["german"] == "das Tier"
    right = page.evaluate(VERDICT, ["Das Tier, weil es", ["▁Das", "▁Tier", ",", "▁weil", "▁es", "</s>"], "de"])
    assert (right["right"], right["step"]) == (True, 4)


@pytest.mark.parametrize(
    ("chances", "end"),
    [
        (["55%", "30%"], "The model wrote sie, with a probability of 55%; es had 30%."),
        (["75%", ""], "The model wrote sie, with a probability of 75%."),
        (["", ""], "The model wrote sie."),
    ],
)
def test_the_judgement_names_the_known_probabilities(page, chances, end):
    said = page.evaluate(
        """async ([writtenChance, neededChance]) => {
            const { TEXTS } = await import("onehop/texts.js");
            const { render } = await import("onehop/vendor/lit-html.js");
            const place = document.createElement("p");
            const words = { english: "animal", german: "das Tier", needed: "es", written: "sie" };
            render(TEXTS.opening.judged({ ...words, writtenChance, neededChance }), place);
            return place.textContent.replace(/\\s+/g, " ");
        }""",
        chances,
    )
    assert said == f"“It” means the animal, in German das Tier, so “it” must become es. {end}"


@pytest.mark.parametrize(
    ("text", "tokens", "language"),
    [
        ("Das Vieh, weil sie", ["▁Das", "▁Vieh", "▁sie", "</s>"], "de"),  # another noun may have another gender
        ("Das Tier schlief", ["▁Das", "▁Tier", "▁schlief", "</s>"], "de"),
        ("Das Tier, weil sie", ["▁Das", "▁Tier", "▁sie", "</s>"], "fr"),
    ],
)
def test_sentences_outside_the_measured_list_get_no_verdict(page, text, tokens, language):
    assert page.evaluate(VERDICT, [text, tokens, language]) is None


def test_a_sentence_without_verdict_names_the_least_certain_word(page):
    expect(page.locator(".judged")).to_have_attribute("data-verdict", "unknown")
    expect(page.locator(".answer .wrong")).to_have_count(0)


def test_a_wrong_pronoun_is_marked_in_the_masthead(browser, tracer, data, tmp_path, trace):
    """The measured list gets this sentence, with a written piece as its wrong pronoun."""
    html = Explorer(tracer, TEXT).alone(TEXT)
    tokens = trace.header["target"]["output_tokens"]
    known = {**json.loads((data / "coreference.json").read_text(encoding="utf-8"))["sentences"][0]}
    known |= {"source": TEXT, "tokens": ["▁house"], "noun": [0], "german": trace.text.split()[0], "expected": "es"}
    file = tmp_path / "known.html"
    start, end = '<script type="application/json" id="onehop-data">', "</script>"
    i = html.index(start) + len(start)
    content = json.loads(html[i : html.index(end, i)])
    content["measured"]["coreference"]["sentences"] = [known]
    content["trace"]["target"]["output_tokens"] = [*tokens[:2], "▁sie", *tokens[3:]]
    packed = json.dumps(content).replace("<", "\\u003c")
    file.write_text(html[:i] + packed + html[html.index(end, i) :], encoding="utf-8")
    with opened(browser, file.as_uri(), offline=True) as page:
        expect(page.locator(".judged")).to_have_attribute("data-verdict", "wrong")
        expect(page.locator(".judged")).to_contain_text("must become es")
        expect(page.locator(".answer .wrong")).to_have_attribute("data-index", "2")


# --- marks and tooltips


def test_gradients_are_drawn_on_a_log_scale_without_clipping(page, data):
    """Nothing is moved to the edge of the chart: heights are the logarithms of the values, however small."""
    rows = json.loads((data / "paths.json").read_text(encoding="utf-8"))["rows"]
    dots = page.eval_on_selector_all(
        "#figure-paths circle[data-y]", "all => all.map(c => [Number(c.dataset.y), Number(c.getAttribute('cy'))])"
    )
    assert sorted(y for y, _ in dots) == pytest.approx(
        sorted(r[kind] for r in rows for kind in ("attention", "recurrent", "lstm"))
    )
    assert min(y for y, _ in dots) < 1e-12
    logs, heights = np.log([y for y, _ in dots]), np.array([height for _, height in dots])
    slope, offset = np.polyfit(logs, heights, 1)
    np.testing.assert_allclose(slope * logs + offset, heights, atol=0.2)
    expect(page.locator("#figure-paths [data-beyond]")).to_have_count(0)


def test_a_value_beyond_an_axis_becomes_an_arrow(page):
    found = page.evaluate(
        """async () => {
            const { lines } = await import("onehop/chart.js");
            const { render } = await import("onehop/vendor/lit-html.js");
            const place = document.createElement("div");
            const points = [[1, 1], [2, 0.5], [3, 1e-9]];
            const axis = { x: { min: 1, max: 3, label: "x" }, y: { min: 0.1, max: 1, log: true } };
            const series = [{ name: "a", concept: "key", points }];
            render(lines({ view: { narrow: false }, label: "", ...axis, series }),
                   place);
            const mark = place.querySelector("[data-beyond]");
            return [place.querySelectorAll("circle").length, Number(mark.dataset.y), mark.tip];
        }"""
    )
    assert found[:2] == [2, 1e-9]
    assert "beyond the axis" in found[2]


def test_the_timed_layers_are_drawn_as_measured(page, data):
    found = json.loads((data / "complexity.json").read_text(encoding="utf-8"))
    assert found["projections"]
    assert found["statistic"] == "median"
    kinds = ("self_attention", "recurrence", "convolution", "restricted")
    drawn = page.eval_on_selector_all("#figure-complexity circle[data-y]", "all => all.map(c => Number(c.dataset.y))")
    assert drawn == pytest.approx([row[kind] for kind in kinds for row in found["rows"]])


def test_paired_bars_share_one_scale(page):
    """A pixel is worth the same in both columns of every pair."""
    for name in ("heads", "divisor", "dimension", "mask"):
        tracks = page.eval_on_selector_all(
            f"#figure-{name} .paired .track",
            "all => all.map(t => [t.getBoundingClientRect().width, Number(t.dataset.value),"
            " t.firstElementChild.getBoundingClientRect().width])",
        )
        assert tracks, name
        assert {round(width, 1) for width, _, _ in tracks} == {round(tracks[0][0], 1)}, name
        worth = [value / bar for _, value, bar in tracks if bar > 5]
        assert max(worth) == pytest.approx(min(worth), rel=0.02), name


def test_tooltips_show_the_values_of_marks(fresh, tracer, trace):
    bar = fresh.locator(".bar select")
    layer, head, step = (int(bar.nth(i).input_value()) for i in range(3))
    row = weights(trace, "cross", layer)[head, step]
    said = tip(fresh, f"#figure-matrix g[data-index='{step}'] rect >> nth=3")
    keys = trace.header["source"]["tokens"]
    written = tracer.translator.tokenizer.decode(trace.header["target"]["ids"][step : step + 1])
    assert said.startswith(f"{written} → {keys[2].strip('▁')}: ")
    assert float(said.rsplit(" ", 1)[1]) == pytest.approx(row[2], abs=1e-4)
    assert float(tip(fresh, "#figure-scores .track").rsplit(" ", 1)[1].replace("−", "-")) == pytest.approx(
        float(fresh.locator("#figure-scores .track").first.get_attribute("data-value")), abs=1e-4
    )
    assert "component 1:" in tip(fresh, "#figure-projections svg >> nth=0", {"x": 2, "y": 10})
    assert "distance in words 64" in tip(fresh, "#figure-paths circle[data-x='64'] >> nth=2")
    small = tip(fresh, "#figure-heads [data-head='encoder.0.1'] img")
    assert small.startswith("encoder self-attention, layer 1, head 2: ")
    fresh.mouse.move(0, 0)
    expect(fresh.locator(".tip")).to_be_hidden()


def test_all_heads_are_shown_by_default(page, tracer):
    s = tracer.model.settings
    heads = page.eval_on_selector_all("#figure-heads [data-head]", "all => all.map(b => b.dataset.head)")
    layers = {"encoder": s.n_encoder_layers, "decoder": s.n_decoder_layers, "cross": s.n_decoder_layers}
    assert heads == [f"{role}.{layer}.{head}" for role in ROLES for layer in range(layers[role]) for head in range(3)]


# --- which head decides


def alone(tracer, trace, edits):
    """The log-probability of each written token under edits, in a pass of its own."""
    source, target = trace.header["source"]["ids"][:-1], trace.header["target"]
    outputs = [*target["ids"], 3] if target["finished"] else target["ids"]
    recording = tracer.record(source, outputs, parse_edits(edits))
    return recording.output_log_probs(recording.value("logits"))[0]


def test_the_grid_of_effects_agrees_with_heads_switched_off_one_by_one(live, tracer, trace):
    place = figure(live, "decides")
    expect(place.locator("[data-grid]")).to_have_count(0)
    place.locator("[data-start]").click()
    expect(place.locator("[data-decides]")).to_be_visible()
    step = int(live.locator(".bar select").nth(2).input_value())
    plain = alone(tracer, trace, [])
    word = page_word(live, live.evaluate("window.onehop.view().trace.target.output_tokens"), step)
    shown = dict(
        live.eval_on_selector_all(
            "#figure-decides [data-grid=effect] [data-head]",
            "all => all.map(b => [b.dataset.head, Number(b.dataset.value)])",
        )
    )
    expected = {head: float((alone(tracer, trace, [f"head=off@{head}"]) - plain)[word].sum()) for head in shown}
    assert len(shown) == 24
    assert shown == pytest.approx(expected, abs=1e-4)
    assert max(map(abs, expected.values())) > 1e-2
    strongest = min(expected, key=expected.get)
    expect(place.locator("[data-decides]")).to_have_attribute("data-strongest", strongest)
    expect(place.locator("[data-grid=effect] .marked")).to_have_attribute("data-head", strongest)
    looks = dict(
        live.eval_on_selector_all(
            "#figure-decides [data-grid=look] [data-head]",
            "all => all.map(b => [b.dataset.head, Number(b.dataset.value)])",
        )
    )
    for head, value in looks.items():
        role, layer, number = head.split(".")
        query = live.evaluate("window.onehop.view().selection.source") if role == "encoder" else word[0]
        assert value == pytest.approx(float(weights(trace, role, int(layer))[int(number), query].max()), rel=1e-5)


def page_word(page, tokens, step):
    """The pieces of the word, as the page joins them."""
    return page.evaluate(
        "async ([tokens, step]) => (await import('onehop/words.js')).wordAt(tokens, step)", [tokens, step]
    )


def test_pieces_are_joined_to_words_and_punctuation_is_separate(page):
    tokens = ["▁Das", "▁über", "qu", "erte", ",", "▁weil", ".", "</s>"]
    assert [page_word(page, tokens, i) for i in range(len(tokens))] == [
        [0], [1, 2, 3], [1, 2, 3], [1, 2, 3], [4], [5], [6], [7]
    ]  # fmt: skip


def test_the_divisor_figure_opens_with_d_k_beside_its_root(page, tracer):
    width = tracer.model.settings.key_width
    by, root = (
        float(heading.split()[-1]) if i == 0 else float(re.search(r"= ([\d.]+)", heading)[1])
        for i, heading in enumerate(in_sight(page, "divisor").locator(".heading").all_inner_texts())
    )
    assert root == pytest.approx(width**0.5, abs=0.01)
    assert by == pytest.approx(width, rel=2 ** (1 / 8) - 1)  # to the nearest step of the slider


def test_the_strongest_head_gets_a_switch_after_the_sweep(live):
    place = figure(live, "breaking")
    before = place.locator("input[type=checkbox]").count()
    figure(live, "decides").locator("[data-start]").click()
    strongest = figure(live, "decides").locator("[data-decides]").get_attribute("data-strongest")
    switch = place.get_by_label("the strongest head off")
    expect(switch).to_have_count(1)
    assert place.locator("input[type=checkbox]").count() in (before, before + 1)  # it may have been offered before
    switch.check()
    expect(live.locator(".bar .edited")).to_have_attribute("data-edits", f"head=off@{strongest}")


def test_a_first_edit_is_suggested(live):
    figure(live, "breaking").locator("[data-preset=positions]").click()
    expect(live.locator(".bar .edited")).to_have_text("edited: no positions")
    expect(figure(live, "breaking").locator("[data-preset]")).to_have_count(0)


def test_the_strongest_head_can_be_switched_off(live, tracer):
    place = figure(live, "decides")
    place.locator("[data-start]").click()
    strongest = place.locator("[data-decides]").get_attribute("data-strongest")
    place.locator("[data-proof]").click()  # the edited trace resets the sweep, and its verdict goes
    expect(live.locator(".bar .edited")).to_have_attribute("data-edits", f"head=off@{strongest}")
    settled(live)
    shown = live.evaluate("window.onehop.view().trace.json.target")
    edited = tracer.trace(TEXT, [f"head=off@{strongest}"]).header["target"]
    assert shown["output_tokens"] == edited["output_tokens"]
    assert shown["log_prob"] == pytest.approx(edited["log_prob"])
    expect(live.locator(".answer .line.target button")).to_have_count(len(edited["output_tokens"]))


def test_a_sweep_shows_its_progress_and_can_be_cancelled(browser, address, explorer, monkeypatch):
    """It halts after the third attention until the reader has cancelled; the server then computes no more."""
    cancelled, computed, heads = threading.Event(), [], explorer.heads

    def slow(text, edits=()):
        for part in heads(text, edits):
            if len(computed) == 4:
                assert cancelled.wait(30)
            computed.append(part)
            yield part

    monkeypatch.setattr(explorer, "heads", slow)
    with opened(browser, address) as page:
        place = figure(page, "decides")
        place.locator("[data-start]").click()
        expect(place.locator("progress")).to_have_attribute("value", "3")
        expect(place.locator("progress")).to_have_attribute("max", "8")
        place.locator("[data-cancel]").click()
        expect(place).to_contain_text("Cancelled.")
        cancelled.set()
        expect(place.locator("[data-start]")).to_be_visible()
        page.wait_for_timeout(300)
        assert len(computed) <= 6  # of nine: what was being computed, and one more
        monkeypatch.undo()
        place.locator("[data-start]").click()
        expect(place.locator("[data-decides]")).to_be_visible()


def test_an_exported_file_holds_the_head_effects(page, tracer, trace):
    expect(figure(page, "decides").locator("[data-decides]")).to_be_visible()
    expect(figure(page, "decides").locator("[data-start], [data-proof]")).to_have_count(0)


# --- the logit lens and the neurons


def test_the_lens_is_the_output_matrix_after_each_layer(page, tracer, trace):
    step = int(page.locator(".bar select").nth(2).input_value())
    model, top = tracer.model, [c["id"] for c in trace.header["steps"][step]["top"][:3]]
    layers = range(model.settings.n_decoder_layers)
    states = [torch.tensor(trace[f"decoder.layers.{i}.feed_add_norm.norm"][step]).float() for i in layers]
    with torch.inference_mode():
        expected = [(model.output_weight @ s + model.output_bias).softmax(-1) for s in states]
    drawn = page.eval_on_selector_all(
        "#figure-lens circle", "all => all.map(c => [Number(c.dataset.candidate), Number(c.dataset.p)])"
    )
    want = [float(p[token]) for token in top for p in expected]
    assert [p for _, p in drawn] == pytest.approx(want, abs=2e-3)  # states travel in float16
    winners = page.eval_on_selector_all("#figure-lens [data-winner]", "all => all.map(t => t.dataset.winner)")
    assert winners == [tracer.pieces([int(p.argmax())])[0] for p in expected]


def test_active_neurons_are_those_of_the_trace(fresh, tracer, trace):
    fresh.locator(".answer .target button").nth(1).click()
    settled(fresh)
    layer = trace.header["aligner"]["layer"]
    hidden = trace[f"decoder.layers.{layer}.feed_forward.hidden"][1].astype(float)
    place = figure(fresh, "neurons")
    expect(place.locator("[data-fires]")).to_have_attribute("data-fires", str(int((hidden > 0).sum())))
    rows = place.locator("tr[data-neuron]")
    expect(rows).to_have_count(8)
    shown = fresh.eval_on_selector_all(
        "#figure-neurons tr[data-neuron]",
        "all => all.map(r => [Number(r.dataset.neuron), Number(r.querySelector('[data-value]').dataset.value)])",
    )
    order = np.argsort(-np.abs(hidden), kind="stable")[:8]
    assert [n for n, _ in shown] == order.tolist()
    assert [h for _, h in shown] == pytest.approx(hidden[order].tolist(), rel=1e-4)
    written = tracer.neurons("decoder", layer, order.tolist())
    expect(rows.first).to_contain_text(written[0]["towards"][0]["token"].strip("▁") or "␣")
