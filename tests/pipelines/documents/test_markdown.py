"""Markdown: text is translated; code, links, tables, front matter and everything else is unchanged."""

from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]

PAGE = """\
---
title: Keep me
---
# The *first* page

Run `pip install onehop` now, and **wait until
it is ready**. Read [the manual](docs/a_b.md "Manual"),
![a picture](x.png) or <https://example.org/x>.

> A quotation, which nobody
> has *read*[^1].

1. one \\* escaped &amp; entity
2. two\\
   after a hard break

| name | meaning |
|:--|--|
| `beam` | the **width** of it |

```python
print("hello")  # nothing of this
```

    indented code

<div align="center"><b>bold</b> text</div>

[ref]: https://example.org "Title"
[^1]: A note with {placeholder} in it.
"""


@pytest.mark.parametrize("text", [PAGE, "", "# \n\n*\n", "a | b\n--|--\n c \\| d | e\n", "* a\n\n  b\n\n\tcode\n"])
def test_unchanged_text_gives_the_same_bytes(same, text):
    for data in (text.encode(), text.replace("\n", "\r\n").encode(), b"\xef\xbb\xbf" + text.encode()):
        assert same(data, "page.md")


@pytest.mark.parametrize("file", sorted(ROOT.glob("docs/**/*.md")) + sorted(ROOT.glob("*.md")), ids=lambda f: f.name)
def test_real_files_round_trip_byte_for_byte(same, file):
    assert same(file.read_bytes(), file.name)


TRANSLATED = {
    "# The *first* page": "# THE *FIRST* PAGE",
    "Run `pip install onehop` now, and **wait until\nit is ready**. Read [the manual](": (
        "RUN `pip install onehop` NOW, AND **WAIT UNTIL\nIT IS READY**. READ [THE MANUAL]("
    ),
    " or <https": " OR <https",
    "A quotation, which nobody\n> has *read*": "A QUOTATION, WHICH NOBODY\n> HAS *READ*",
    "1. one \\* escaped &amp; entity": "1. ONE \\* ESCAPED &amp; ENTITY",
    "2. two\\\n   after a hard break": "2. TWO\\\n   AFTER A HARD BREAK",
    "| name | meaning |": "| NAME | MEANING |",
    "the **width** of it": "THE **WIDTH** OF IT",
    "<b>bold</b> text": "<b>BOLD</b> TEXT",
    "A note with {placeholder} in it.": "A NOTE WITH {placeholder} IN IT.",
}


def test_only_text_is_translated(translated):
    expected = PAGE
    for source, target in TRANSLATED.items():
        assert expected.count(source) == 1
        expected = expected.replace(source, target)
    found = translated(PAGE, "page.md")
    assert found.split() == expected.split()
    assert found.count("\n") == expected.count("\n")


@pytest.mark.parametrize(
    ("source", "word", "expected"),
    [
        ("October 3rd\n", {"October": "3.", "3rd": "Oktober"}, "3\\. Oktober\n"),
        ("a house\n", {"house": "*house*"}, "a \\*house\\*\n"),
        ("2 * 3 houses\n", {"houses": "Häuser"}, "2 * 3 Häuser\n"),
    ],
)
def test_markup_characters_of_a_translation_are_escaped(translated, source, word, expected):
    assert translated(source, "x.md", lambda w: word.get(w, w)) == expected
