"""The server's page in a browser: it translates, streams, and says what went wrong."""

import json
import os
import re
import shutil

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import sync_playwright
from serving import Process

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


@pytest.fixture
def page(browser, server):
    opened = browser.new_page()
    problems = []
    opened.on("pageerror", lambda error: problems.append(str(error)))
    opened.on("console", lambda message: problems.append(message.text) if "Security Policy" in message.text else None)
    opened.goto(server.url)
    opened.get_by_role("button", name="Translate").wait_for()
    opened.get_by_text("0 of 60 characters").wait_for()
    yield opened
    opened.close()
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


def test_the_way_to_the_explorer_takes_the_text_along(page, server):
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


def test_what_went_wrong_is_said(page):
    page.get_by_label("English").fill("x" * 61)
    page.get_by_role("button", name="Translate").click()
    page.get_by_text("61 characters are too many: send at most 60.").wait_for()
    assert page.get_by_role("button", name="Translate").is_enabled()


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_it_is_accessible_and_fits_a_telephone(page, scheme):
    page.emulate_media(color_scheme=scheme)
    page.set_viewport_size({"width": 390, "height": 800})
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    assert Axe().run(page).violations_count == 0
