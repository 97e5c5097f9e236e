"""The marks of figures, read back: their numbers are those of the trace or of the measurement."""

import itertools
import json

import numpy as np
import pytest
from explorer_page import FIGURES, TEXT, figure, in_sight, opened, settled
from playwright.sync_api import expect

from onehop.explorer.content import worked_example

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def trace(tracer):
    return tracer.trace(TEXT)


def selected(page):
    """Layer, head and step of the cursor."""
    return page.evaluate("(({ layer, head, step }) => [layer, head, step])(window.onehop.view().selection)")


def numbers(page, selector, attribute):
    return page.eval_on_selector_all(selector, f"all => all.map(e => Number(e.dataset.{attribute}))")


def test_the_stack_of_weighted_values_ends_at_the_output(page, trace):
    layer, head, step = selected(page)
    path = f"decoder.layers.{layer}.cross_attention"
    weights, values = trace[f"{path}.weights"][head, step].astype(float), trace[f"{path}.v"][head].astype(float)
    split = "all => all.map(p => p.dataset.{}.split(' ').map(Number))"
    layers = np.array(page.eval_on_selector_all("#figure-blend [data-layer]", split.format("values")))
    (total,) = page.eval_on_selector_all("#figure-blend [data-sum]", split.format("sum"))
    order = np.argsort(-weights, kind="stable")[:6]
    np.testing.assert_allclose(layers[:6], weights[order, None] * values[order], atol=1e-5)
    np.testing.assert_allclose(layers.sum(0), total, atol=1e-4)
    assert total == pytest.approx(trace[f"{path}.head_outputs"][head, step].tolist(), abs=2e-3)  # float16


