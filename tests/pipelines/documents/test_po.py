"""PO files: missing translations are filled in, and everything else is unchanged."""

import pytest

from onehop.errors import TextError
from onehop.pipelines.documents import read_document

CATALOG = r"""# German translation of a program.
# Anna <anna@example.org>, 2026.
msgid ""
msgstr ""
"Project-Id-Version: demo 1.0\n"
"Content-Type: text/plain; charset=UTF-8\n"
"Plural-Forms: nplurals=2; plural=(n != 1);\n"

#. TRANSLATORS: shown at the start
#: src/main.c:12 src/main.c:40
#, c-format
msgid "Could not open %s: \"it\" does not exist.\n"
msgstr ""

msgctxt "button"
msgid "Cancel"
msgstr "Abbrechen"

#, fuzzy
#| msgid "Close"
msgid "Close it"
msgstr "Schliessen"

#, c-format
msgid "%d file was copied."
msgid_plural "%d files were copied."
msgstr[0] ""
msgstr[1] ""

#, python-format
msgid ""
"Usage: %(name)s FILE\n"
"\tThis line is so long that gettext breaks it, as it does with all of them\n"
msgstr ""

#~ msgid "Old"
#~ msgstr "Alt"
"""


def filled(word):
    """The catalog with the expected translations."""
    return (
        CATALOG.replace(
            'exist.\\n"\nmsgstr ""', 'exist.\\n"\nmsgstr "' + word(r"Could not open %s: \"it\" does not exist.\n") + '"'
        )
        .replace('msgstr[0] ""', f'msgstr[0] "{word("%d file was copied.")}"')
        .replace('msgstr[1] ""', f'msgstr[1] "{word("%d files were copied.")}"')
        .replace(
            'all of them\\n"\nmsgstr ""\n',
            'all of them\\n"\nmsgstr ""\n'
            f'"{word("Usage: %(name)s FILE")}\\n"\n'
            f'"\\t{word("This line is so long that gettext breaks it, as it does with all of them")}\\n"\n',
        )
    )


def upper(text):
    for kept in ("%s", "%d", "%(name)s", "\\n"):
        text = text.replace(kept, kept.upper())
    text = text.upper()
    for kept in ("%s", "%d", "%(name)s", "\\n"):
        text = text.replace(kept.upper(), kept)
    return text


@pytest.mark.parametrize("word", [str, str.upper])
def test_missing_translations_are_filled_in(translated, word):
    expected = filled(str if word is str else upper)
    assert translated(CATALOG, "de.po", word) == expected
    crlf = CATALOG.replace("\n", "\r\n").encode()
    assert (
        translated(b"\xef\xbb\xbf" + crlf, "de.po", word) == b"\xef\xbb\xbf" + expected.replace("\n", "\r\n").encode()
    )


def test_existing_translations_are_kept(same):
    done = filled(str)
    assert same(done, "de.po")


def test_languages_with_one_or_three_plural_forms(translated):
    one = translated(CATALOG.replace("nplurals=2", "nplurals=1").replace('msgstr[1] ""\n', ""), "ja.po")
    assert 'msgstr[0] "%d FILES WERE COPIED."\n' in one
    assert "msgstr[1]" not in one
    three = translated(CATALOG.replace("nplurals=2", "nplurals=3"), "pl.po")
    assert 'msgstr[0] "%d FILE WAS COPIED."\nmsgstr[1] "%d FILES WERE COPIED."\nmsgstr[2] "%d FILES WERE' in three


def test_an_invalid_po_file_is_refused():
    with pytest.raises(TextError, match=r"x\.po is not a PO file: .*\. Check it with msgfmt -c\."):
        read_document(b'msgid "a"\nnonsense\n', "x.po")


def test_an_entry_without_msgstr_is_refused():
    with pytest.raises(TextError, match=r"x\.po is not a PO file: an entry has no msgstr\. Check it with msgfmt -c\."):
        read_document(b'msgid "a"\n', "x.po")
