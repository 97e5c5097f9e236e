"""The machine's figure: its boxes have the trace's numbers, it zooms to a dot product, and the map links to it."""

import pytest
from explorer_page import TEXT, figure, in_sight, needed_width, opened, settled
from playwright.sync_api import expect

pytestmark = pytest.mark.slow

LEVELS = {
    "layer": "[data-box='decoder.layers.1']",
    "head": "[data-box='decoder.layers.1.self_attention']",
    "dot": "[data-key='0']",
}


@pytest.fixture(scope="module")
def trace(tracer):
    return tracer.trace(TEXT)


def open_to(page, level):
    """Go down from the whole, box by box."""
    place = figure(page, "machine")
    for name, box in LEVELS.items():
        place.locator(box).click()
        expect(place.locator(".machine")).to_have_attribute("data-level", name)
        if name == level:
            return settled(page)
    return None


def values(page, selector, name):
    return page.eval_on_selector_all(f"#figure-machine {selector}", f"all => all.map(e => Number(e.dataset.{name}))")


def selected(page):
    selection = page.evaluate("window.onehop.view().selection")
    return tuple(selection[name] for name in ("layer", "head", "source", "step"))


def test_every_cell_of_the_machine_shows_a_heads_largest_weight_or_effect(live, tracer, trace):
    _, _, source, step = selected(live)
    cells = "all => all.map(c => [c.dataset.cell, c.dataset.kind, Number(c.dataset.value)])"
    looks = live.eval_on_selector_all("#figure-machine [data-cell]", cells)
    assert len(looks) == 3 * (2 + 3 + 3)
    for cell, kind, value in looks:
        role, layer, head = cell.split(".")
        stack, name = ("encoder" if role == "encoder" else "decoder"), ("cross" if role == "cross" else "self")
        weights = trace[f"{stack}.layers.{layer}.{name}_attention.weights"]
        assert kind == "look"
        assert value == pytest.approx(float(weights[int(head), source if role == "encoder" else step].max()), rel=1e-5)
    figure(live, "decides").locator("[data-start]").click()
    expect(figure(live, "decides").locator("[data-decides]")).to_be_visible()
    settled(live)
    effects = {(p.role, p.layer): p.effect for p in tracer.heads_off(trace.header)}
    for cell, kind, value in live.eval_on_selector_all("#figure-machine [data-cell]", cells):
        role, layer, head = cell.split(".")
        assert kind == "effect"
        assert value == pytest.approx(float(effects[role, int(layer)][int(head), step]), abs=1e-5)


def test_the_logit_lens_is_shown_beside_the_decoder(page, trace):
    *_, step = selected(page)
    words = page.eval_on_selector_all("#figure-machine [data-lens]", "all => all.map(t => t.dataset.lens)")
    assert words == [layer[step]["top"][0]["token"] for layer in trace.header["lens"]]
    next_word = figure(page, "machine").locator("[data-next]").get_attribute("data-next")
    assert next_word == trace.header["steps"][step]["chosen"]["token"]
    fires = values(page, "[data-fires]", "fires")
    hidden = [
        trace[f"{stack}.layers.{i}.feed_forward.hidden"]
        for stack, n in (("encoder", 2), ("decoder", 3))
        for i in range(n)
    ]
    *_, source, step = selected(page)
    at = [h[source] for h in hidden[:2]] + [h[step] for h in hidden[2:]]
    assert fires == pytest.approx([float((h > 0).mean()) for h in at])


def test_arrows_connect_the_parts_as_in_figure_1(page):
    arrows = page.eval_on_selector_all("#figure-machine [data-arrow]", "all => all.map(a => a.dataset.arrow)")
    assert {"source in", "target in", "memory", "cross 0", "cross 1", "cross 2", "out", "fed back"} <= set(arrows)
    residual = page.eval_on_selector_all("#figure-machine [data-residual]", "all => all.length")
    assert residual == 2 + 3


