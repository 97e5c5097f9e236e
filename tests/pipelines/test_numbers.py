import pytest

from onehop.pipelines.numbers import missing_numbers


@pytest.mark.parametrize(
    ("source", "translation", "missing"),
    [
        ("1,250 and 3.75 at 10:30", "1.250 und 3,75 um 10.30", []),
        ("at 10:30 in room 512", "um 22.30 in Raum 512", []),  # 10:30 may be p.m.
        ("at 10:30 in room 512", "um 22.40 in Raum 512", ["10:30"]),
        ("You win 4-0.", "Du gewinnst 4:0.", []),
        ("20 thousand at 8 o'clock", "20.000 um 8.00 Uhr", []),
        ("on 20.12.2012", "am 20. Dezember 2012", ["20.12.2012"]),
        ("7, 7 and 8", "nichts", ["7", "8"]),
        ("the 40th", "die 40.", []),
        ("at 9pm, 7:30 p.m. and 5 p. m.", "um 21 Uhr, 19.30 Uhr und 5 Uhr nachmittags", []),
        ("at 10:30 a.m., 5 plums", "um 22.30 Uhr, 17", ["10:30", "5"]),
        ("3000 or 12,500 metres", "3 000 ou 12\u202f500 mètres", []),
        ("3 000 mètres, salle 2 512", "3,000 metres, room 2, 512", []),
        ("room 3, 512 metres", "salle 3 512 mètres", []),
        ("3 000 mètres", "300 metres", ["3000"]),
        ("none", "12", []),
        ("², ① and half", "zwei", []),
    ],
)
def test_missing_numbers_in_digits_are_reported(source, translation, missing):
    assert missing_numbers(source, translation) == missing


@pytest.mark.parametrize(
    ("source", "translation", "missing"),
    [
        # errors
        ("We bought 3 acres of land.", "Wir haben 3 Hektar Land gekauft.", ["3 acres → 3 Hektar"]),
        ("It is twenty to nine.", "Es ist 20 bis 9.", ["twenty to nine"]),
        ("It is half past two.", "Es ist halb zwei.", ["half past two"]),
        ("She has seven cats.", "Sie hat acht Katzen.", ["seven"]),
        ("He waited 3 days.", "Er wartete 3 Wochen.", ["3 days → 3 Wochen"]),
        ("It costs five dollars.", "Es kostet fünf Euro.", ["five dollars → fünf Euro"]),
        ("at 90 mph", "mit 90 km/h", ["90 mph → 90 km/h"]),
        ("two hundred and five people", "zweihundert Leute", ["two hundred and five"]),
        # correct translations that a comparison of digits would report
        ("I have 7 cats.", "Ich habe sieben Katzen.", []),
        ("on 3 October", "am dritten Oktober", []),
        ("over 60", "über sechzig", []),
        ("1,250 people", "eintausendzweihundertfünfzig Leute", []),
        ("Tom left at 2:30.", "Tom ging um halb drei.", []),
        ("Be there at quarter to five.", "Sei um Viertel vor fünf da.", []),
        ("It is twenty to nine.", "Es ist zwanzig vor neun.", []),
        ("It is twenty to nine.", "Es ist 8.40 Uhr.", []),
        ("118.8 thousand tourists", "118.800 Touristen", []),
        ("three acres", "drei Acres", []),
        ("the 1980s", "die 80er Jahre", []),
        ("In nineteen ninety-one I left.", "1991 ging ich.", []),
        ("one of the two", "eine der beiden", []),
        ("from three to five people", "drei bis fünf Leute", []),
        ("on 20.12.2012", "am 20. Dezember 2012", []),
    ],
)
def test_missing_german_numbers_units_and_times_are_reported(source, translation, missing):
    assert missing_numbers(source, translation, ("en", "de")) == missing


@pytest.mark.parametrize(
    ("source", "translation", "missing"),
    [
        ("It is twenty to nine.", "Il est neuf heures moins vingt.", []),
        ("Be there at 2:30.", "Soyez là à 14 h 30.", []),
        ("at half past two", "à deux heures et demie", []),
        ("at half past two", "à deux heures", ["half past two"]),
        ("ninety-seven books", "quatre-vingt-dix-sept livres", []),
        ("seventy-one books", "soixante et onze livres", []),
        ("seventy-one books", "soixante-douze livres", ["seventy-one"]),
        ("in 1794", "en mille sept cent quatre-vingt-quatorze", []),
        ("the fifth floor", "le cinquième étage", []),
        ("3 acres", "3 hectares", ["3 acres → 3 hectares"]),
    ],
)
def test_missing_french_numbers_units_and_times_are_reported(source, translation, missing):
    assert missing_numbers(source, translation, ("en", "fr")) == missing


def test_number_words_of_other_languages_are_not_checked():
    assert missing_numbers("seven cats at half past two", "siete gatos", ("en", "es")) == []
    assert missing_numbers("7 cats", "siete gatos", ("en", "es")) == ["7"]
