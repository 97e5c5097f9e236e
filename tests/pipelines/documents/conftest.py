"""Document translators with a known output: the same text, or the text in capitals."""

from types import SimpleNamespace

import numpy as np
import pytest

from onehop.pipelines import alignment, paragraphs
from onehop.pipelines.alignment import Aligned
from onehop.pipelines.documents import ReadOptions, read_document
from onehop.pipelines.documents.translate import Memory, translate_document
from onehop.pipelines.html_tags import words
from onehop.pipelines.paragraphs import ParagraphTranslator
from onehop.pipelines.sentence_translator import SentenceTranslator, Translation
from onehop.text.tokenizer import normalise


class WordByWord(SentenceTranslator):
    """Translates word by word, and records the texts that it gets."""

    source, target = "en", "xx"

    def __init__(self, word):
        self.word, self.asked, self.texts = word, [], []
        self.tokenizer = SimpleNamespace(
            encode=lambda text: [len(word) for word in text.split()],
            encode_batch=lambda texts, threads: [[self.id(text)] for text in texts],
            target=SimpleNamespace(encode=None),
        )

    def id(self, text):
        """A number for a text, in place of token ids."""
        self.texts.append(text)
        return len(self.texts)

    def translate_ids(self, encoded, options, indices):
        texts = [self.texts[i - 1] for (i,) in encoded]
        self.asked += texts
        return [[self.made(" ".join(map(self.word, normalise(text).split(" "))))] for text in texts]

    def made(self, text):
        return Translation(text, ("t",), -1.0, -2.0, finished=True, looped=False)


def aligned(translator, sentences):
    """Aligns each target word with the source word at the same index."""
    found = []
    for s in sentences:
        source, target = words(normalise(s.model_input)), words(s.text)
        attention = np.eye(len(target), len(source), dtype=np.float32)
        found.append(Aligned(s, source, target, attention) if s.n_best else Aligned(s))
    return found


@pytest.fixture
def pipeline(monkeypatch):
    """Makes a pipeline that applies a function to each word."""
    monkeypatch.setattr(alignment, "align_sentences", aligned)
    monkeypatch.setattr(paragraphs, "force_missing_terms", lambda translator, text, ids, translation, *_: translation)
    return lambda word=str.upper: ParagraphTranslator(WordByWord(word), max_length=128, keep_capitals=True)


@pytest.fixture
def translated(pipeline):
    """Translates a document, given as text or bytes, with such a pipeline."""

    def made(document, name, word=str.upper, **how):
        data = document.encode() if isinstance(document, str) else document
        out = translate_document(pipeline(word), read_document(data, name, ReadOptions(**how)), Memory())
        return out.decode() if isinstance(document, str) else out

    return made


@pytest.fixture
def same(translated):
    """Whether a translator that changes no word returns the document byte for byte."""

    def made(document, name, **how):
        return translated(document, name, word=str, **how) == document

    return made
