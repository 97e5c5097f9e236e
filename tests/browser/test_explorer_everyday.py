"""Everyday use of the page: compare, go back, link, keep the theme, save a picture."""

import io
import re
import xml.etree.ElementTree as ElementTree

import pytest
from explorer_page import TEXT, figure, in_sight, needed_width, opened, opened_apart, settled
from PIL import Image
from playwright.sync_api import expect

pytestmark = pytest.mark.slow

OTHER = "the new house saw it"


def compare(page, text):
    page.locator("input[name=against]").fill(text)
    page.locator("input[name=against]").press("Enter")
    expect(page.locator("[data-other]")).to_contain_text(text)
    settled(page)


# --- compare


def test_every_figure_of_the_translation_compares_two_sentences(live, tracer):
    compare(live, OTHER)
    expect(live.locator("figure [data-compared]")).to_have_count(19)
    scores = figure(live, "scores")
    shown = [
        scores.locator(f"[data-compared] > {side} .track").evaluate_all("all => all.map(t => Number(t.dataset.value))")
        for side in ("div", "form")
    ]
    layer, head, step = (int(live.locator(".bar select").nth(i).input_value()) for i in range(3))
    for text, values in zip((TEXT, OTHER), shown, strict=True):
        trace = tracer.trace(text)
        rows = trace[f"decoder.layers.{layer}.cross_attention.scores"][head]
        assert any(values == pytest.approx(row.tolist(), rel=1e-3, abs=1e-5) for row in rows)
    assert shown[0] == pytest.approx(
        tracer.trace(TEXT)[f"decoder.layers.{layer}.cross_attention.scores"][head, step].tolist(), rel=1e-3, abs=1e-5
    )
    expect(scores.locator("[data-differences]")).to_contain_text("new")
    live.locator("[data-stop-comparing]").click()
    expect(live.locator("[data-compared]")).to_have_count(0)


def test_the_differences_are_the_largest_and_paired_by_name(page):
    found = page.evaluate(
        """async () => {
            const { differences } = await import("onehop/compare.js");
            const one = { columns: ["key", "p"], rows: [["a", 0.1], ["b", 0.2], ["b", 0.9], ["c", 0.3]] };
            const two = { columns: ["key", "p"], rows: [["d", 5], ["a", 0.15], ["b", 0.2], ["b", 0.1]] };
            return differences(one, two);
        }"""
    )
    assert [(d["row"], d["from"], d["to"]) for d in found["largest"]] == [("b", 0.9, 0.1), ("a", 0.1, 0.15)]
    assert found["only"] == [["c"], ["d"]]


@pytest.mark.parametrize(
    ("place", "there"),
    [(0, 0), (1, 3), (2, 4), (3, 2), (4, 3)],
    ids=["same", "moved", "replaced", "the nearest of three", "behind it"],
)
def test_the_cursor_moves_to_the_corresponding_word(page, place, there):
    found = page.evaluate(
        """async (place) => {
            const { counterpart } = await import("onehop/view.js");
            return counterpart(["a", "weil", "sie", "b", "c"], ["a", "b", "b", "weil", "es", "b"], place);
        }""",
        place,
    )
    assert found == there


def test_heads_are_paired_by_layer_and_number_though_one_model_has_fewer(page):
    found = page.evaluate(
        """async () => {
            const { differences } = await import("onehop/compare.js");
            const columns = ["attention", "layer", "head", "effect"];
            const one = { columns, rows: [["cross", 1, 1, 0.1], ["cross", 1, 2, 0.2], ["cross", 2, 1, 0.3]] };
            const two = { columns, rows: [["cross", 1, 1, 0.1], ["cross", 2, 1, 0.7]] };
            return differences(one, two);
        }"""
    )
    assert found == {
        "largest": [{"row": "cross, layer 2, head 1", "column": "effect", "from": 0.3, "to": 0.7}],
        "only": [["cross, layer 1, head 2"], []],
    }


def test_an_edited_model_is_compared_with_the_unedited_one(browser, address, tracer):
    with opened(browser, f"{address}#edit=scale=off") as page:
        page.locator("[data-against-trained]").click()
        expect(page.locator("figure [data-compared]").first).to_be_visible()
        settled(page)
        assert "against=%40trained" in page.evaluate("location.hash")
        left, right = in_sight(page, "matrix").locator("h4.side").all_inner_texts()
        assert (left, right) == (f"{TEXT} (scale=off)", TEXT)


def test_a_sentence_that_cannot_be_compared_says_why(live):
    live.locator("input[name=against]").fill("the old house " * 720)
    live.locator("input[name=against]").press("Enter")
    expect(live.locator(".against .error")).to_be_visible()
    expect(live.locator("[data-compared]")).to_have_count(0)


# --- two models


def scores_of(trace, place, query):
    return trace[f"decoder.layers.{place['layer']}.cross_attention.scores"][place["head"], query].tolist()


