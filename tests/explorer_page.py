"""Helpers for tests of the explorer's page: its figures, opening a page, reading its tables."""

import contextlib
import io
import re
import weakref

import pytest
from PIL import Image
from playwright.sync_api import expect

from onehop.interpret.tracer import Tracer

# The machine may be busy.
expect.set_options(timeout=60_000)

TEXT = "the old house saw it"
TOKENS = "[role=radio][data-index='{}']"
# Figures by their number. Some numbers have several figures.
IN_ORDER = (
    *("embeddings", "projections", "scores", "divisor", "dimension", "blend", "matrix"),
    *("heads", "arcs", "positions", "paths", "mask", "machine", "residual"),
    *("beam", "complexity", "worked", "breaking", "coreference", "family", "patterns"),
    *("pruning", "lengths", "warmup", "results", "refresher"),
)
MORE = {"lookup": 26, "patches": 26, "decides": 21, "neurons": 13, "lens": 15}
FIGURES = {name: item for item, name in enumerate(IN_ORDER, 1)} | MORE


_idle_tabs = weakref.WeakKeyDictionary()  # browser → the idle tab for online or offline pages


@contextlib.contextmanager
def opened(browser, place, *, width=1280, offline=False, **media):
    """The page in a new tab beside the last one. Its process has the scripts compiled, which halves the time.

    `media`: arguments of `emulate_media`, such as color_scheme.
    """
    tabs = _idle_tabs.setdefault(browser, {})
    last = tabs.pop(offline, None)
    context = last.context if last else browser.new_context(offline=offline)
    page = context.new_page()
    page.set_viewport_size({"width": width, "height": 900})
    page.emulate_media(**media)
    with _watched(page, offline):
        page.goto(place)
        if last:
            last.close()
        settled(page)
        yield page
        page.evaluate("localStorage.clear()")
    if offline in tabs:  # another page was opened meanwhile
        context.close()
    else:
        tabs[offline] = page


@contextlib.contextmanager
def opened_apart(browser, place, *, wait=True):
    """The page in a new context without cache."""
    context = browser.new_context(viewport={"width": 1280, "height": 900})
    page = context.new_page()
    with _watched(page, offline=False):
        page.goto(place)
        if wait:
            settled(page)
        yield page
        context.close()


@contextlib.contextmanager
def _watched(page, offline):
    """Fail if a script of the page fails or, offline, sends a request."""
    errors = []
    page.set_default_timeout(60_000)
    page.on("pageerror", lambda error: errors.append(str(error)))
    page.on("dialog", lambda dialog: errors.append("a dialog opened"))
    if offline:
        page.on("request", lambda r: errors.append(r.url) if not re.match("(file|data|blob):", r.url) else None)
    yield
    assert errors == []


def needed_width(page):
    """The width that the page needs, with all figures laid out. The browser would skip those out of sight."""
    return page.evaluate("""() => {
      const root = document.documentElement;
      root.setAttribute("data-every-height", "");
      const width = root.scrollWidth;
      root.removeAttribute("data-every-height");
      return width;
    }""")


def settled(page):
    page.wait_for_selector("#page[data-ready]")


def figure(page, name):
    return page.locator(f"#figure-{name}")


def in_sight(page, name):
    """A figure after a scroll to it. The browser renders no figure out of sight, so `inner_text` is empty there."""
    place = figure(page, name)
    place.scroll_into_view_if_needed()
    page.wait_for_function(
        "id => document.querySelector(`#figure-${id} .figure-body`).checkVisibility({ contentVisibilityAuto: true })",
        arg=name,
    )
    return place


def picture_of(page, element):
    """A screenshot of an element, with all figures laid out. Otherwise changing heights could move the element."""
    page.evaluate("document.documentElement.setAttribute('data-every-height', '')")
    picture = Image.open(io.BytesIO(element.screenshot())).convert("RGB")
    page.evaluate("document.documentElement.removeAttribute('data-every-height')")
    return picture


def shown_rows(page, name):
    """A figure's table on the page: names as text, numbers with all digits."""
    button = figure(page, name).locator("[data-tool=table]")
    if button.get_attribute("aria-expanded") == "false":
        button.click()
        settled(page)
    return page.eval_on_selector_all(
        f"#figure-{name} .figure-table tbody tr",
        "rows => rows.map(r => [...r.cells].map(c => c.dataset.value ?? c.textContent))",
    )


def open_all_tables(page):
    page.evaluate("document.querySelectorAll('[data-tool=table][aria-expanded=false]').forEach(b => b.click())")
    settled(page)
    expect(page.locator(".figure-table")).to_have_count(len(FIGURES))


def python_rows(page, name, tracer):
    """The rows computed by the code of "copy as Python"."""
    names: dict = {}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Tracer, "load", classmethod(lambda cls, path: tracer))
        exec(page.evaluate("name => window.onehop.snippet(name)", name), names)
    return names["rows"]


def assert_same(shown, computed, name):
    assert len(shown) == len(computed) > 0, name
    for seen, row in zip(shown, computed, strict=True):
        assert len(seen) == len(row), name
        for text, value in zip(seen, row, strict=True):
            if isinstance(value, float):
                assert float(text.replace("−", "-")) == pytest.approx(value, rel=1e-4, abs=1e-6), (name, seen, row)
            else:
                assert text == ("–" if value is None else str(value)), (name, seen, row)
