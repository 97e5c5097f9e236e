"""YAML: string values are translated; keys, comments, anchors, numbers and layout stay."""

from datetime import date

import pytest
import yaml

from onehop.errors import SettingsError, TextError
from onehop.pipelines.documents import ReadOptions, read_document

MESSAGES = r"""# a comment
en:
  title: The old house   # another
  copied: "%{count} files: \"copied\"\nto {folder}"
  single: 'it''s late'
  list: [one, "two, three", 4, true, null]
  anchor: &a first
  alias: *a
  literal: |
    First line.
      Indented line.

    Last line.
  folded: >-
    A sentence that runs
    over two lines.

    Another.
  plain: a value that runs
    over lines
  date: 2026-01-02
---
second: document
"""


@pytest.mark.parametrize("text", [MESSAGES, "", "one", "- a\n-\n- 'b'\n"])
def test_unchanged_text_gives_the_same_bytes(same, text):
    for data in (text.encode(), text.replace("\n", "\r\n").encode(), b"\xef\xbb\xbf" + text.encode()):
        assert same(data, "x.yml")


def test_values_are_translated(translated):
    found = translated(MESSAGES, "x.yaml")
    first, second = yaml.safe_load_all(found)
    assert first["en"] == {
        "title": "THE OLD HOUSE",
        "copied": '%{count} FILES: "COPIED"\nTO {folder}',
        "single": "IT'S LATE",
        "list": ["ONE", "TWO, THREE", 4, True, None],
        "anchor": "FIRST",
        "alias": "FIRST",
        "literal": "FIRST LINE.\n  INDENTED LINE.\n\nLAST LINE.\n",
        "folded": "A SENTENCE THAT RUNS OVER TWO LINES.\nANOTHER.",
        "plain": "A VALUE THAT RUNS OVER LINES",
        "date": date(2026, 1, 2),
    }
    assert second == {"second": "DOCUMENT"}
    assert "# a comment\n" in found
    assert "   # another\n" in found


@pytest.mark.parametrize("word", ["yes", "a: b", "- x", "#x", "12", "x # y", "[x", "'x"])
def test_a_translation_stays_a_string(translated, word):
    assert yaml.safe_load(translated("a: house\n", "x.yml", lambda w: word)) == {"a": word}


def test_only_chosen_fields_are_translated(translated):
    text = "id: one\ntext: two\nmore:\n  - text: {a: three}\n"
    assert translated(text, "x.yml", fields=("text",)) == "id: one\ntext: TWO\nmore:\n  - text: {a: THREE}\n"


def test_invalid_yaml_is_refused():
    with pytest.raises(TextError, match=r"x\.yml is not YAML: .*line 1"):
        read_document(b"a: [", "x.yml")


def test_nested_and_cyclic_aliases_are_read_once():
    bomb = "a0: &a0 word\n" + "".join(f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 9)}]\n" for i in range(1, 30))
    assert ["".join(flow.characters) for flow in read_document(bomb.encode(), "x.yml").flows] == ["word"]
    assert [str(flow.characters) for flow in read_document(b"&a [*a, *a]\n", "x.yml").flows] == []


def test_a_key_that_chooses_no_text_is_refused():
    with pytest.raises(SettingsError, match=r"^x\.yml has no text below the key name or text\. Give another key"):
        read_document(b"id: one\n", "x.yml", ReadOptions(fields=("text", "name")))
