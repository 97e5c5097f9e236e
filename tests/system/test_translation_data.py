"""The scripts that make tagged training data: tags are correct, and held-out text is absent."""

import lzma
import random
import re
import sys
from pathlib import Path

import pytest

from onehop.config import load_settings, with_changes
from onehop.data.filters import HeldOut
from onehop.text.tokenizer import UNK, WORD_MARK, Tokenizer

FOLDER = Path(__file__).parents[2] / "recipes"


@pytest.fixture(scope="module")
def modules():
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(FOLDER))
        import french_measures
        import german_measures
        import tagged_tokenizer
        import translation_data

        yield translation_data, tagged_tokenizer, german_measures, french_measures


@pytest.fixture(scope="module")
def made(modules):
    return modules[0]


@pytest.fixture(scope="module")
def german(modules):
    return modules[2]


@pytest.fixture(scope="module")
def french(modules):
    return modules[3]


# --- raw text -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("raw", "text"),
    [
        ("<bt> Hallo", "< bt> Hallo"),
        ("ein <term> Haus <as> house </term>.", "ein < term> Haus < as> house < /term>."),
        ("x<2en>y <tag8>", "x< 2en>y < tag8>"),
        ("a < b, <b>fett</b>", "a < b, <b>fett</b>"),
        ("  zwei\u2581Wörter ", "zwei Wörter"),
    ],
)
def test_tags_in_raw_text_are_neutralised(made, raw, text):
    assert made.plain(raw) == text


@pytest.mark.parametrize(
    "pair",
    [
        ("Das Tier überquerte die Straße nicht, weil es zu müde war.", "It was tired."),
        ("Es war müde.", "The animal didn't cross the street because it was too tired."),
        ("Es war müde.", "THE ANIMAL DID NOT CROSS ANY STREET."),
        ("", "Nothing."),
    ],
)
def test_the_demo_sentence_and_empty_sides_are_dropped(made, tmp_path, pair):
    corpora = made.Corpora(tmp_path, ("de", "en"), HeldOut())
    assert not corpora.usable(pair)
    assert corpora.usable(("Das Tier ist müde.", "The animal is tired."))


# --- terms ----------------------------------------------------------------------------------------------------


def glossary(made, *entries, frequent=()):
    return made.Glossary(entries, frozenset(frequent))


def test_a_term_is_marked_where_the_target_has_the_translation(made):
    terms = glossary(made, ("Haus", "house"), ("Haus", "building"))
    rng = random.Random(1)
    assert terms.mark(("Das Haus, ja.", "The house, yes."), rng) == (
        "Das <term> Haus <as> house </term>, ja.",
        "The house, yes.",
    )
    assert terms.mark(("Das Haus, ja.", "The building, yes."), rng)[0] == "Das <term> Haus <as> building </term>, ja."
    assert terms.mark(("Das Haus.", "The home."), rng) is None
    assert terms.mark(("Das Haus.", "The houses."), rng) is None  # another word
    assert terms.mark(("Das Hausboot.", "The house boat."), rng) is None


def test_longer_terms_win_and_tags_do_not_overlap(made):
    terms = glossary(made, ("schwarzes Loch", "black hole"), ("Loch", "hole"), ("Stern", "star"))
    pair = "Ein schwarzes Loch war einmal ein Stern am Himmel.", "A black hole was once a star in the sky."
    sources = {terms.mark(pair, random.Random(seed))[0] for seed in range(30)}
    one = "Ein <term> schwarzes Loch <as> black hole </term> war einmal ein Stern am Himmel."
    assert sources == {one, one.replace("Stern", "<term> Stern <as> star </term>")}


def test_verbs_are_found_without_their_particle(made):
    terms = glossary(made, ("schwimmen", "to swim"))
    assert terms.mark(("Wir schwimmen gern.", "We like a swim."), random.Random(1)) is not None


@pytest.mark.parametrize(
    ("source", "target", "term"),
    [
        ("Fluss", "river", True),
        ("rot", "red", False),  # short
        ("Haus {n}", "house", False),
        ("nicht", "not", False),  # common
        ("ein sehr langer Eintrag", "a very long entry", False),
        ("2. Gang", "second gear", False),
    ],
)
def test_dictionary_entries_that_become_terms(made, source, target, term):
    assert made.is_term(source, target, frozenset(["nicht", "not"])) is term


