"""The server's page in a browser: it translates, streams, and shows errors."""

import json
import os
import re
import shutil
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import httpx
import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import sync_playwright
from serving import Process

from onehop.storage.model_io import read_model, write_model

FLAGS = ["--headless", "--no-sandbox", "--disable-gpu", "--disable-background-networking"]


@pytest.fixture(scope="module")
def server(model_file):
    made = Process(model_file, "--set", "max_characters=60")
    yield made
    made.stop()


@pytest.fixture(scope="module")
def browser():
    program = shutil.which("chromium")
    if program is None and not os.environ.get("CI"):
        pytest.skip("there is no chromium here: apt-get install chromium")
    assert program is not None, "CI needs chromium"
    with sync_playwright() as playwright:
        made = playwright.chromium.launch(executable_path=program, args=FLAGS)
        yield made
        made.close()


@pytest.fixture(scope="module")
def several(model_file, tmp_path_factory):
    """A server of three models; German to French goes through English, and nothing is translated from French."""
    folder = tmp_path_factory.mktemp("models")
    files = {name: folder / f"{name}.safetensors" for name in ("en-de", "de-en", "en-fr")}
    for name, file in files.items():
        source, target = name.split("-")
        write_model(file, replace(read_model(model_file), source=source, target=target))
    made = Process(files["en-de"], "-m", files["de-en"], "-m", files["en-fr"], "--set", "max_characters=60")
    yield made
    made.stop()


@pytest.fixture(params=["one pair", "several pairs"])
def any_server(request, server, several):
    return server if request.param == "one pair" else several


@pytest.fixture
def page(browser, server):
    with opened(browser, server) as made:
        yield made


@pytest.fixture
def menus(browser, several):
    with opened(browser, several) as made:
        yield made


@contextmanager
def opened(browser, server):
    page = browser.new_page()
    problems = []
    page.on("pageerror", lambda error: problems.append(str(error)))
    page.on("console", lambda message: problems.append(message.text) if "Security Policy" in message.text else None)
    page.goto(server.url)
    page.get_by_role("button", name="Translate").wait_for()
    page.get_by_text("0 of 60 characters").wait_for()
    yield page
    page.close()
    assert problems == []


def translated(page):
    page.locator("#status", has_text=re.compile(r"\d s$")).wait_for()
    return page.locator("#translation").text_content()


def test_a_text_is_translated(page, server):
    expected = server.post(
        "/translate", {"q": "the old house", "source": "en", "target": "de", "alternatives": 3}
    ).json()
    page.get_by_label("English").fill("the old house")
    page.get_by_role("button", name="Translate").click()
    assert translated(page) == expected["translatedText"]
    assert page.locator("#others li").all_text_contents() == expected["alternatives"]


def test_the_explorer_link_holds_the_text(page, server):
    page.fill("#text", "Is it 5 & 6?")
    assert page.get_attribute("#explore", "href") == "explore/#sentence=Is+it+5+%26+6%3F"
    page.fill("#text", " ")
    assert page.get_attribute("#explore", "href") == "explore/"


def test_a_text_is_translated_word_by_word_and_by_keyboard(page, server):
    text = "the old house. A new tree."
    page.get_by_label("word by word").check()
    page.get_by_label("English").fill(text)
    page.keyboard.press("Control+Enter")
    shown = translated(page)
    answer = server.post("/v1/stream", {"text": text, "source": "en", "target": "de"}).text
    last = json.loads(answer.strip().rpartition("data: ")[2])
    assert shown == last["translation"]["text"]


def test_errors_are_shown(page):
    page.get_by_label("English").fill("x" * 61)
    page.get_by_role("button", name="Translate").click()
    page.get_by_text("61 characters are too many: send at most 60.").wait_for()
    assert page.get_by_role("button", name="Translate").is_enabled()


def chosen_file(name, data):
    return {"name": name, "mimeType": "application/octet-stream", "buffer": data}


def test_a_file_is_chosen_translated_and_downloaded(page, server):
    text = b"# The old house\n\nA **new** tree.\n"
    page.get_by_label("Drop files here").set_input_files(chosen_file("page.md", text))
    link = page.get_by_role("link", name="page_de.md")
    link.wait_for()
    with page.expect_download() as download:
        link.click()
    form = {"source": "en", "target": "de"}
    expected = httpx.post(f"{server.url}/v1/translate_file", files={"file": ("page.md", text)}, data=form, timeout=60)
    assert download.value.suggested_filename == "page_de.md"
    assert Path(download.value.path()).read_bytes() == expected.content
    assert page.locator("#jobs progress").count() == 0


