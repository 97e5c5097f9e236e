"""XLIFF: segments without a target get one, and nothing else changes."""

import pytest

from onehop.errors import TextError
from onehop.pipelines.documents import read_document

OLD = """\
<?xml version="1.0" encoding="utf-8"?>
<xliff version="1.2" xmlns="urn:oasis:names:tc:xliff:document:1.2">
<file source-language="en" target-language="de" datatype="plaintext" original="a.txt"><body>
  <trans-unit id="1">
    <source>Click <g id="1">here</g> &amp; <x id="2"/>wait for <ph id="3">%s</ph>.</source>TARGET1
    <alt-trans><source>Click</source><target>Klick</target></alt-trans>
  </trans-unit>
  <trans-unit id="2"><source>Cancel</source><target>Abbrechen</target></trans-unit>
  <trans-unit id="3" translate="no"><source>onehop</source></trans-unit>
  <trans-unit id="4"><source>Close</source><target state="new"/></trans-unit>
</body></file>
</xliff>
"""
NEW = """\
<xliff version="2.0" xmlns="urn:oasis:names:tc:xliff:document:2.0" srcLang="en" trgLang="de">
<file id="f"><unit id="u"><segment><source>Read <pc id="1">the manual</pc>.</source></segment></unit></file></xliff>
"""


def upper(text):
    text = text.replace(
        'Click <g id="1">here</g> &amp; <x id="2"/>wait for ', 'CLICK <g id="1">HERE</g> &amp; <x id="2"/>WAIT FOR '
    )
    return text.replace("Close", "CLOSE")


@pytest.mark.parametrize(("word", "changed"), [(str, str), (str.upper, upper)])
def test_segments_get_a_target(translated, word, changed):
    source = 'Click <g id="1">here</g> &amp; <x id="2"/>wait for <ph id="3">%s</ph>.'
    expected = OLD.replace("TARGET1", f"\n    <target>{changed(source)}</target>")
    expected = expected.replace('<target state="new"/>', f'<target state="new">{changed("Close")}</target>')
    assert translated(OLD.replace("TARGET1", ""), "a.xlf", word) == expected


def test_xliff_2_segments_get_a_target(translated):
    target = '<target>READ <pc id="1">THE MANUAL</pc>.</target>'
    assert translated(NEW, "a.xliff") == NEW.replace("</source>", f"</source>\n{target}")


def test_existing_translations_are_kept(same):
    assert same(
        OLD.replace("TARGET1", "<target>Klick</target>").replace('<target state="new"/>', "<target>x</target>"), "a.xlf"
    )


def test_invalid_xml_is_refused():
    with pytest.raises(TextError, match=r"a\.xlf is not XML"):
        read_document(b"<xliff>", "a.xlf")