def test_a_pair_gets_one_kind_of_tag_with_its_probability(made):
    terms = glossary(made, ("River", "Fluss"))
    pairs = [("You see the River there.", "Du siehst dort den Fluss.")] * 4000
    result = list(made.tagged(pairs, "chat", "de", terms, random.Random(1)))
    kinds = [tuple(sorted(set(made.TAG.findall(source)))) for source, _ in result]
    share = {kind: kinds.count(kind) / len(kinds) for kind in set(kinds)}
    expected = {("<2de>",): 0.03, ("<informal>",): 0.3, ("</term>", "<as>", "<term>"): 0.08, (): 0.59}
    assert share.keys() == expected.keys()
    assert share == pytest.approx(expected, abs=0.03)
    assert {target for _, target in result} == {pairs[0][1]}


def test_dictionary_files_get_no_term_tags(made):
    pairs = [("Fluss", "river")] * 500
    result = made.tagged(pairs, "dictionary", "en", glossary(made, ("Fluss", "river")), random.Random(1))
    assert {source for source, _ in result} == {"Fluss", "<2en> Fluss"}


# --- back-translations ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("translation", "text", "sound"),
    [
        ("Er kam um 9 Uhr mit 12 Leuten.", "He came at 9 with 12 people.", True),
        ("Er kam um 8 Uhr mit 12 Leuten.", "He came at 9 with 12 people.", False),
        ("Er kam.", "He came at 9.", False),
        ("Berlin", "Berlin", False),
        ("Ja ja ja.", "Yes, of course.", True),
        ("sehr sehr sehr gut", "very good indeed", False),
        ("ein Haus und ein Haus und ein Haus und so weiter", "a house and so on and so forth and on", False),
        ("Ja.", "It is really not as easy to say as you think.", False),
        ("Das ist wirklich nicht so leicht zu sagen, wie du denkst.", "Yes.", False),
    ],
)
def test_unsound_back_translations_are_found(made, translation, text, sound):
    assert made.is_sound(translation, text) is sound


def test_back_translations_are_tagged_and_unsound_ones_dropped(made, tmp_path):
    (tmp_path / "news.de").write_text("Er kam um 9.\nEr kam um 8.\n<bt> Hallo.\nEr kam um 9.\nGeheim.\n", "utf-8")
    (tmp_path / "news.en").write_text("He came at 9.\nHe came at 9.\nHello.\nHe came at 9.\nSecret.\n", "utf-8")
    found = dict(made.back_translated(tmp_path, ("de", "en"), lambda pair: pair[1] != "Secret."))
    assert found == {"back-news": [("<bt> Er kam um 9.", "He came at 9."), ("<bt> < bt> Hallo.", "Hello.")]}


# --- names ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "old", "new", "language", "result"),
    [
        ("Toms Hund mag Tom.", "Tom", "Anna", "de", "Annas Hund mag Anna."),
        ("Toms Hund bellt.", "Tom", "Jens", "de", "Jens’ Hund bellt."),
        ("Toms Hund bellt.", "Tom", "Fritz", "de", "Fritz’ Hund bellt."),
        ("Tom's dog barks.", "Tom", "Jens", "en", "Jens's dog barks."),
        ("Tomate, Tom-Tom und Tom.", "Tom", "Anna", "de", "Tomate, Tom-Tom und Anna."),
    ],
)
def test_names_are_replaced_with_their_genitive(made, text, old, new, language, result):
    assert made.replace_name(text, old, new, language) == result


@pytest.fixture(scope="module")
def names(made):
    pairs = [
        ("Angela Meier traf Boris Kunze.", "Angela Meier met Boris Kunze."),
        ("Der Winter kam mit Boris Kunze.", "Winter came with Boris Kunze."),
        ("Angela Meier und Boris lachten im winter.", "Angela Meier and Boris laughed in winter."),
        ("Angela Meier sah den Hammer.", "Angela Meier saw the Hammer."),
        ("Boris Kunze sah den Hammer.", "Boris Kunze saw the Hammer."),
        ("Angela sah den Hammer.", "Angela saw the Hammer."),
    ]
    return made.Names(pairs, frozenset(["Hammer"]))


