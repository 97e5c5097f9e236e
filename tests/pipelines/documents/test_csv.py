"""Tables: chosen cells are translated; quotes, separators and line ends stay."""

import pytest

from onehop.errors import SettingsError
from onehop.pipelines.documents import ReadOptions, read_document

TABLE = 'id,text,note\n1,"one, ""two""\nthree",x\n2,four {name},\n\n3,"",last'


@pytest.mark.parametrize(
    ("text", "name"), [(TABLE, "a.csv"), ('a\tb "c\n\td\n', "a.tsv"), ("", "a.csv"), ("a;b\n", "a.csv")]
)
def test_unchanged_text_gives_the_same_bytes(same, text, name):
    for data in (text.encode(), text.replace("\n", "\r\n").encode(), b"\xef\xbb\xbf" + text.encode()):
        assert same(data, name)


def test_only_chosen_columns_are_translated(translated):
    assert translated(TABLE, "a.csv", fields=("text",)) == (
        'id,text,note\n1,"ONE, ""TWO""\nTHREE",x\n2,FOUR {name},\n\n3,"",last'
    )
    assert translated("a\tb\nc\td\n", "a.tsv", fields=("2",)) == "a\tB\nc\tD\n"
    assert translated("a;b\nc;d\n", "a.csv") == "A;B\nC;D\n"


def test_a_translation_gets_quotes_where_it_needs_them(translated):
    words = {"two": 'zwei,"'}
    assert translated("one,two\n", "a.csv", lambda w: words.get(w, w)) == 'one,"zwei,"""\n'


def test_an_unknown_column_is_refused():
    with pytest.raises(SettingsError, match=r"a\.csv has no column 'title'\. It has: id, text, note\."):
        read_document(TABLE.encode(), "a.csv", ReadOptions(fields=("title",)))
