"""The page in a browser: numbers equal Python's, controls work by mouse and keyboard, hostile input is harmless."""

import json
import math
import re
import shutil
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import numpy as np
import pytest
from axe_playwright_python.sync_playwright import Axe
from explorer_page import (
    FIGURES,
    TEXT,
    TOKENS,
    assert_same,
    figure,
    in_sight,
    needed_width,
    open_all_tables,
    opened,
    opened_apart,
    picture_of,
    python_rows,
    settled,
    shown_rows,
)
from playwright.sync_api import expect

from onehop.errors import OnehopError
from onehop.explorer import content
from onehop.explorer.content import Explorer, worked_example
from onehop.explorer.html import FOLDER
from onehop.explorer.view import View
from onehop.interpret.trace_file import unpack

pytestmark = pytest.mark.slow  # a browser, and a hundred times


# --- what is there


def test_the_page_has_all_specified_figures_in_nine_chapters(page):
    found = page.eval_on_selector_all("figure", "all => all.map(f => [f.dataset.figure, Number(f.dataset.item)])")
    assert dict(found) == FIGURES
    assert set(FIGURES.values()) == set(range(1, 27))
    assert page.locator(".chapter > .eyebrow").all_inner_texts() == [
        "INTRODUCTION",
        "BEFORE CHAPTER 1",
        *(f"CHAPTER {i}" for i in range(1, 10)),
    ]
    assert page.locator(".coda .eyebrow").all_inner_texts() == ["APPENDIX"]
    expect(figure(page, "patches").locator(".figure-number")).to_have_text("Figure A.1")


@pytest.mark.parametrize("name", FIGURES)
def test_every_figure_has_a_title_a_control_and_a_picture(page, name):
    place = in_sight(page, name)
    label = place.get_attribute("aria-labelledby")
    assert page.locator(f"#{label}").inner_text().strip()
    assert place.locator("input, select, button:not([data-tool]), [tabindex]").count() > 0
    assert place.locator("figcaption").inner_text().strip()
    picture = picture_of(page, place.locator(".figure-body"))
    paper, *inks = sorted(picture.getcolors(maxcolors=1 << 24), reverse=True)
    assert len(inks) > 10
    assert sum(count for count, _ in inks) > 0.02 * paper[0]


def test_every_tensor_that_a_figure_declares_is_in_a_trace(tracer):
    """An exported page leaves out tensors that no figure declares."""
    trace = tracer.trace(TEXT)
    kept = {name for name in trace if content.is_shown(name, trace.header)}
    projected = {name for inputs in trace.header["inputs"].values() for name in inputs.values()}
    stand_for = {
        "{attention}": list(trace.header["inputs"]),
        "{input}": ["source_input", "target_input"],
        "{projected}": sorted(projected),
        "{feed_forward}": [name.removesuffix(".hidden") for name in trace if name.endswith(".hidden")],
    }
    needed = set()
    declared = {
        file.stem: re.search(r"export const needs = \[(.*?)\]", file.read_text(encoding="utf-8"), re.DOTALL)
        for file in (FOLDER / "figures").glob("*.js")
    }
    assert set(declared) == set(FIGURES)
    for needs in declared.values():
        for pattern in re.findall(r'"(.*?)"', needs[1]):
            mark = re.match(r"\{\w+\}", pattern)
            needed |= {pattern.replace(mark[0], place) for place in stand_for[mark[0]]} if mark else {pattern}
    assert needed == kept < set(trace)


@pytest.mark.parametrize("role", ["encoder", "decoder", "cross"])
def test_a_figure_reads_no_tensor_that_it_does_not_declare(fresh, tracer, role):
    fresh.locator(f".bar input[value={role}]").check()
    settled(fresh)
    read = fresh.evaluate(
        """async names => {
            const { Trace } = await import("onehop/tensors.js");
            const [read, found] = [Trace.prototype.tensor, {}];
            for (const name of names) {
                const [figure, seen] = [await import(`onehop/figures/${name}.js`), new Set()];
                Trace.prototype.tensor = function (tensor) { seen.add(tensor); return read.call(this, tensor); };
                for (const part of ["draw", "caption", "table", "python"]) figure[part](window.onehop.view());
                found[name] = { needs: figure.needs, seen: [...seen] };
            }
            Trace.prototype.tensor = read;
            return found;
        }""",
        list(FIGURES),
    )
    header = tracer.trace(TEXT).header
    paths = "|".join(map(re.escape, header["inputs"]))
    projected = "|".join(re.escape(name) for inputs in header["inputs"].values() for name in inputs.values())
    marks = {"{attention}": f"({paths})", "{input}": "(source|target)_input", "{projected}": f"({projected})"}
    marks["{feed_forward}"] = r"(en|de)coder\.layers\.\d+\.feed_forward"
    assert any(found["seen"] for found in read.values())
    for name, found in read.items():
        patterns = [re.sub(r"\{\w+\}", lambda mark: marks[mark[0]], need) for need in found["needs"]]
        assert [t for t in found["seen"] if not any(re.fullmatch(p, t) for p in patterns)] == [], name