def test_names_are_words_that_both_sides_share(names):
    assert names.single == ["Angela", "Boris", "Kunze", "Meier"]  # neither "Hammer" nor "Winter"
    assert names.first == ["Angela", "Boris"]
    assert names.last == ["Kunze", "Meier"]


@pytest.mark.parametrize(
    ("source", "target", "found"),
    [
        ("Tom mag Hunde.", "Tom likes dogs.", ("Tom", "Tom")),
        ("Maria lacht.", "Mary laughs.", ("Maria", "Mary")),
        ("Toms Hund bellt.", "Tom's dog barks.", ("Tom", "Tom")),
        ("Boris lacht.", "Boris laughs.", ("Boris", "Boris")),
        ("Tom sah Tom.", "Tom saw Tom.", None),  # twice
        ("Tom lacht.", "He laughs.", None),
        ("Hamburg schläft.", "Hamburg sleeps.", None),  # not known as a name
    ],
)
def test_the_name_to_replace_is_found_on_both_sides(made, names, source, target, found):
    assert made.name_in(source, target, names) == found


def test_both_sides_get_the_new_name_or_the_marked_translation(made, names):
    pairs = [("Toms Hund mag Maria.", "Tom's dog likes Mary."), ("Maria lacht.", "Mary laughs.")] * 200
    kinds = set()
    for source, target in made.renamed(pairs, names, ("de", "en"), random.Random(1)):
        assert not re.search(r"\bToms?\b", source + target)
        if term := re.fullmatch(r"<term> (.+) <as> (.+) </term> lacht\.", source):
            assert target == f"{term[2]} laughs."
            kinds.add("same" if term[1] == term[2] else "other")
        elif source.endswith(" lacht."):
            assert target == source.replace("lacht", "laughs")
            kinds.add("plain")
        else:
            name = target.removesuffix("'s dog likes Mary.")
            assert source == f"{name}{'’' if name[-1] == 's' else 's'} Hund mag Maria."
            kinds.add("genitive")
    assert kinds == {"same", "other", "plain", "genitive"}


# --- measures -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("hour", "minute", "english", "other"),
    [
        (3, 30, "half past three", "halb vier"),
        (12, 30, "half past twelve", "halb eins"),
        (8, 40, "twenty to nine", "zwanzig vor neun"),
        (12, 55, "five to one", "fünf vor eins"),
        (1, 10, "ten past one", "zehn nach eins"),
        (6, 15, "quarter past six", "Viertel nach sechs"),
        (6, 45, "quarter to seven", "Viertel vor sieben"),
        (2, 25, "twenty-five past two", "fünf vor halb drei"),
        (2, 35, "twenty-five to three", "fünf nach halb drei"),
    ],
)
def test_spoken_german_times_agree(german, hour, minute, english, other):
    assert german.spoken_time(hour, minute) == (english, other)


@pytest.mark.parametrize(
    ("hour", "minute", "english", "other"),
    [
        (3, 30, "half past three", "trois heures et demie"),
        (12, 30, "half past twelve", "midi et demi"),
        (8, 40, "twenty to nine", "neuf heures moins vingt"),
        (12, 55, "five to one", "une heure moins cinq"),
        (6, 15, "quarter past six", "six heures et quart"),
        (11, 45, "quarter to twelve", "midi moins le quart"),
        (2, 25, "twenty-five past two", "deux heures vingt-cinq"),
    ],
)
def test_spoken_french_times_agree(french, hour, minute, english, other):
    assert french.spoken_time(hour, minute) == (english, other)


def test_french_times_with_digits_agree(french):
    rng = random.Random(1)
    times = [pair for pair in (french.clock(rng) for _ in range(3000)) if re.search(r"\d ?h\b|\dh\d", pair[1])]
    for english, other in times:
        hour, minute = re.fullmatch(r"(\d+) ?h ?(\d\d)?", other).groups(default="0")
        hour, minute = int(hour), int(minute)
        half = "a.m." if hour < 12 else "p.m."
        assert english in (f"{hour}:{minute:02}", f"{12 if hour == 12 else hour % 12}:{minute:02} {half}")
    assert len(times) > 500