def test_every_figure_compares_two_models(browser, beside, tracer, second):
    with opened(browser, f"{beside}#against=@model:second") as page:
        expect(page.locator("[data-other]")).to_contain_text("second")
        expect(page.locator("figure [data-compared]")).to_have_count(19)
        settled(page)
        assert in_sight(page, "scores").locator("h4.side").all_inner_texts() == ["tiny", "second"]
        traces = [model.trace(TEXT) for model in (tracer, second)]
        assert traces[0].header["target"]["output_tokens"] != traces[1].header["target"]["output_tokens"]
        step = page.evaluate("window.onehop.view().otherView().selection.step")
        steps = [int(page.locator(".bar select").nth(2).input_value()), step]
        for side, trace, query in zip(("div", "form"), traces, steps, strict=True):
            tracks = figure(page, "scores").locator(f"[data-compared] > {side} .track")
            values = tracks.evaluate_all("all => all.map(t => Number(t.dataset.value))")
            assert values == pytest.approx(scores_of(trace, trace.header["aligner"], query), rel=1e-3, abs=1e-5)
        drawn = page.locator("[data-other] .line").inner_text().replace("\n", " ").split()
        assert set(second.trace(TEXT).text.split()) <= set(drawn)


def test_requests_about_the_second_model_go_to_its_backend(browser, beside, tracer, second):
    """Figures request matrices and neurons from both models, and the sweep covers both."""
    with opened(browser, beside) as page:
        page.locator("[data-against-model]").click()
        expect(page.locator("figure [data-compared]")).to_have_count(19)
        settled(page)
        assert "against=%40model%3Asecond" in page.evaluate("location.hash")
        shown = page.evaluate(
            """async () => {
                const { backend } = window.onehop.view().otherView();
                return [await backend.weights("cross", 3, 1), await backend.neurons("decoder", 3, [2])];
            }"""
        )
        assert shown == [second.weights("cross", 3, 1), second.neurons("decoder", 3, [2])]
        page.evaluate("window.onehop.view().startSweep()")
        for side, model in (("div", tracer), ("form", second)):
            half = figure(page, "decides").locator(f"[data-compared] > {side}")
            expect(half.locator("[data-decides]")).to_be_attached()
            word = page.evaluate(
                """async (side) => {
                    const { wordInQuestion } = await import("onehop/ablation.js");
                    const view = window.onehop.view();
                    return wordInQuestion(side === "div" ? view : view.otherView());
                }""",
                side,
            )
            drawn = half.locator("[data-grid=effect] [data-head]").evaluate_all(
                "all => Object.fromEntries(all.map(c => [c.dataset.head, Number(c.dataset.value)]))"
            )
            computed = {
                f"{part.role}.{part.layer}.{head}": sum(effects[word[0] : word[-1] + 1])
                for part in model.heads_off(model.trace(TEXT).header)
                for head, effects in enumerate(part.effect.tolist())
            }
            assert drawn == pytest.approx(computed, abs=1e-5)


def test_a_link_to_a_model_that_is_not_open_says_how_to_open_it(browser, address):
    with opened(browser, f"{address}#against=@model:mine") as page:
        expect(page.locator(".against .error")).to_have_text(
            "The model mine is not open here: onehop explore --compare mine opens it."
        )
        expect(page.locator("[data-compared]")).to_have_count(0)


# --- back, links, theme


def test_back_undoes_a_sentence_and_an_edit(live):
    live.locator("input[name=sentence]").fill(OTHER)
    live.locator("input[name=sentence]").press("Enter")
    expect(live.locator(".answer")).to_have_attribute("data-sentence", OTHER)
    settled(live)
    figure(live, "breaking").get_by_label("no positions", exact=True).check()
    expect(live.locator(".bar .edited")).to_have_text("edited: no positions")
    settled(live)
    live.go_back()
    expect(live.locator(".bar .edited")).to_have_count(0)
    expect(live.locator(".answer")).to_have_attribute("data-sentence", OTHER)
    settled(live)
    live.go_back()
    expect(live.locator(".answer")).to_have_attribute("data-sentence", TEXT)
    settled(live)
    live.go_forward()
    expect(live.locator(".answer")).to_have_attribute("data-sentence", OTHER)


def test_a_slider_adds_no_history_entry(fresh):
    before = fresh.evaluate("history.length")
    figure(fresh, "divisor").locator("input[type=range]").fill("9")
    settled(fresh)
    assert fresh.evaluate("history.length") == before


def test_a_figures_link_reopens_it_in_its_state(browser, file):
    with opened_apart(browser, file.as_uri()) as page:
        page.context.grant_permissions(["clipboard-read", "clipboard-write"])
        figure(page, "divisor").locator("input[type=range]").fill("9")
        figure(page, "divisor").locator("[data-tool=link]").click()
        expect(figure(page, "divisor").locator("[data-tool=link]")).to_have_text("copied")
        link = page.evaluate("navigator.clipboard.readText()")
    assert link.endswith("&at=divisor")
    with opened(browser, link) as page:
        expect(figure(page, "divisor").locator("input[type=range]")).to_have_value("9")
        expect(figure(page, "divisor")).to_be_in_viewport()