# --- the numbers


@pytest.mark.parametrize("name", FIGURES)
def test_the_numbers_of_tables_equal_pythons(page, tracer, name):
    assert_same(shown_rows(page, name), python_rows(page, name, tracer), name)


@pytest.mark.parametrize(
    "selection",
    [
        "role=decoder&layer=2&head=3&step=4&page.words=yes",
        "role=cross&layer=3&head=2&step=2&lookup.kind=attention&divisor.place=7",
    ],
)
def test_the_numbers_equal_pythons_for_other_selections(browser, file, tracer, selection):
    with opened(browser, f"{file.as_uri()}#{selection}", offline=True) as page:
        for name in (
            "embeddings",
            "projections",
            "scores",
            "divisor",
            "blend",
            "matrix",
            "heads",
            "arcs",
            "mask",
            "residual",
            "beam",
            "lookup",
        ):
            assert_same(shown_rows(page, name), python_rows(page, name, tracer), name)


def test_marks_have_the_numbers_of_the_table(page):
    weights = [float(row[1]) for row in shown_rows(page, "arcs")]
    drawn = [float(w) for w in page.eval_on_selector_all("#figure-arcs path", "all => all.map(p => p.dataset.weight)")]
    assert sorted(drawn) == sorted(w for w in weights if w >= 0.02)
    scores = [float(row[1]) for row in shown_rows(page, "scores")]
    bars = page.eval_on_selector_all("#figure-scores .track", "all => all.map(t => Number(t.dataset.value))")
    assert bars == pytest.approx(scores)
    assert float(page.locator("[data-row-sum]").get_attribute("data-row-sum")) == pytest.approx(1, abs=1e-3)


def test_the_head_that_looks_most_from_it_to_its_noun_is_named_for_this_sentence(fresh, tracer):
    """What follows the article is taken for the noun, until the reader chooses; a word may have several pieces."""
    trace = tracer.trace(TEXT)
    assert trace.header["source"]["tokens"] == ["▁the", "▁old", "▁house", "▁", "s", "a", "w", "▁it", "</s>"]
    it, nouns = 7, {"old": [1], "saw": [4, 5, 6]}
    looks = [trace[f"encoder.layers.{layer}.self_attention.weights"] for layer in range(2)]
    place = figure(fresh, "coreference")
    for noun, pieces in nouns.items():
        if noun != "old":
            place.locator("select").nth(1).select_option(noun)
        settled(fresh)
        found = np.stack([look[:, it, pieces].sum(1) for look in looks])
        layer, head = np.unravel_index(found.argmax(), found.shape)
        told = place.locator("[data-to-noun]")
        assert float(told.get_attribute("data-to-noun")) == pytest.approx(found.max(), rel=1e-5)
        expect(told).to_contain_text(f"layer {layer + 1}, head {head + 1} looks most from “it” to “{noun}”")
    told.get_by_role("button").click()
    expect(fresh.locator(".bar select").nth(0)).to_have_value(str(layer))
    expect(fresh.locator(".bar select").nth(1)).to_have_value(str(head))


def test_the_head_that_looks_most_from_the_pronoun_to_it_is_named_too(fresh, tracer):
    """The third piece is replaced by "sie", because the tiny model writes no pronoun."""
    told = fresh.evaluate(
        """async () => {
            const { draw } = await import("onehop/figures/coreference.js");
            const { render } = await import("onehop/vendor/lit-html.js");
            const view = window.onehop.view();
            view.trace.target.output_tokens[2] = "▁sie";
            const place = document.createElement("div");
            render(draw(view), place);
            const found = place.querySelector("[data-to-it]");
            return [found.innerText.replace(/\\s+/g, " "), Number(found.dataset.toIt)];
        }"""
    )
    trace = tracer.trace(TEXT)
    looks = np.stack([trace[f"decoder.layers.{layer}.cross_attention.weights"][:, 2, 7] for layer in range(3)])
    layer, head = np.unravel_index(looks.argmax(), looks.shape)
    assert told[1] == pytest.approx(looks.max(), rel=1e-5)
    assert f"layer {layer + 1}, head {head + 1} of the cross-attention looked most at “it”" in " ".join(told[0].split())