def test_times_with_digits_agree(german):
    rng = random.Random(1)
    times = [pair for pair in (german.clock(rng) for _ in range(3000)) if re.match(r"\d+[:.]", pair[1])]
    for english, other in times:
        hour, minute = map(int, re.fullmatch(r"(\d+)[:.](\d\d) Uhr", other).groups())
        half = "a.m." if hour < 12 else "p.m."
        assert english in (f"{hour}:{minute:02}", f"{12 if hour in (0, 12) else hour % 12}:{minute:02} {half}")
    assert any(re.fullmatch(r"12:\d\d a\.m\.", english) for english, _ in times)
    assert any(re.fullmatch(r"12:\d\d p\.m\.", english) for english, _ in times)


@pytest.mark.parametrize(
    ("whole", "part", "english", "other"),
    [(3, "5", "3.5", "3,5"), (12_345, "6", "12,345.6", "12.345,6"), (1_000_000, "", "1,000,000", "1.000.000")],
)
def test_other_languages_write_a_comma_where_english_writes_a_point(german, french, whole, part, english, other):
    assert german.in_digits(whole, part) == (english, other)
    assert french.in_digits(whole, part) == (english, other.replace(".", " "))


@pytest.mark.parametrize(
    ("n", "english", "in_german", "in_french"),
    [
        (1, "one", "eins", "un"),
        (17, "seventeen", "siebzehn", "dix-sept"),
        (21, "twenty-one", "einundzwanzig", "vingt et un"),
        (60, "sixty", "sechzig", "soixante"),
        (71, "seventy-one", "einundsiebzig", "soixante et onze"),
        (80, "eighty", "achtzig", "quatre-vingts"),
        (81, "eighty-one", "einundachtzig", "quatre-vingt-un"),
        (97, "ninety-seven", "siebenundneunzig", "quatre-vingt-dix-sept"),
    ],
)
def test_numbers_are_written_in_words_of_three_languages(german, french, n, english, in_german, in_french):
    assert (german.english_number(n), german.german_number(n), french.french_number(n)) == (
        english,
        in_german,
        in_french,
    )


@pytest.mark.parametrize("language", ["german", "french"])
def test_every_sentence_has_its_quantity_and_the_same_digits_on_both_sides(request, language):
    pairs = request.getfixturevalue(language).measure_pairs(4000, random.Random(1))
    assert len(set(pairs)) == 4000
    for english, other in pairs:
        assert "{" not in english + other
        assert "  " not in english + other
        assert ".." not in english + other
        if re.search(r"\d [ap]\.m\.|\d:00|1er|\d\.\d+\.\d{4}", english + other) or not re.search(r"\d", english):
            continue  # the two languages write these hours and months with different digits
        assert sorted(re.findall(r"\d", english)) == sorted(re.findall(r"\d", other)), (english, other)


def test_units_take_the_dative_after_von_and_seit(german):
    pairs = german.measure_pairs(6000, random.Random(2))
    dative = [other for _, other in pairs if re.search(r"\bseit \S+ |Tiefe von", other)]
    assert any("Jahren" in other for other in dative)
    assert any("Metern" in other for other in dative)
    assert not [other for other in dative if re.search(r"\b(Jahre|Tage|Monate|Meter|Zentimeter)\b", other)]


def test_french_sums_of_millions_take_de(french):
    sums = [other for _, other in french.measure_pairs(3000, random.Random(3)) if re.search("million|milliard", other)]
    assert any("millions d'euros" in other for other in sums)
    assert all(re.search(r"(millions|milliards|billions) (d'|de )\w+", other) for other in sums)


# --- French ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("source", "target", "written"),
    [
        ('He said "yes".', "Il a dit « oui ».", 'Il a dit "oui".'),
        ("He said “yes”.", 'Il a dit "oui".', "Il a dit « oui »."),
        ("Water?", "L’eau?", "L'eau ?"),
        ("See http://a.b at 12:30!", "Voir http://a.b à 12:30 !", "Voir http://a.b à 12:30 !"),
    ],
)
def test_french_targets_are_normalised(made, source, target, written):
    assert made.french_typography(source, target) == (source, written)


