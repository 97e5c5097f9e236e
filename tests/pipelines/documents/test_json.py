"""JSON: string values are translated; keys, numbers, escapes, placeholders and layout stay."""

import json
from pathlib import Path

import pytest

from onehop.errors import SettingsError, TextError
from onehop.pipelines.documents import ReadOptions, read_document

MESSAGES = r"""{
  "title": "Settings",
    "files": {"copied": "%d files went to {folder}.", "link": "Read the <a href=\"/help\">manual</a>.\nPress \"OK\"."},
  "n": 3.50, "list": ["one", null, true, "caf\u00e9 \ud83d\ude00"], "url": "https://example.org/x",
  "choice": "{count, plural, one {# file} other {# files}}", "share": "100% sure"
}
"""


@pytest.mark.parametrize("text", [MESSAGES, '"one"', "[]", '{"a": ""}'])
def test_unchanged_text_gives_the_same_bytes(same, text):
    for data in (text.encode(), text.replace("\n", "\r\n").encode(), b"\xef\xbb\xbf" + text.encode()):
        assert same(data, "x.json")


def test_real_files_round_trip_byte_for_byte(same):
    for file in sorted((Path(__file__).parents[3] / "results").glob("**/*.json"))[:5]:
        assert same(file.read_bytes(), file.name)


def test_values_are_translated(translated):
    found = json.loads(translated(MESSAGES, "x.json"))
    assert found == {
        "title": "SETTINGS",
        "files": {"copied": "%d FILES WENT TO {folder}.", "link": 'READ THE <a href="/help">MANUAL</a>.\nPRESS "OK".'},
        "n": 3.5,
        "list": ["ONE", None, True, "CAFÉ 😀"],
        "url": "https://example.org/x",
        "choice": "{count, plural, one {# file} other {# files}}",
        "share": "100% SURE",
    }
    assert r"CAF\u00c9 \ud83d\ude00" in translated(MESSAGES, "x.json")


def test_only_chosen_fields_are_translated(translated):
    text = '{"id": "one", "text": "two", "more": {"text": ["three"], "id": "four"}}'
    assert translated(text, "x.json", fields=("text",)) == (
        '{"id": "one", "text": "TWO", "more": {"text": ["THREE"], "id": "four"}}'
    )


def test_invalid_json_is_refused():
    with pytest.raises(TextError, match=r"x\.json is not JSON: .*line 1"):
        read_document(b'{"a": }', "x.json")


def test_deep_nesting_is_refused():
    with pytest.raises(TextError, match=r"^x\.json is nested too deeply\. Split it into several files\.$"):
        read_document(b"[" * 100_000 + b"]" * 100_000, "x.json")


def test_a_key_that_chooses_no_text_is_refused():
    with pytest.raises(SettingsError, match=r"^x\.json has no text below the key name or text\. Give another key"):
        read_document(b'{"id": "one"}', "x.json", ReadOptions(fields=("text", "name")))