def test_the_three_triangles_are_scores_masked_scores_and_weights(page, trace):
    layer, head, _ = selected(page)
    path = f"decoder.layers.{layer}.self_attention"
    scores, weights = (trace[f"{path}.{name}"][head].astype(float) for name in ("scores", "weights"))
    scaled = scores / np.sqrt(6)
    future = np.triu(np.ones_like(scores, dtype=bool), 1)
    cells = "all => all.map(c => c.dataset.value)"
    drawn = {
        name: np.array(page.eval_on_selector_all(f"[data-triangle={name}] [data-cell]", cells), dtype=float)
        for name in ("scores", "masked", "weights")
    }
    np.testing.assert_allclose(drawn["scores"], scaled.ravel(), rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(drawn["masked"], np.where(future, -np.inf, scaled).ravel(), rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(drawn["weights"], weights.ravel(), rtol=1e-4, atol=1e-6)
    assert (drawn["weights"][future.ravel()] == 0).all()
    expect(page.locator("[data-triangle=masked] text").first).to_have_text("−∞")


def test_the_residual_stream_and_its_additions_share_one_scale(page, trace):
    _, _, step = selected(page)
    rows = [r for r in trace.header["residual"] if r["stack"] == "decoder"]
    drawn = page.eval_on_selector_all(
        "#figure-residual [data-sublayer]",
        "all => all.map(g => [g.dataset.sublayer, Number(g.dataset.stream), Number(g.dataset.added),"
        " Number(g.querySelector('path').getAttribute('stroke-width'))])",
    )
    assert [name for name, *_ in drawn] == [r["name"] for r in rows]
    for (_, stream, added, width), row in zip(drawn, rows, strict=True):
        assert (stream, added) == pytest.approx((row["stream"][step], row["added"][step]), rel=1e-5)
        assert width / added == pytest.approx(drawn[0][3] / drawn[0][2], rel=0.05)
    smaller = sum(r["added"][step] < r["stream"][step] for r in rows)
    expect(figure(page, "residual")).to_contain_text(f"{smaller} of {len(rows)}")
    answer = "yes" if smaller == len(rows) else "partly" if smaller > len(rows) / 2 else "no"
    expect(figure(page, "residual").locator("[data-answer]")).to_have_attribute("data-answer", answer)


def test_the_finished_hypotheses_are_listed_by_their_scores(page, trace):
    steps = trace.header["beam"]["steps"]
    scores = sorted((n["score"] for nodes in steps for n in nodes if n["state"] == "finished"), reverse=True)
    assert scores
    assert numbers(page, "#figure-beam [data-finished]", "finished") == pytest.approx(scores)
    expect(page.locator("#figure-beam [data-finished]").first).to_have_attribute("data-chosen", "true")
    best = in_sight(page, "beam").locator("[data-finished] button").first.inner_text()
    assert best.split() == trace.text.split()


def test_the_matrix_product_is_computed_from_the_readers_numbers(fresh):
    place = figure(fresh, "refresher")
    assert numbers(fresh, "#figure-refresher [data-product] [data-value]", "value") == [5, 1, 6]
    place.locator("input[aria-label='Matrix, row 2, column 3']").fill("4")
    fresh.keyboard.press("Tab")
    settled(fresh)
    assert numbers(fresh, "#figure-refresher [data-product] [data-value]", "value") == [5, 1, 10]
    place.locator("input[aria-label='Row, number 1']").fill("-1")
    fresh.keyboard.press("Tab")
    settled(fresh)
    assert numbers(fresh, "#figure-refresher [data-product] [data-value]", "value") == [1, 1, 2]


@pytest.mark.parametrize(
    ("kind", "lit"), [("both", "encoder cross decoder"), ("encoder", "encoder"), ("decoder", "decoder")]
)
def test_a_related_model_keeps_the_connections_of_its_parts(fresh, kind, lit):
    figure(fresh, "family").locator("input[value=subsets]").check()
    figure(fresh, "family").locator(f"input[name=family-subset][value={kind}]").check()
    settled(fresh)
    drawn = fresh.eval_on_selector_all(
        "#figure-family [data-part]", "all => all.filter(g => g.dataset.lit === 'true').map(g => g.dataset.part)"
    )
    assert set(drawn) == set(lit.split())
    assert fresh.locator("#figure-family [data-wire]").count() >= 8


def test_the_results_are_the_papers_and_this_projects(page, data):
    found = json.loads((data / "paper.json").read_text(encoding="utf-8"))
    systems = [s for s in found["systems"] + found["own"] if s["en_de"] is not None]
    assert numbers(page, "[data-results=bleu] .track", "value") == [s["en_de"] for s in systems]
    assert any(s["kind"] == "own" for s in systems)


def test_quality_by_length_is_a_line_with_the_untrained_part_shaded(page, data):
    found = json.loads((data / "lengths.json").read_text(encoding="utf-8"))
    drawn = page.eval_on_selector_all("#figure-lengths circle", "all => all.map(c => Number(c.dataset.y))")
    wanted = [[b["chrf"], b["tokens_ratio"], b["attention_entropy"]["cross"]] for b in found["buckets"]]
    assert drawn == pytest.approx([y for line in zip(*wanted, strict=True) for y in line])
    beyond = found["buckets"][-1]["mean_length"] > found["trained_to"]
    expect(page.locator("#figure-lengths [data-zone]")).to_have_count(3 if beyond else 0)


def test_heads_that_are_pruned_are_shown_and_the_sentence_is_translated_without_them(live, tracer, data):
    order = json.loads((data / "pruning.json").read_text(encoding="utf-8"))
    place = figure(live, "pruning")
    place.locator("input[type=range]").fill("2")
    settled(live)
    removed = order["rows"][2]["removed"]
    expect(place.locator("[data-gone=true]")).to_have_count(removed)
    expect(place.locator("[data-gone]")).to_have_count(len(order["order"]))
    place.locator("[data-worse]").click()
    edits = ["head=off@{role}.{layer}.{head}".format(**h) for h in order["order"][:removed]]
    text = tracer.variant(TEXT, edits)["target"]["text"]
    expect(place.locator("[data-pruned]")).to_contain_text(text)


def test_two_switches_set_before_a_redraw_are_both_kept(live):
    """Both clicks use handlers of the same drawing, so neither handler knows of the other click."""
    live.evaluate(
        "document.querySelectorAll('#figure-breaking input[type=checkbox]').forEach((b, i) => i < 2 && b.click())"
    )
    offered = live.evaluate("window.onehop.view().about.edits.slice(0, 2).flatMap(o => o.edits)")
    assert live.evaluate("window.onehop.view().selection.edits") == offered
    settled(live)


def test_no_figure_is_higher_than_a_screen_and_a_half_on_a_phone(browser, file):
    with opened(browser, file.as_uri(), width=390, offline=True) as page:
        heights = page.eval_on_selector_all(
            "figure", "all => all.map(f => [f.dataset.figure, f.getBoundingClientRect().height])"
        )
    assert len(heights) == len(FIGURES)
    too_high = {name: height for name, height in heights if height > 1.5 * 844}
    assert too_high == {}


def test_which_head_decides_fits_a_phone_after_the_sweep(browser, many_heads):
    with opened(browser, many_heads, width=390) as page:
        page.evaluate("window.onehop.view().startSweep()")
        expect(figure(page, "decides").locator("[data-decides]")).to_be_visible()
        settled(page)
        assert figure(page, "decides").locator("[data-grid=effect] [data-head]").count() == 144
        assert figure(page, "decides").bounding_box()["height"] <= 1.5 * 844


def test_line_labels_are_at_the_ends_and_do_not_overlap(page):
    heights = page.evaluate("async () => (await import('onehop/chart.js')).spreadLabels([50, 52, 200, 199], 10, 205)")
    assert heights == [50, 64, 205, 191]
    ends = page.eval_on_selector_all(
        "#figure-warmup [data-end]", "all => all.map(e => [e.textContent, Number(e.getAttribute('y'))])"
    )
    assert [name for name, _ in ends] == ["post, no warm-up", "post, warm-up", "pre, no warm-up", "pre, warm-up"]
    heights = sorted(y for _, y in ends)
    assert all(b - a >= 14 for a, b in itertools.pairwise(heights))


def test_the_worked_example_marks_what_an_entry_has_changed(fresh):
    worked = figure(fresh, "worked")
    expect(worked.locator(".edited")).to_have_count(0)
    worked.get_by_label("W Q, row 1, column 2").fill("0.9")
    worked.get_by_label("W Q, row 1, column 2").blur()
    expect(worked.locator("input.edited")).to_have_count(1)
    first = worked_example()["steps"]
    (was,) = numbers(fresh, "#figure-worked [data-matrix='Q = X W Q'] .edited", "was")
    assert was == pytest.approx(first["q"][0][1])
    marked = numbers(fresh, "#figure-worked [data-matrix=output] .edited", "was")
    assert marked == pytest.approx(first["head_outputs"][0])  # the row of "Hello"; that of "World" has not changed


def test_the_matrix_shows_the_numbers_of_the_selected_row_and_a_legend(page, trace):
    layer, head, step = selected(page)
    row = trace[f"decoder.layers.{layer}.cross_attention.weights"][head, step].astype(float)
    drawn = page.locator("#figure-matrix text.in-cell").all_text_contents()
    assert [float(text) for text in drawn] == [round(w, 2) for w in row if w >= 0.05]
    shades = page.eval_on_selector_all(
        "#figure-matrix [data-shade]", "all => all.map(e => [Number(e.dataset.shade), Number(e.style.opacity)])"
    )
    assert shades == [[w, pytest.approx(0.03 + 0.97 * w**0.5, abs=1e-3)] for w in (0, 0.01, 0.1, 0.25, 0.5, 1)]


def test_position_similarity_is_the_cosine_of_their_vectors(page, trace, measured):
    table = trace["positions"].astype(float)[:64]
    lengths = np.linalg.norm(table, axis=1)
    cosines = table @ table[9] / (lengths * lengths[9])
    drawn = numbers(page, "#figure-positions [data-likeness] circle", "y")
    assert drawn == pytest.approx(cosines.tolist(), abs=1e-5)
    rows = json.loads((measured / "twins.json").read_text(encoding="utf-8"))["positions"]
    said = page.locator("#figure-positions [data-learned]")
    assert [said.get_attribute(f"data-{row['positions']}") for row in rows] == ["7", "5"]
    expect(said).to_contain_text("larger than that between seeds")


def test_every_pattern_has_a_small_grid_and_the_selected_one_a_large_one(fresh, measured):
    patterns = json.loads((measured / "patterns.json").read_text(encoding="utf-8"))["patterns"]
    smalls = figure(fresh, "patterns").locator(".overview [role=radio]")
    best = smalls.evaluate_all("all => all.map(b => Number(b.dataset.best))")
    assert best == pytest.approx([np.max(p["all"]) for p in patterns], abs=1e-6)
    smalls.nth(2).click()
    settled(fresh)
    expect(smalls.nth(2)).to_have_attribute("aria-checked", "true")
    cells = in_sight(fresh, "patterns").locator("table.matrix td.cell").all_inner_texts()
    shares = np.array(patterns[2]["all"]).ravel()
    assert [int(text) for text in cells] == [100 if s == 1 else min(99, round(100 * s)) for s in shares]


def test_whole_words_replace_pieces_in_every_figure_of_weights(browser, file, trace):
    """The pieces of "saw" are one word; weights to them are summed."""
    keys = [[0], [1], [2], [3, 4, 5, 6], [7], [8]]
    with opened(browser, f"{file.as_uri()}#lookup.kind=attention&step=2&page.words=yes", offline=True) as page:
        layer, head, step = selected(page)
        weights = trace[f"decoder.layers.{layer}.cross_attention.weights"][:, step].astype(float)
        own, mixed = ([float(row[word].sum()) for word in keys] for row in (weights[head], weights.mean(0)))
        assert numbers(page, "#figure-lookup .track", "value") == pytest.approx(own, rel=1e-3)
        pairs = [x for pair in zip(own, mixed, strict=True) for x in pair]
        assert numbers(page, "#figure-heads .track", "value") == pytest.approx(pairs, rel=1e-3)
        places = page.evaluate(
            "async () => (await import('onehop/words.js')).allWords(window.onehop.view().trace.target.output_tokens)"
        )
        asking = next(word for word in places if step in word)
        rows = trace[f"decoder.layers.{layer}.cross_attention.weights"][head][asking].astype(float).mean(0)
        arcs = [w for w in (float(rows[word].sum()) for word in keys) if w >= 0.02]
        assert numbers(page, "#figure-arcs path", "weight") == pytest.approx(arcs, rel=1e-3)
        names = in_sight(page, "lookup").locator(".bars .name").all_inner_texts()
        assert names == ["the", "old", "house", "saw", "it", "</s>"]


DOUBT = """async ([tokens, margins, chosen]) => {
    const { leastCertain } = await import("onehop/verdict.js");
    const top = (m) => [{ id: 1, p: m }, { id: 2, p: 0 }];
    const steps = margins.map((m) => ({ top: top(m), chosen: { id: chosen, p: 0 } }));
    return leastCertain({ steps, target: { output_tokens: tokens }, model: { target: "fr" } });
}"""


def test_an_elided_french_word_is_never_the_least_certain_one(page):
    """The next word decides between "qu" and "que", so the next word is the uncertain one."""
    tokens = ["▁parce", "▁qu", "'", "elle", "▁dort", "</s>"]
    assert page.evaluate(DOUBT, [tokens, [0.9, 0.1, 0.05, 0.3, 0.8, 0.01], 1])["step"] == 3


@pytest.mark.parametrize(("chosen", "rival"), [(1, 2), (2, 1), (3, 1)])
def test_the_written_piece_is_named_with_the_most_probable_other_one(page, chosen, rival):
    found = page.evaluate(DOUBT, [["▁a", "▁b"], [0.9, 0.1], chosen])
    assert (found["step"], found["written"]["id"], found["rival"]["id"]) == (1, chosen, rival)


def test_a_component_is_the_sum_of_its_rows_products(fresh, trace):
    """The reader picks a component; its number is the recorded one, to what float16 inputs allow."""
    place = figure(fresh, "projections")
    layer, head, step = selected(fresh)
    recorded = trace[f"decoder.layers.{layer}.cross_attention.q"][head, step]
    told = place.locator("[data-component]")
    assert int(told.get_attribute("data-component")) == int(np.abs(recorded).argmax())
    for component in range(len(recorded)):
        place.locator("input[type=range]").fill(str(component + 1))
        settled(fresh)
        expect(told).to_have_attribute("data-component", str(component))
        assert float(told.get_attribute("data-total")) == pytest.approx(float(recorded[component]), abs=5e-3)


def test_a_bar_says_which_products_its_score_is_the_sum_of(page, trace):
    layer, head, step = selected(page)
    path = f"decoder.layers.{layer}.cross_attention"
    products = trace[f"{path}.q"][head, step] * trace[f"{path}.k"][head, 0]
    largest = sorted(products.tolist(), key=abs)[-1]
    figure(page, "scores").locator(".track").first.hover()
    tip = page.locator(".tip")
    expect(tip).to_contain_text(f"{len(products)} products")
    expect(tip).to_contain_text(f"{largest:.2f}".replace("-", "−"))
    page.mouse.move(0, 0)


def test_the_arcs_offer_the_heads_of_the_layer(fresh, trace):
    layer, _, step = selected(fresh)
    place = figure(fresh, "arcs")
    place.locator("input[name=arcs-head]").nth(1).check()
    settled(fresh)
    weights = trace[f"decoder.layers.{layer}.cross_attention.weights"][1, step]
    assert numbers(fresh, "#figure-arcs path[data-weight]", "weight") == pytest.approx(
        [w for w in weights.tolist() if w >= 0.02], rel=1e-4
    )


PAIR = """async ([source, listed]) => {
    const { pronounAndNoun } = await import("onehop/verdict.js");
    const sentence = { source: "x", tokens: listed, it: [3], noun: [1] };
    const measured = { coreference: { sentences: [sentence] } };
    return pronounAndNoun({ source: { text: "x", tokens: source } }, measured);
}"""


def test_pronoun_and_noun_are_found_in_other_pieces(page):
    """The list was measured with one tokenizer; another may cut the noun, and the words before it."""
    listed = ["▁The", "▁animal", "▁because", "▁it", "▁slept", ".", "</s>"]
    assert page.evaluate(PAIR, [listed, listed]) == {"pronoun": [3], "noun": [1]}
    other = ["▁Th", "e", "▁an", "imal", "▁because", "▁it", "▁slept", ".", "</s>"]
    assert page.evaluate(PAIR, [other, listed]) == {"pronoun": [5], "noun": [2, 3]}


def test_the_cosine_of_pronoun_and_noun_embeddings_is_shown(page, trace):
    """As if the measured list knew the sentence: the cosine is that of the embeddings in the trace."""
    pronoun, told = page.evaluate(
        """async (source) => {
            const { draw } = await import("onehop/figures/embeddings.js");
            const { render } = await import("onehop/vendor/lit-html.js");
            const view = window.onehop.view();
            const { tokens } = view.trace.source;
            const [pronoun, noun] = [tokens.indexOf("▁it"), 2];
            const sentence = { source, tokens, it: [pronoun], noun: [noun], german: "-" };
            const measured = { coreference: { sentences: [sentence] } };
            const place = document.createElement("div");
            render(draw({ ...view, measured }), place);
            const { noun: cosine, nearest } = place.querySelector("[data-noun]").dataset;
            const pair = place.querySelectorAll("[data-pair]").length;
            return [pronoun, { noun, cosine: Number(cosine), nearest: Number(nearest), pair }];
        }""",
        TEXT,
    )
    vectors = trace["source_input.embeddings"].astype(float)
    cosines = vectors @ vectors[pronoun] / (np.linalg.norm(vectors, axis=1) * np.linalg.norm(vectors[pronoun]))
    assert told["cosine"] == pytest.approx(cosines[told["noun"]], abs=2e-3)
    assert cosines[told["nearest"]] >= told["cosine"] - 2e-3
    assert told["pair"] == 1  # the picture shows both, on whichever side the cursor is