def test_a_model_that_reads_no_english_is_given_no_english_sentence(live):
    drawn = """async (language) => {
        const { draw } = await import("onehop/figures/coreference.js");
        const { render } = await import("onehop/vendor/lit-html.js");
        const view = window.onehop.view();
        view.trace.model.source = language;
        const place = document.createElement("div");
        render(draw(view), place);
        return place.innerText;
    }"""
    english, german = (live.evaluate(drawn, language) for language in ("en", "de"))
    assert "Open this sentence" in english
    assert "In the sentence on this page" in english
    assert "Open this sentence" not in german
    assert "The model on this page does not read English: the list is another model's." in german


def test_all_heads_tied_for_first_rank_are_named(fresh):
    told = fresh.evaluate(
        """async () => {
            const { draw } = await import("onehop/figures/patterns.js");
            const { render } = await import("onehop/vendor/lit-html.js");
            const heads = [{ role: "encoder", layer: 0, head: 0 }];
            const read = (all) => {
                const pattern = { name: "p", role: "encoder", sentences: 200, chance: 0.1, heads, all };
                const place = document.createElement("div");
                render(draw({ ...window.onehop.view(), measured: { patterns: { patterns: [pattern] } } }), place);
                const cells = [...place.querySelectorAll("td.cell")].map((cell) => cell.innerText);
                return [place.querySelector(".reading").innerText.replace(/\\s+/g, " "), cells];
            };
            return [read([[1, 0.995], [0.2, 0]]), read([[1, 1], [0.2, 0]])];
        }"""
    )
    assert "The clearest: encoder self, layer 1, head 1, where it holds in 200 of 200" in told[0][0]
    assert "next layer 1, head 2 with 199" in told[0][0]
    assert told[0][1] == ["100", "99", "20", "0"]
    assert "Equally clear: encoder self, layer 1, head 1; layer 1, head 2" in told[1][0]


def test_scores_name_their_test_set_and_lengths_the_longest_training_sentence(page):
    for name in ("pruning", "lengths"):
        expect(figure(page, name).locator("figcaption")).to_contain_text("few, greedy search")
    expect(figure(page, "lengths").locator(".reading")).to_contain_text("no sentence of more than 4 pieces")


def test_entropy_is_in_bits_everywhere(page):
    bits = page.evaluate("async () => (await import('onehop/maths.js')).entropy([0.25, 0.25, 0.25, 0.25])")
    assert bits == pytest.approx(2)
    assert "nats" not in page.locator("main").text_content()


def test_the_prose_of_chapter_4_has_the_measured_gradients(page, data):
    """The text takes the model's own width if it was measured; the tiny model's width, 6, was not."""
    rows = json.loads((data / "dimension.json").read_text(encoding="utf-8"))["rows"]
    at = {row["d"]: row["scaled"]["gradient"] / row["unscaled"]["gradient"] for row in rows}
    said = page.evaluate(
        "async () => { const { gradientShrinkage } = await import('onehop/chapters.js');"
        " const { render } = await import('onehop/vendor/lit-html.js'); const place = document.createElement('div');"
        " render(gradientShrinkage(window.onehop.view().measured.dimension, 64), place); return place.innerText; }"
    )
    assert f"{at[64]:.1f} times smaller." in said
    assert f"At d = 1024 it is {at[1024]:.1f} times smaller" in " ".join(said.split())


def test_the_page_multiplies_with_the_real_matrices(fresh):
    for role in ("encoder", "decoder", "cross"):
        fresh.locator(f".bar input[value={role}]").check()
        for kind in "qkv":
            figure(fresh, "projections").locator(f"input[value={kind}]").check()
            settled(fresh)
            error = fresh.locator("[data-product-error]").get_attribute("data-product-error")
            assert float(error) < 1e-3, (role, kind)


def test_the_page_recomputes_itself_and_shows_the_largest_error(page):
    error = page.locator("[data-error]")
    assert 0 < float(error.get_attribute("data-error")) < 1e-3
    assert "10⁻" in error.text_content()


@pytest.mark.parametrize("edit", ["scale=off", "scale=3@decoder.1", "mask=off", "head=off@cross.1.0", "norm=off"])
def test_the_recomputed_errors_stay_small_under_edits(phone, edit):
    """Each by its link, in a page that is open already."""
    phone.evaluate("hash => (location.hash = hash)", f"edit={edit}")
    expect(phone.locator(".bar .edited")).to_have_attribute("data-edits", edit)
    settled(phone)
    assert float(phone.locator("[data-error]").get_attribute("data-error")) < 1e-3


