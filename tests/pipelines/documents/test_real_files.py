"""Files of other programs are returned unchanged by a translator that changes no word.

THIRD_PARTY.md names their sources. `tutorial.epub` is docs/tutorial.md written by pandoc 3.9.
"""

import difflib
import io
import re
import zipfile
from pathlib import Path

import polib
import pytest

FILES = Path(__file__).parent / "files"
ROOT = Path(__file__).parents[3]
ARCHIVES = ["hyperlinks.docx", "comments.docx", "pictures.odt", "poem.odt", "tutorial.epub"]


def members(data):
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        return [(info.filename, info.date_time, info.compress_type, archive.read(info)) for info in archive.infolist()]


@pytest.mark.parametrize(
    "file",
    [
        FILES / "auth-ru.po",  # nothing is missing in it
        FILES / "captions.vtt",
        FILES / "colours.vtt",
        FILES / "colours.srt",
        FILES / "bakery.srt",
        FILES / "security.xlf",  # nothing is missing in it
        ROOT / "mkdocs.yml",
        ROOT / "benchmarks/everyday.tsv",
        ROOT / "onehop/server/static/index.html",
    ],
    ids=lambda file: file.name,
)
def test_files_round_trip_byte_for_byte(same, file):
    assert same(file.read_bytes(), file.name)


@pytest.mark.parametrize("name", ARCHIVES)
def test_archives_round_trip_member_by_member(translated, name):
    data = (FILES / name).read_bytes()
    assert members(translated(data, name, str)) == members(data)


@pytest.mark.parametrize("name", ARCHIVES)
def test_the_text_of_an_archive_is_translated(translated, name):
    """A reader that finds no text would also return the same archive, so this translator changes the words."""
    data = (FILES / name).read_bytes()
    before, after = members(data), members(translated(data, name))
    assert [each[:3] for each in before] == [each[:3] for each in after]
    changed = {one[0] for one, other in zip(before, after, strict=True) if one[3] != other[3]}
    assert changed
    assert all(re.search(r"/?(document|comments|content|ch\d+|nav|title_page)\.x(ht)?ml$", name) for name in changed)


def test_only_missing_translations_of_a_catalog_are_filled(translated):
    text = (FILES / "auth.po").read_text(encoding="utf-8")
    out = translated(text, "auth.po", str)
    before, after = polib.pofile(text), polib.pofile(out)
    assert not all(entry.translated() for entry in before)
    assert [entry.msgid for entry in before] == [entry.msgid for entry in after]
    for old, new in zip(before, after, strict=True):
        assert new.msgstr == (old.msgstr or ("" if old.msgid_plural else old.msgid))
    lines = list(difflib.ndiff(text.splitlines(), out.splitlines()))
    assert {re.sub(r"\[\d\]", "", line[2:]) for line in lines if line.startswith("- ")} == {'msgstr ""'}


@pytest.mark.parametrize("name", ["bakery.srt", "colours.srt", "captions.vtt", "colours.vtt"])
def test_subtitles_keep_their_times_and_tags(translated, name):
    text = (FILES / name).read_text(encoding="utf-8")
    changed = translated(text, name)
    kept = r"^.*-->.*$|^\d+$|<[^>]+>|&\w+;|^>>"
    assert re.findall(kept, changed, re.MULTILINE) == re.findall(kept, text, re.MULTILINE)
    assert re.sub(r"\s+", "", changed).upper() == re.sub(r"\s+", "", text).upper()
    assert changed != text


def test_a_copy_of_the_source_that_needs_translation_is_translated(translated, same):
    text = (FILES / "validators.xlf").read_text(encoding="utf-8")
    copies = re.findall(r'<target state="needs-translation">(.*?)</target>', text)
    assert len(copies) == 4
    expected = text
    for copy in copies:
        done = copy.upper().replace("{{ MIN }}", "{{ min }}").replace("{{ MAX }}", "{{ max }}")
        expected = expected.replace(f'"needs-translation">{copy}<', f'"needs-translation">{done}<')
    assert translated(text, "validators.xlf") == expected
    assert same(text, "validators.xlf")


def test_only_missing_targets_of_an_xliff_file_are_filled(translated):
    text = (FILES / "auth.xlf").read_text(encoding="utf-8")
    units = r"<source>(.*?)</source>\s*<target( state=\"translated\")?>(.*?)</target>"
    missing = [(source, target) for source, _, target in re.findall(units, text, re.DOTALL) if not target]
    assert missing
    expected = text
    for source, _ in missing:
        expected = re.sub(
            rf"({re.escape(f'<source>{source}</source>')}\s*<target>)(</target>)",
            lambda found, source=source: found[1] + source + found[2],
            expected,
            count=1,
        )
    assert translated(text, "auth.xlf", str) == expected