def test_a_glossary_is_learned_without_a_dictionary(made):
    pairs = [
        (f"the {a} house{i}", f"la {b} maison{i}") for i in range(5) for a, b in [("blue", "bleue"), ("green", "verte")]
    ]
    assert set(made.learned_entries(pairs)) == {("blue", "bleue"), ("green", "verte")}


# --- the whole ------------------------------------------------------------------------------------------------

TRAIN = {
    "tatoeba": [
        ("The animal didn't cross the street because it was too tired.", "Das Tier ging nicht."),
        ("It went.", "Das Tier überquerte die Straße nicht, weil es zu müde war."),
        ("This is a sentence of the test.", "Das hier steht in der Prüfung."),
        ("That one is held out as well.", "Auch dieser Satz hier."),
        ("I typed <bt> here.", "Ich schrieb <bt> hier."),
        *((f"Tom saw {n} rivers today.", f"Tom sah heute {n} Flüsse.") for n in range(2, 300)),
    ],
    "news-clean": [
        *((f"Angela Meier met Boris Kunze {n} times.", f"Angela Meier traf Boris Kunze {n} mal.") for n in range(40)),
        *((f"The river is {n} km long.", f"Der Fluss ist {n} km lang.") for n in range(300)),
    ],
    "dictionary": [("river", "Fluss"), ("rivers", "Flüsse"), ("to swim", "schwimmen")],
    "bible": [("In the beginning was the word.", "Am Anfang war das Wort.")],
}


@pytest.fixture(scope="module")
def corpora(tmp_path_factory):
    """Corpora with an .xz file for each source, a validation file, a test file, captions and back-translations."""
    folder = tmp_path_factory.mktemp("data")
    files = {
        "en-de/valid/dev.en": "Nobody knows.\n",
        "en-de/valid/dev.de": "Niemand weiß es.\n",
        "en-de/test/news.en": "This is a sentence of the test!\n",
        "en-de/test/news.de": "Etwas ganz anderes.\n",
        "multi30k/test_2016.en": "A man.\n",
        "multi30k/test_2016.de": "Ein Mann.\n",
        "multi30k/train.en": "A dog.\n",
        "multi30k/train.de": "Ein Hund.\n",
        "back/web.en": "Good day, 3 men.\n",
        "back/web.de": "Guten Tag, 3 Männer.\n",
        "keep-out.tsv": "x\tThat one is held out as well.\n",
    }
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text, encoding="utf-8")
    (folder / "en-de" / "train").mkdir()
    for name, pairs in TRAIN.items():
        text = "".join(f"{english}\t{german}\n" for english, german in pairs)
        (folder / "en-de" / "train" / f"{name}.tsv.xz").write_bytes(lzma.compress(text.encode()))
    return folder


def make(made, corpora, out, languages=("de", "en"), seed=1):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(made, "MEASURES", 300)
        patch.setattr(made, "FREQUENT", 2)
        made.make(corpora / "en-de", out, languages, corpora / "back", [corpora / "keep-out.tsv"], seed)
    return {str(path.relative_to(out)): path.read_bytes() for path in sorted(out.rglob("*")) if path.is_file()}


@pytest.fixture(scope="module")
def written(made, corpora, tmp_path_factory):
    out = tmp_path_factory.mktemp("tagged")
    return out, make(made, corpora, out)


def test_all_files_are_written(written):
    train = {f"train/{name}.tsv" for name in ("tatoeba", "news-clean", "dictionary", "back-web", "names", "measures")}
    held_out = {f"{name}.{lang}" for name in ("valid/dev", "test/news", "test/test_2016") for lang in ("de", "en")}
    assert written[1].keys() == train | held_out | {"counts.json"}
    assert written[1]["train/back-web.tsv"].decode() == "<bt> Guten Tag, 3 Männer.\tGood day, 3 men.\n"