def test_patch_weights_are_those_of_the_vision_model(fresh, data):
    """Another image, head and token by hand; shades and numbers are those of the model's own weights."""
    place = figure(fresh, "patches")
    place.locator("select").select_option("2")
    place.locator(".small").nth(4).click()
    place.locator(TOKENS.format(5)).first.click()
    found = json.loads((data / "patches.json").read_text(encoding="utf-8"))
    weights = unpack(found)["weights"].values[2, 1, 1, 5].astype(float)
    shown = shown_rows(fresh, "patches")
    assert [row[0] for row in shown[:5]] == ["gathering token", "patch 1, 1", "patch 1, 2", "patch 1, 3", "patch 2, 1"]
    assert [float(row[1]) for row in shown] == pytest.approx(weights.tolist())
    assert weights.sum() == pytest.approx(1, abs=2e-3)
    drawn = fresh.eval_on_selector_all(
        "#figure-patches .pair svg:last-child rect[fill-opacity]",
        "all => all.map(r => Number(r.getAttribute('fill-opacity')))",
    )
    root = np.sqrt(weights[1:] / weights.max())
    assert drawn == pytest.approx((0.85 * (0.03 + 0.97 * root)).tolist(), abs=1e-3)
    read = int(np.argmax(found["images"][2]["probabilities"]))
    expect(place.locator(".reading").first).to_contain_text(f"It is a 3, read as {read}.")


def test_dials_set_before_a_redraw_are_all_kept(fresh):
    fresh.evaluate(
        """() => {
            const figure = document.querySelector("#figure-patches");
            const images = figure.querySelector("select");
            images.value = "2";
            images.dispatchEvent(new Event("change", { bubbles: true }));
            figure.querySelectorAll(".small")[4].click();
        }"""
    )
    expect(fresh).to_have_url(re.compile("patches.image=2&patches.layer=1&patches.head=1$"))


def test_the_worked_example_has_the_golden_numbers(page):
    steps = worked_example()["steps"]
    read = {row[0]: row[1:] for row in shown_rows(page, "worked")}
    names = {
        "q": "q",
        "k": "k",
        "v": "v",
        "scores": "scores",
        "scaled": "scaled_scores",
        "weights": "weights",
        "output": "head_outputs",
    }
    for shown, name in names.items():
        for word, row in zip(["Hello", "World"], steps[name], strict=True):
            numbers = [float(x) for x in read[f"{shown} {word}"][: len(row)]]
            assert numbers == pytest.approx(row), name


def test_tables_are_the_same_live_and_from_the_file(page, live):
    for name in ("scores", "blend", "matrix", "beam", "residual", "machine"):
        assert shown_rows(live, name) == shown_rows(page, name), name


# --- the controls

SLIDER = "input[type=range]"
# For each figure what a mouse clicks, and which keys on what move its control.
CONTROLS = {
    **dict.fromkeys(
        ("embeddings", "projections", "scores", "blend", "residual", "patches"),
        (TOKENS.format(1), TOKENS.format(1), "ArrowRight"),
    ),
    "matrix": (TOKENS.format(4), TOKENS.format(4), "ArrowDown"),
    "arcs": (TOKENS.format(1), TOKENS.format(1), "ArrowDown"),
    **dict.fromkeys(
        (
            "divisor",
            "dimension",
            "positions",
            "paths",
            "beam",
            "complexity",
            "pruning",
            "lengths",
            "refresher",
        ),
        (SLIDER, SLIDER, "ArrowLeft"),
    ),
    "heads": ("button.small >> nth=1", "button.small[aria-pressed=true]", "ArrowRight"),
    "mask": ("input[type=checkbox]", "input[type=checkbox]", " "),
    "warmup": ("input[type=checkbox] >> nth=0", "input[type=checkbox] >> nth=1", " "),
    "breaking": ("input[type=checkbox] >> nth=0", "input[type=checkbox] >> nth=3", " "),
    "machine": ("[data-box='encoder.layers.0']", "[data-box='encoder.layers.0.self_attention']", "Enter"),
    "decides": (TOKENS.format(1), TOKENS.format(1), "ArrowRight"),
    "lens": (TOKENS.format(1), TOKENS.format(1), "ArrowRight"),
    "neurons": (TOKENS.format(1), TOKENS.format(1), "ArrowRight"),
    "worked": ("input[type=number] >> nth=0", "input[type=number] >> nth=0", "ArrowUp"),
    "family": ("input[value=smoothing]", "input[value=smoothing]", "ArrowRight"),
    "results": ("input[value=en_fr]", "input[value=en_fr]", "ArrowLeft"),
    "lookup": ("input[value=library]", "input[value=dictionary]", "ArrowLeft"),
    "coreference": ("select", "select", "ArrowDown"),
    "patterns": (TOKENS.format(1), TOKENS.format(1), "ArrowRight"),
}


def body(page, name):
    """A figure's picture as markup, with what the reader has set in it."""
    settled(page)
    return page.evaluate(
        "id => { const b = document.querySelector(`#figure-${id} .figure-body`);"
        " return b.innerHTML + [...b.querySelectorAll('input, select')].map(i => `${i.value} ${i.checked}`).join(); }",
        name,
    ).replace("previewed", "")