def test_a_layer_shows_how_long_its_vectors_are(fresh, trace):
    open_to(fresh, "layer")
    *_, step = selected(fresh)
    rows = [r for r in trace.header["residual"] if r["stack"] == "decoder" and r["layer"] == 1]
    assert values(fresh, "[data-stream]", "stream") == pytest.approx([r["stream"][step] for r in rows])
    assert values(fresh, "[data-added]", "added") == pytest.approx([r["added"][step] for r in rows])


def test_a_head_shows_scores_and_weights_and_a_line_its_product(fresh, trace):
    open_to(fresh, "head")
    layer, head, _, step = selected(fresh)
    path = f"decoder.layers.{layer}.self_attention"
    scores, weights = trace[f"{path}.scores"][head, step], trace[f"{path}.weights"][head, step]
    seen = step + 1
    assert values(fresh, "[data-scaled]", "scaled") == pytest.approx(
        (scores[:seen] / 6**0.5).tolist(), rel=1e-4, abs=1e-6
    )
    assert values(fresh, "[data-weight]", "weight") == pytest.approx(weights[:seen].tolist(), rel=1e-4, abs=1e-7)
    figure(fresh, "machine").locator(LEVELS["dot"]).click()
    settled(fresh)
    assert values(fresh, "[data-dot]", "dot") == pytest.approx([float(scores[0])], rel=1e-4, abs=1e-5)
    assert values(fresh, "[data-score]", "score") == pytest.approx([float(scores[0])], rel=1e-4)


def test_escape_and_breadcrumbs_lead_back(fresh):
    open_to(fresh, "dot")
    machine = figure(fresh, "machine").locator(".machine")
    fresh.keyboard.press("Escape")
    expect(machine).to_have_attribute("data-level", "head")
    figure(fresh, "machine").locator(".crumbs [data-level=whole]").click()
    expect(machine).to_have_attribute("data-level", "whole")


def test_the_keyboard_opens_a_layer(fresh):
    figure(fresh, "machine").locator(LEVELS["layer"]).focus()
    fresh.keyboard.press("Enter")
    expect(figure(fresh, "machine").locator(".machine")).to_have_attribute("data-level", "layer")


def test_a_link_reopens_the_level(browser, fresh):
    open_to(fresh, "dot")
    with opened(browser, fresh.evaluate("location.href"), offline=True) as again:
        expect(figure(again, "machine").locator("[data-dot]")).to_be_visible()


@pytest.mark.parametrize(("family", "gone", "kept"), [("bert", "decoder", "encoder"), ("gpt", "encoder", "decoder")])
def test_related_models_grey_out_missing_parts(fresh, family, gone, kept):
    figure(fresh, "machine").locator(f"input[value={family}]").check()
    settled(fresh)
    grey = "all => all.every(b => b.classList.contains('grey'))"
    assert fresh.eval_on_selector_all(f"#figure-machine [data-box^='{gone}.layers']", grey)
    assert not fresh.eval_on_selector_all(f"#figure-machine [data-box^='{kept}.layers']", grey)


@pytest.mark.parametrize("width", [390, 1600])
def test_the_map_is_available_at_every_width(browser, file, width):
    with opened(browser, file.as_uri(), width=width, offline=True, reduced_motion="reduce") as page:
        if width < 1440:
            page.locator(".contents summary").click()
        page.locator(".map [data-chapter=chapter-7]:visible").click()
        expect(page.locator("#chapter-7 h2")).to_be_in_viewport()
        expect(page.locator(".map [data-chapter=chapter-7][aria-current]")).not_to_have_count(0)
        assert page.locator(".contents[open]").count() == 0
        assert needed_width(page) <= width
        missing = page.eval_on_selector_all(
            "[data-chapter]", "all => all.filter(a => !document.getElementById(a.dataset.chapter)).length"
        )
        assert missing == 0


def test_a_tooltip_goes_with_the_box_that_a_click_opens(fresh):
    box = in_sight(fresh, "machine").locator("[data-box='decoder.layers.1']")
    box.hover()
    expect(fresh.locator(".tip")).to_be_visible()
    box.click()
    expect(box).to_have_count(0)
    expect(fresh.locator(".tip")).to_be_hidden()