def test_an_invalid_dropped_file_does_not_affect_the_others(page):
    names = {"bad.json": "{", "good.txt": "the house", "large.txt": "x" * 11_000_000}
    made = """names => Object.entries(names).reduce(
        (data, [name, text]) => (data.items.add(new File([text], name)), data), new DataTransfer())"""
    page.dispatch_event("#drop", "drop", {"dataTransfer": page.evaluate_handle(made, names)})
    page.get_by_text("bad.json is not JSON").wait_for()
    page.get_by_role("link", name="good_de.txt").wait_for()
    page.get_by_text("It is too large: split it into several files.").wait_for()
    assert page.locator("#jobs li").count() == 3


def test_a_file_translation_can_be_stopped(page):
    slow = chosen_file("slow.json", b'"' + b"<!--" * 200_000 + b'"')
    page.get_by_label("Drop files here").set_input_files(slow)
    page.get_by_role("button", name="Stop slow.json").click()
    page.get_by_text("stopped", exact=True).wait_for()


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_it_is_accessible_and_fits_a_telephone(browser, any_server, scheme):
    with opened(browser, any_server) as page:
        page.emulate_media(color_scheme=scheme)
        page.set_viewport_size({"width": 390, "height": 800})
        page.get_by_label("Drop files here").set_input_files([chosen_file(name, b"{") for name in ("a.txt", "b.json")])
        page.get_by_text("b.json is not JSON").wait_for()
        assert page.evaluate("document.documentElement.scrollWidth") <= 390
        tops = [page.locator(name).bounding_box()["y"] for name in ("#text", "#go", "#translation", "#drop")]
        assert tops == sorted(tops)  # the button is above an empty translation
        assert Axe().run(page).violations_count == 0


# --- several pairs of languages


def pair(page):
    return tuple(page.locator(menu).input_value() for menu in ("#from", "#to"))


def options(page, menu):
    return page.get_by_label(menu, exact=True).locator("option").all_text_contents()


def test_one_pair_has_no_menus(page):
    assert not page.locator("#languages").is_visible()
    assert page.get_by_role("heading", name="German").bounding_box()["height"] > 10


def test_the_menus_offer_every_language(menus):
    assert options(menus, "From") == ["Detect", "English", "German"]
    assert options(menus, "To") == ["English", "German", "French"]
    assert pair(menus) == ("en", "de")
    menus.get_by_text("A Transformer translates from English to German.").wait_for()


def test_an_impossible_pair_changes_the_other_menu(menus):
    menus.get_by_label("From", exact=True).select_option("German")
    assert pair(menus) == ("de", "en")
    menus.get_by_label("To", exact=True).select_option("German")
    assert pair(menus) == ("en", "de")
    menus.get_by_label("To", exact=True).select_option("French")
    assert pair(menus) == ("en", "fr")
    menus.get_by_label("From", exact=True).select_option("German")
    assert pair(menus) == ("de", "fr")
    menus.get_by_text("A Transformer translates from German to French, through English.").wait_for()


def test_the_page_names_the_languages_and_the_pivot(menus, several):
    menus.get_by_label("From", exact=True).select_option("German")
    menus.get_by_label("To", exact=True).select_option("French")
    menus.fill("#text", "the old house")
    menus.get_by_role("button", name="Translate").click()
    expected = several.post("/translate", {"q": "the old house", "source": "de", "target": "fr"}).json()
    assert translated(menus) == expected["translatedText"]
    assert menus.locator("#status").text_content().startswith("through English, ")
    assert menus.get_attribute("#translation", "lang") == "fr"
    assert menus.get_attribute("#explore", "href") == "explore/de-en/#sentence=the+old+house"
    menus.get_by_role("link", name="Look inside the translation into English.").wait_for()


@pytest.mark.parametrize("by_word", [False, True])
def test_a_detected_language_is_shown_and_can_be_swapped(menus, by_word):
    menus.get_by_label("From", exact=True).select_option("Detect")
    menus.get_by_label("To", exact=True).select_option("English")
    menus.get_by_label("word by word").set_checked(by_word)
    menus.fill("#text", "Dies ist gewiss kein englischer Satz.")
    menus.get_by_role("button", name="Translate").click()
    translation = translated(menus)
    assert menus.locator("#status").text_content().startswith("German detected, ")
    assert menus.get_attribute("#explore", "href").startswith("explore/de-en/")
    menus.get_by_role("button", name="Swap the languages").click()
    assert pair(menus) == ("en", "de")
    assert menus.locator("#text").input_value() == translation.replace("\r", "\n")
    assert menus.locator("#translation").text_content() == "Dies ist gewiss kein englischer Satz."


def test_the_languages_are_swapped_by_keyboard_and_back(menus):
    menus.locator("#swap").focus()
    menus.keyboard.press("Enter")
    assert pair(menus) == ("de", "en")
    menus.keyboard.press("Space")
    assert pair(menus) == ("en", "de")


def test_an_impossible_swap_is_explained(menus):
    menus.get_by_label("To", exact=True).select_option("French")
    menus.get_by_role("button", name="Swap the languages").click()
    menus.get_by_text("Nothing is translated from French here.").wait_for()
    assert pair(menus) == ("en", "fr")