def by_mouse(page, name, selector):
    target = in_sight(page, name).locator(selector).first
    if selector == "select":
        return target.select_option(index=1)
    if selector == SLIDER:
        target.scroll_into_view_if_needed()
        box = target.bounding_box()
        return page.mouse.click(box["x"] + 0.86 * box["width"], box["y"] + box["height"] / 2)
    if selector.startswith("input[type=number]"):
        target.click()
        target.fill("0.7")
        return page.keyboard.press("Tab")
    return target.click()


@pytest.mark.parametrize("name", FIGURES)
def test_the_control_works_by_mouse_and_by_keyboard(page, name):
    click, focus, key = CONTROLS[name]
    for chosen in ("scores", "lens"):  # all figures have one cursor, and the figure before has left it somewhere
        figure(page, chosen).locator(TOKENS.format(0)).first.click()
    before = body(page, name)
    by_mouse(page, name, click)
    page.mouse.move(0, 0)
    after = body(page, name)
    assert after != before
    figure(page, name).locator(focus).first.focus()
    page.keyboard.press(key)
    if name == "worked":
        page.keyboard.press("Tab")
    assert body(page, name) != after


def test_hovering_previews_a_click_locks_and_escape_releases(fresh):
    arcs = figure(fresh, "arcs")
    readers = arcs.locator(".figure-body")
    locked = body(fresh, "arcs")
    arcs.locator(TOKENS.format(2)).hover()
    settled(fresh)
    expect(arcs.locator(f"{TOKENS.format(2)} text")).to_have_attribute("font-weight", "700")
    assert body(fresh, "arcs") != locked
    fresh.mouse.move(0, 0)
    assert body(fresh, "arcs") == locked
    arcs.locator(TOKENS.format(2)).click()
    fresh.mouse.move(0, 0)
    settled(fresh)
    expect(arcs.locator("[aria-checked=true]")).to_have_count(1)
    fresh.keyboard.press("Escape")
    settled(fresh)
    expect(arcs.locator("[aria-checked=true]")).to_have_count(0)
    expect(readers.locator("button")).to_have_text("lock the chosen token")


def test_one_selection_moves_every_figure(fresh):
    names = ("projections", "scores", "blend", "matrix", "arcs", "heads")
    before = {name: body(fresh, name) for name in names}
    heads = fresh.locator(".bar select").nth(1)
    heads.select_option(index=(int(heads.input_value()) + 1) % 3)
    assert [name for name in names if body(fresh, name) == before[name]] == []


def test_the_python_lines_can_be_copied(browser, file):
    with opened_apart(browser, file.as_uri()) as page:
        page.context.grant_permissions(["clipboard-read", "clipboard-write"])
        button = figure(page, "scores").locator("[data-tool=python]")
        button.click()
        expect(button).to_have_text("copied")
        assert page.evaluate("navigator.clipboard.readText()") == page.evaluate("window.onehop.snippet('scores')")


# --- the link


def everything(page):
    settled(page)
    return page.evaluate("[...document.querySelectorAll('figure .figure-body, .answer, .bar')].map(e => e.textContent)")


def test_a_link_reopens_exactly_this_view(browser, file, fresh):
    fresh.locator(".bar input[value=cross]").check()
    fresh.locator(".bar select").nth(0).select_option("2")
    fresh.locator(".bar select").nth(1).select_option("1")
    figure(fresh, "matrix").locator(TOKENS.format(3)).click()
    figure(fresh, "divisor").locator(SLIDER).fill("9")
    figure(fresh, "beam").locator(SLIDER).fill("3")
    figure(fresh, "worked").locator("input[type=number]").first.fill("0.25")
    fresh.keyboard.press("Tab")
    figure(fresh, "breaking").locator("input[type=checkbox]").nth(2).check()
    fresh.mouse.move(0, 0)
    wanted = everything(fresh)
    with opened(browser, fresh.evaluate("location.href"), offline=True) as again:
        assert everything(again) == wanted


@pytest.mark.parametrize(
    "hash",
    [
        "layer=99&head=99&source=99&step=99",
        "role=nobody&layer=x&source=-3",
        "edit=<script>&worked.entries=x&divisor.place=zzz",
        "%%%&=&sentence=",
    ],
)
def test_an_invalid_link_opens_the_nearest_valid_selection(browser, file, hash):
    with opened(browser, f"{file.as_uri()}#{hash}", offline=True) as page:
        expect(page.locator("figure[data-drawn]")).to_have_count(len(FIGURES))


# --- breaking the model


