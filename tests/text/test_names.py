import pytest

from onehop.pipelines.translator import Translator
from onehop.text.names import copied_names, missing_names


@pytest.fixture(scope="module")
def shipped():
    return Translator("en-de", engine="ctranslate2", threads=1)


def pieces(word):
    """Encodes as a vocabulary in which common words are one piece."""
    return [1] if word in {"paul", "nobody"} else [1, 2]


@pytest.mark.parametrize(
    ("source", "translation", "missing"),
    [
        ("She danced with Paul.", "Sie tanzte mit Paulus.", ["Paul"]),
        ("Yesterday Pope Paul came.", "Gestern kam Papst Paulus.", []),  # a form of the name with the same beginning
        ("She met Paul's brother.", "Sie traf Pauls Bruder.", []),
        ("They bombed Gaza again.", "Sie bombardierten wieder den Gazastreifen.", []),
        ("I met Alice there.", "Dort traf ich Elke.", ["Alice"]),
        ("This book belongs to Fox.", "Dieses Buch gehört dem Fuchs.", ["Fox"]),
        ("The fox ran to the Fox.", "Der Fuchs lief zum Fuchs.", []),  # after an article it is no name
        ("Nobody knows Dunwhistle.", "Niemand kennt Dünnpfiff.", ["Dunwhistle"]),  # an unknown word that stands alone
        ("He met Dunwhistle Grove.", "Er traf einen Hain.", []),
        ("He went to Congress in June.", "Er ging im Juni in den Kongress.", []),
        ("Dunwhistle told me.", "Dünnpfiff sagte es mir.", ["Dunwhistle"]),
        ("Dunwhistle is bad for you.", "Durchfall ist schlecht für dich.", []),  # it may be a thing
        ("The Mongolians met Uzbekistanis.", "Die Mongolen trafen Usbeken.", []),
        ("I met Charles there.", "Ich habe dort Karl getroffen.", ["Charles"]),
        ("Charles called.", "Karl hat angerufen.", ["Charles"]),
        ("I met Charles there.", "Dort traf ich Charles.", []),
        ("She lives in Munich.", "Sie wohnt in München.", []),
        ("On Monday we leave Germany.", "Am Montag verlassen wir Deutschland.", []),
        ("The Stuttgart court", "Das Stuttgarter Gericht", []),
        ("Paul came.", "Er kam.", []),  # at the start of a sentence it may be an ordinary word
        ("Here is Paul.", "Hier ist er.", ["Paul"]),
    ],
)
def test_missing_names_are_reported(source, translation, missing):
    assert missing_names(source, translation, ("en", "de"), pieces) == missing


def test_languages_without_a_list_of_names_are_not_checked():
    assert missing_names("I met Charles.", "…", ("en", "es"), pieces) == []
    assert copied_names("de", "en") is copied_names("de", "en")
    assert copied_names("de", "en") == copied_names("en", "de")


def test_a_changed_name_is_restored_in_the_translation(shipped):
    """Without the correction the model writes Karl."""
    text = "The letter was written by Charles."
    sentences = shipped._models[0].sentences
    assert "Charles" not in sentences.translate([text])[0].text
    result = shipped.translate(text)
    assert result.text == "Der Brief wurde von Charles geschrieben."
    assert not result.warnings
    assert not result.details()["missing_names"]