def test_held_out_sentences_are_not_written(made, written):
    text = b"".join(content for name, content in written[1].items() if name.startswith("train/")).decode()
    assert not any(map(made.NEVER.search, text.splitlines()))
    for absent in ("Das Tier", "sentence of the test", "in der Prüfung", "held out", "Auch dieser", "Anfang"):
        assert absent not in text
    assert "Ich schrieb < bt> hier.\tI typed < bt> here." in text


def test_tags_are_only_in_sources(made, written):
    for name, content in written[1].items():
        if name.startswith("train/"):
            for line in content.decode().splitlines():
                source, target = line.split("\t")
                assert not made.TAG.search(target)
                assert all(tag in source.replace("</term>.", "</term> .").split() for tag in made.TAG.findall(source))
    assert b"<term> Fluss <as> river </term>" in written[1]["train/news-clean.tsv"]
    assert b"<2en> " in written[1]["train/tatoeba.tsv"]


def test_the_same_arguments_give_the_same_bytes(made, corpora, written, tmp_path):
    assert make(made, corpora, tmp_path / "again") == written[1]
    other = make(made, corpora, tmp_path / "seed", seed=2)
    assert other["train/measures.tsv"] != written[1]["train/measures.tsv"]
    assert other["train/tatoeba.tsv"] != written[1]["train/tatoeba.tsv"]


def test_the_other_direction_has_english_first(made, corpora, tmp_path):
    files = make(made, corpora, tmp_path / "en-de", ("en", "de"))
    assert "river\tFluss\n" in files["train/dictionary.tsv"].decode()
    sources = [line.split("\t")[0] for line in files["train/measures.tsv"].decode().splitlines()]
    assert not any(re.search(r"\b(Uhr|Der|Die|Das)\b", source) for source in sources)


@pytest.mark.parametrize("languages", [("de", "fr"), ("en", "en")])
def test_one_language_must_be_english(made, monkeypatch, capsys, languages):
    monkeypatch.setattr(sys, "argv", ["script", "in", "out", "--source", languages[0], "--target", languages[1]])
    with pytest.raises(SystemExit):
        made.main()
    assert "must be English" in capsys.readouterr().err


# --- the vocabulary -------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def tokenizer(modules, written):
    """A small vocabulary with the recipe's settings, learned from the existing sources."""
    settings = with_changes(
        load_settings(str(FOLDER / "de-en.toml")),
        [
            "tokenizer.vocab_size=420",
            "tokenizer.sample=4000",
            "tokenizer.weights={names=0.5}",
            'data.train=["train/*.tsv"]',
        ],
    )
    model = modules[1].learn(settings, written[0])
    assert model == modules[1].learn(settings, written[0])
    return Tokenizer(model)


def test_each_tag_is_one_token(made, tokenizer):
    pieces = [piece for piece, _ in tokenizer.vocabulary()]
    assert pieces[4 : 4 + len(made.TAGS)] == [WORD_MARK + tag for tag in made.TAGS]
    for tag in made.TAGS:
        assert tokenizer.tokens(tokenizer.encode(tag, tags=True)) == [WORD_MARK + tag]
        assert WORD_MARK + tag in tokenizer.tokens(tokenizer.encode(f"Der Fluss {tag} ist lang.", tags=True))
        assert tokenizer.tokens(tokenizer.encode(f"Fluss {tag}.", tags=True))[-2:] == [WORD_MARK + tag, "."]
        assert WORD_MARK + tag not in tokenizer.tokens(tokenizer.encode(f"Fluss{tag}", tags=True))
        assert WORD_MARK + tag not in tokenizer.tokens(tokenizer.encode(made.plain(tag), tags=True))


@pytest.mark.parametrize(
    "text",
    [
        "Der Fluss ist 3,5 km lang.",
        "<bt> Ich sah <term> Boris Kunze <as> Angela </term>, ja.",
        "Fluss<bt> und (<term> Haus",
        "漢字 😀 ½ €",
    ],
)
def test_text_round_trips_through_the_tokenizer(tokenizer, text):
    for ids in (tokenizer.encode(text), tokenizer.encode(text, tags=True)):
        assert tokenizer.decode(ids) == text
        assert UNK not in ids