def test_an_edit_is_translated_by_the_real_model_beside_the_unedited_one(live, tracer):
    label = next(offer["label"] for offer in Explorer(tracer).about()["edits"] if offer["edits"] == ["positions=off"])
    figure(live, "breaking").get_by_label(label, exact=True).check()
    broken = figure(live, "breaking").locator("[data-variant]")
    expect(broken).to_contain_text(tracer.variant(TEXT, ["positions=off"])["target"]["text"].split()[0])
    expect(live.locator(".bar .edited")).to_have_text("edited: no positions")
    settled(live)
    assert_same(shown_rows(live, "scores"), python_rows(live, "scores", tracer), "scores")
    assert_same(shown_rows(live, "breaking"), python_rows(live, "breaking", tracer), "breaking")
    live.get_by_role("button", name="as trained").click()
    expect(live.locator(".bar .edited")).to_have_count(0)


def test_the_file_holds_a_dozen_edits_one_at_a_time(fresh, tracer):
    boxes = figure(fresh, "breaking").locator("input[type=checkbox]")
    expect(boxes).to_have_count(12)
    boxes.nth(0).check()
    boxes.nth(3).check()
    settled(fresh)
    expect(figure(fresh, "breaking").locator("input:checked")).to_have_count(1)
    assert_same(shown_rows(fresh, "breaking"), python_rows(fresh, "breaking", tracer), "breaking")


def test_a_file_made_with_an_edit_says_so(browser, explorer, tmp_path):
    edited = tmp_path / "edited.html"
    edited.write_text(explorer.alone(TEXT, ["scale=off"]), encoding="utf-8")
    with opened(browser, edited.as_uri(), offline=True) as page:
        expect(page.locator(".bar .edited")).to_have_text("edited: scores not divided at all")
        expect(figure(page, "breaking")).to_contain_text("As this file was made, edited: scores not divided")


def test_edits_missing_in_an_exported_file_are_refused_in_one_line(browser, file):
    with opened(browser, f"{file.as_uri()}#edit=scale=off&edit=mask=off", offline=True) as page:
        expect(figure(page, "breaking").locator(".error")).to_have_text(
            "This copy holds some edits, one at a time. onehop explore computes any."
        )


def test_a_head_whose_matrices_the_file_lacks_says_so(browser, file, tracer):
    other = (tracer.trace(TEXT).header["aligner"]["head"] + 1) % 3
    with opened(browser, f"{file.as_uri()}#head={other + 1}", offline=True) as page:
        expect(figure(page, "projections")).to_contain_text(
            "This copy holds the matrices of the head that it opens with. onehop explore has all."
        )


# --- what a reader may type

HOSTILE = {
    "script": "</script><script>alert(1)</script><img src=x onerror=alert(2)>",
    "long": "the old house " * 720,
    "emoji": "👩‍👩‍👧‍👦 the house 🏳️‍🌈",
    "right to left": "הבית הישן \u202eesuoh eht\u202c البيت",
    "zero width": "\u200b\u200c\u200d\u2060\ufeff",
    "empty": "",
    "compound": "Donaudampfschifffahrtselektrizitätenhauptbetriebswerkbauunterbeamtengesellschaft",
}


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_sentence_breaks_nothing(phone, explorer, name):
    phone.evaluate("location.hash = ''")
    settled(phone)
    phone.locator("input[name=sentence]").fill(HOSTILE[name])
    phone.locator("input[name=sentence]").press("Enter")
    try:
        explorer.trace(HOSTILE[name])
    except OnehopError as error:
        expect(phone.locator(".masthead .error")).to_have_text(str(error))
    else:
        expect(phone.locator(".answer")).to_have_attribute("data-sentence", HOSTILE[name])
        settled(phone)
    expect(phone.locator("figure[data-drawn]")).to_have_count(len(FIGURES))
    assert needed_width(phone) <= 390
    assert phone.locator("img[src=x]").count() == 0


def test_a_click_translates_a_sample_sentence(live):
    live.get_by_role("button", name="The dog bites the man.").click()
    expect(live.locator(".answer")).to_have_attribute("data-sentence", "The dog bites the man.")
    settled(live)
    assert "sentence=The+dog+bites+the+man." in live.evaluate("location.hash")


def test_a_running_translation_is_announced(browser, address):
    with opened_apart(browser, address, wait=False) as page:
        held = []
        page.route("**/api/trace", lambda route: held.append(route))
        page.reload()
        expect(page.get_by_role("status")).to_have_text("Opening the translation …")
        page.wait_for_timeout(100)
        held[0].continue_()
        settled(page)


def test_a_long_translation_shows_progress_and_can_be_stopped(browser, slow):
    address, stopped = slow
    with opened(browser, address) as page:
        page.locator("input[name=sentence]").fill("the new bird")
        page.locator("input[name=sentence]").press("Enter")
        status = page.locator(".model-status")
        expect(status).to_contain_text("pieces written")
        status.get_by_role("button", name="Stop").click()
        expect(page.locator(".masthead .error")).to_have_text("Stopped.")
        expect(status).to_have_count(0)
        assert stopped.wait(20)
        expect(page.locator(".answer")).to_have_attribute("data-sentence", TEXT)
        page.get_by_role("button", name="Translate").click()
        expect(page.locator(".answer")).to_have_attribute("data-sentence", "the new bird")
        settled(page)