def test_the_theme_is_stored(browser, address):
    context = browser.new_context(color_scheme="light")
    try:
        page = context.new_page()
        page.set_default_timeout(60_000)
        page.goto(address)
        settled(page)
        page.locator(".masthead-top button").click()
        expect(page.locator("html")).to_have_attribute("data-theme", "dark")
        page.reload()
        expect(page.locator("html")).to_have_attribute("data-theme", "dark")
    finally:
        context.close()


@pytest.mark.parametrize("width", [320, 390, 900, 1440, 2560])
def test_the_table_of_contents_is_available_at_every_width(browser, file, width):
    with opened(browser, file.as_uri(), width=width, offline=True) as page:
        if page.locator(".contents summary").is_visible():
            page.locator(".contents summary").click()
        link = page.locator("a[data-chapter=chapter-7]:visible").last
        link.click()
        expect(page.locator("#chapter-7-title")).to_be_in_viewport()
        assert needed_width(page) <= width


def test_an_earlier_scroll_that_ends_does_not_hide_figures_during_a_jump(browser, file):
    with opened(browser, file.as_uri(), width=320, offline=True) as page:
        page.evaluate(
            "document.querySelector('li a[data-chapter=chapter-7]').click(); dispatchEvent(new Event('scrollend'))"
        )
        expect(page.locator("html")).to_have_attribute("data-every-height", "")
        expect(page.locator("#chapter-7-title")).to_be_in_viewport()
        expect(page.locator("html")).not_to_have_attribute("data-every-height", "")


@pytest.mark.parametrize("width", [390, 1440])
def test_every_label_of_a_picture_is_readable_and_inside_its_figure(browser, many_heads, width):
    with opened(browser, many_heads, width=width) as page:
        labels = page.evaluate("""() => {
          document.documentElement.setAttribute("data-every-height", "");
          const texts = [...document.querySelectorAll("svg text")];
          return texts.filter((t) => t.textContent.trim() && t.checkVisibility()).map((text) => {
            const { a, b } = text.getScreenCTM();
            const size = parseFloat(getComputedStyle(text).fontSize) * Math.hypot(a, b);
            const [box, frame] = [text, text.closest("figure, nav")].map((e) => e.getBoundingClientRect());
            const scrolls = text.closest(".scroll");
            const inside = scrolls || (box.left >= frame.left && box.right <= frame.right);
            return { text: text.textContent.trim(), of: text.closest("[id]").id, size, inside };
          });
        }""")
        assert len(labels) > 100
        assert [label for label in labels if not (label["size"] >= 11 and label["inside"])] == []


# --- pictures


def saved(page, name, kind):
    with page.expect_download() as download:
        figure(page, name).locator(f"[data-tool={kind}]").click()
    assert download.value.suggested_filename == f"{name}.{kind}"
    return download.value.path().read_bytes()


@pytest.mark.parametrize("name", ["matrix", "scores", "machine", "heads"])
def test_a_figure_is_saved_as_a_self_contained_svg(page, name):
    text = saved(page, name, "svg").decode()
    root = ElementTree.fromstring(text)
    size = figure(page, name).bounding_box()
    assert float(root.get("width")) == pytest.approx(size["width"], abs=2)
    assert "var(--" not in text
    assert "foreignObject" not in text
    assert len(re.findall(r"<(rect|path|circle|image)\b", text)) > 20
    words = " ".join("".join(t.itertext()) for t in root.iter() if t.tag.endswith("text"))
    for word in in_sight(page, name).locator("h3").inner_text().split():
        assert word in words


def test_the_svg_has_the_marks_of_the_figure(page):
    text = saved(page, "matrix", "svg").decode()
    on_screen = page.eval_on_selector_all(
        "#figure-matrix svg rect[fill-opacity]",
        "all => all.map(r => Number(r.getAttribute('fill-opacity')).toFixed(3))",
    )
    shades = {f"{float(x):.3f}" for x in re.findall(r'fill-opacity="([\d.]+)"', text)}
    assert set(on_screen) <= shades | {"1.000"}


def test_a_figure_is_saved_as_png(page):
    picture = Image.open(io.BytesIO(saved(page, "scores", "png")))
    size = figure(page, "scores").bounding_box()
    assert picture.size[0] == pytest.approx(2 * size["width"], abs=4)
    colours = picture.convert("RGB").getcolors(1 << 24)
    assert len(colours) > 20


# --- the language of the sentence


def test_a_sentence_in_another_language_gets_a_hint(live):
    german = "Die Katze saß auf der Matte, weil sie sehr müde war."
    live.locator("input[name=sentence]").fill(german)
    live.locator("input[name=sentence]").press("Enter")
    expect(live.locator("[data-language=de]")).to_contain_text("This looks like German")
    live.get_by_role("button", name="The dog bites the man.").click()
    expect(live.locator(".answer")).to_have_attribute("data-sentence", "The dog bites the man.")
    expect(live.locator("[data-language]")).to_have_count(0)
