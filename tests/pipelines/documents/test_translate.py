"""Translating a document: alignments through English, copied text, and too many tags."""

import numpy as np

from onehop.pipelines.alignment import Aligned
from onehop.pipelines.documents import read_document
from onehop.pipelines.documents.flow import flow_of, plain
from onehop.pipelines.documents.translate import Memory, align_copies, translate_document, windows
from onehop.pipelines.glossary import Terms
from onehop.pipelines.html_tags import MAX_MARKS, words
from onehop.pipelines.pivot import PivotTranslator
from onehop.pipelines.plan import run
from onehop.pipelines.result import Sentence


def test_through_english_tags_go_with_their_words(pipeline):
    by = PivotTranslator(pipeline(str.upper), pipeline(lambda word: f"{word}x"), Terms())
    out = translate_document(by, read_document(b"the <b>old</b> house", "x.html"), Memory())
    assert out == b"THEx <b>OLDx</b> HOUSEx"
    _, (sentences,) = run(by.plan(["the old house"]))
    (found,) = run(by.alignment_plan(sentences))
    assert found.attention.tolist() == np.eye(3).tolist()


def test_through_english_copied_sentences_keep_alignments_in_order(pipeline):
    changed = {"old": "alte", "house": "Haus", "is": "ist", "here": "da"}
    by = PivotTranslator(pipeline(str), pipeline(lambda word: changed.get(word, word)), Terms())
    document = read_document(b"<p>one <b>two</b></p><p>the old house <b>is</b> here</p>", "x.html")
    assert translate_document(by, document, Memory()) == b"<p>one <b>two</b></p><p>the alte Haus <b>ist</b> da</p>"


def test_copied_text_is_aligned_with_itself():
    flow = flow_of(plain("{name} is here"))
    source, target = "{name} is here", "hier ist {name}"
    sentence = Sentence(source=source, text=target)
    attention = np.full((len(words(target)), len(words(source))), 0.2, dtype=np.float32)
    found = align_copies(flow, (0, len(source)), Aligned(sentence, words(source), words(target), attention))
    assert found.attention[2:, :3].tolist() == np.ones((3, 3)).tolist()
    assert not found.attention[:2, :3].any()
    assert not found.attention[2:, 3:].any()


def test_a_sentence_with_too_many_tags_is_copied_with_a_warning(pipeline):
    text = " ".join(f"<b>w{i}</b>" for i in range(MAX_MARKS))
    told = []
    out = translate_document(
        pipeline(), read_document(text.encode(), "x.html"), Memory(), warn=lambda _, warnings: told.extend(warnings)
    )
    assert out.decode() == text
    assert told == ["a sentence has hundreds of tags, and was left as it is"]


def test_windows_contain_every_item_once():
    keys = [str(i) for i in range(5000)]
    found = list(windows(keys))
    assert [key for window in found for key in window] == keys
    assert [len(window) for window in found[:6]] == [64, 128, 256, 512, 1024, 1024]