def test_a_stopped_server_is_a_one_line_error(browser, address):
    with opened_apart(browser, address, wait=False) as page:
        page.route("**/api/trace", lambda route: route.abort())
        page.reload()
        expect(page.get_by_role("alert")).to_have_text("The server does not answer. Is onehop explore still running?")
        page.unroute("**/api/trace")
        page.get_by_role("button", name=TEXT).click()
        settled(page)


def test_a_missing_measurement_names_its_command(browser, explorer, tmp_path, monkeypatch):
    shutil.copy(content.DATA / "paper.json", tmp_path)
    monkeypatch.setattr(content, "DATA", tmp_path)
    bare = tmp_path / "bare.html"
    bare.write_text(explorer.alone(TEXT), encoding="utf-8")
    with opened(browser, bare.as_uri(), offline=True) as page:
        for name in content.MEASUREMENTS:
            command = f"onehop paper measure {name}"
            expect(page.locator(f"[data-unmeasured={name}] code")).to_contain_text(command)
        expect(page.locator("[data-unmeasured=patches] code")).to_have_text("onehop demo digits -o FOLDER")


def test_the_page_works_in_a_notebook(browser, explorer, tmp_path):
    cell = tmp_path / "cell.html"
    cell.write_text(
        f"<!doctype html><meta charset=utf-8>{View(explorer.alone(TEXT, backend='notebook'))._repr_html_()}",
        encoding="utf-8",
    )
    with opened_apart(browser, cell.as_uri(), wait=False) as page:
        inside = page.frame_locator("iframe")
        expect(inside.locator("#page[data-ready]")).to_be_visible()
        scores = inside.locator("#figure-scores")
        before = scores.text_content()
        scores.locator(TOKENS.format(2)).click()
        expect(scores).not_to_have_text(before)


# --- how it looks and feels


@pytest.mark.parametrize(("width", "scheme"), [(1280, "light"), (1440, "dark"), (390, "light"), (390, "dark")])
def test_axe_finds_no_violation(browser, file, width, scheme):
    with opened(browser, file.as_uri(), width=width, color_scheme=scheme, reduced_motion="reduce") as page:
        open_all_tables(page)
        if page.locator(".bar .selected").is_visible():
            page.locator(".bar .selected").click()
        found = Axe().run(page).response["violations"]
        assert [(v["id"], [n["html"][:200] for n in v["nodes"][:3]]) for v in found] == []


def test_the_theme_follows_the_system_and_the_button(browser, file):
    colour = "getComputedStyle(document.body).backgroundColor"
    seen = {}
    for scheme in ("light", "dark"):
        with opened(browser, file.as_uri(), color_scheme=scheme) as page:
            seen[scheme] = page.evaluate(colour)
            page.locator(".masthead-top button").click()
            settled(page)
            seen[f"not {scheme}"] = page.evaluate(colour)
    assert seen["light"] == seen["not dark"] != seen["dark"] == seen["not light"]


def test_reduced_motion_disables_transitions(browser, file):
    transitions = (
        "[...document.querySelectorAll('*')].filter(e => parseFloat(getComputedStyle(e).transitionDuration) > 0).length"
    )
    for wish, scrolling in (("reduce", "auto"), ("no-preference", "smooth")):
        with opened(browser, file.as_uri(), reduced_motion=wish) as page:
            assert page.evaluate("getComputedStyle(document.documentElement).scrollBehavior") == scrolling
            if wish == "reduce":
                assert page.evaluate(transitions) == 0
                figure(page, "scores").locator(TOKENS.format(1)).click()
                assert page.evaluate("document.getAnimations().length") == 0


def test_no_width_needs_sideways_scrolling(browser, file):
    with opened(browser, file.as_uri(), width=390) as page:
        open_all_tables(page)
        for width in (320, 390, 768, 1280, 1600, 2560, 390):
            page.set_viewport_size({"width": width, "height": 900})
            page.evaluate("new Promise(requestAnimationFrame)")  # the page hears of its width with the next frame
            settled(page)
            assert needed_width(page) <= width


@pytest.mark.parametrize("width", [320, 390])
def test_a_phones_bar_has_one_row_that_opens_the_controls(browser, file, width):
    with opened(browser, file.as_uri(), width=width, offline=True) as page:
        assert page.locator(".bar").bounding_box()["height"] < 56
        page.locator(".bar .selected").focus()
        page.keyboard.press("Enter")
        heads = page.locator(".selectors select").nth(1)
        other = 1 - int(heads.input_value())
        heads.select_option(value=str(other))
        expect(page.locator(".bar .selected")).to_contain_text(f"head {other + 1}")
        page.keyboard.press("Escape")
        expect(page.locator(".selectors")).to_be_hidden()


@pytest.mark.parametrize("width", [900, 1280, 1440])
def test_the_bar_of_a_wide_page_has_one_row_too(browser, file, width):
    with opened(browser, file.as_uri(), width=width, offline=True) as page:
        assert page.locator(".bar").bounding_box()["height"] < 56


def test_controls_are_large_enough_for_touch(browser, file):
    """24 pixels each way, as WCAG 2.2 asks; words in a line of text are exempt there."""
    with opened(browser, file.as_uri(), width=390, offline=True) as page:
        page.evaluate("document.documentElement.setAttribute('data-every-height', '')")  # lays out hidden figures, too
        small = page.evaluate(
            """() => [...document.querySelectorAll("button, select, summary, input")]
                .filter((e) => e.checkVisibility() && !e.closest(".line"))
                .map((e) => [e, (e.closest("label") ?? e).getBoundingClientRect()])
                .filter(([, { width, height }]) => Math.min(width, height) < 23.9)
                .map(([e, { width, height }]) => [e.closest("figure")?.id, e.outerHTML.slice(0, 90), width, height])"""
        )
        assert small == []


def test_the_page_can_be_printed(browser, file):
    with opened(browser, file.as_uri()) as page:
        page.emulate_media(media="print")
        assert all(page.locator("figcaption").all_inner_texts())  # also of figures that are out of sight on a screen
        assert not page.locator(".figure-tools").first.is_visible()
        assert page.evaluate("getComputedStyle(document.querySelector('.bar')).position") == "static"
        assert len(page.pdf()) > 100_000


def test_the_first_figures_are_drawn_before_the_rest(browser, file):
    with opened_apart(browser, file.as_uri(), wait=False) as page:
        page.wait_for_selector("#figure-paths[data-drawn]", state="attached")
        settled(page)
        expect(page.locator("figure[data-drawn]")).to_have_count(len(FIGURES))


def test_the_first_picture_does_not_wait_for_the_rest_of_the_file(browser, file):
    """A server that sends the second half only when a figure has been seen."""
    text, seen = file.read_bytes(), threading.Event()
    half = text.index(b'<script type="application/json" id="onehop-blob">')

    class Halting(BaseHTTPRequestHandler):
        def do_GET(self):
            self.send_response(200)
            self.send_header("Content-Type", "text/html")
            self.end_headers()
            self.wfile.write(text[:half])
            assert seen.wait(20)
            self.wfile.write(text[half:])

        def log_message(self, *_):
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Halting) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        with opened_apart(browser, "about:blank", wait=False) as page:
            page.goto(f"http://127.0.0.1:{server.server_address[1]}/", wait_until="commit")
            page.wait_for_selector("#figure-paths svg *", state="attached")
            expect(page.locator("[data-error]")).to_have_count(0)
            expect(page.locator("#figure-matrix[data-drawn]")).to_have_count(0)
            seen.set()
            settled(page)
            expect(page.locator("figure[data-drawn]")).to_have_count(len(FIGURES))
        server.shutdown()


def test_numbers_powers_and_counts_are_formatted(page):
    written = page.evaluate(
        "async () => { const { number, percent, power, short } = await import('onehop/format.js');"
        " return [number(-1.5, 2), number(-Infinity), number(0.00001, 3), power(2300000, 1), short(63045632), "
        "percent(0.123), percent(0.0004), percent(0.004, 0), percent(0, 0)]; }"
    )
    assert written == ["−1.50", "−∞", "1.0·10⁻⁵", "2.3·10⁶", "63.0M", "12.3%", "<0.1%", "<1%", "0%"]


def test_float16_is_decoded_as_numpy_encodes_it(page):
    bits = np.array([0, 1, 0x3FF, 0x400, 0x3C00, 0x7BFF, 0x7C00, 0xC000, 0xFC00, 0x3555], dtype=np.uint16)
    read = page.evaluate(
        "async bits => { const { float16ToNumber } = await import('onehop/tensors.js');"
        " return bits.map(b => String(float16ToNumber(b))); }",
        bits.tolist(),
    )
    assert [float(x.replace("Infinity", "inf")) for x in read] == bits.view(np.float16).astype(float).tolist()
    assert math.isinf(float(read[6].replace("Infinity", "inf")))


def test_the_vendored_module_is_named_with_its_licence():
    notices = (Path(__file__).parents[2] / "THIRD_PARTY.md").read_text(encoding="utf-8")
    assert "lit-html" in notices
    assert "BSD-3-Clause" in (FOLDER / "vendor" / "lit-html.js").read_text(encoding="utf-8")[:200]
