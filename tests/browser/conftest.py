"""The explorer's page over a tiny model with random weights, from a file and served, in Chromium."""

import json
import os
import shutil
import threading
import time

import numpy as np
import pytest
import torch
import uvicorn
from explorer_page import TEXT, opened
from playwright.sync_api import sync_playwright
from starlette.applications import Starlette
from torch import nn

from onehop.config import ModelSettings, TokenizerSettings
from onehop.decoding.options import SearchOptions
from onehop.experiments import coreference, digits, heads, lengths, pruning, short_runs, synthetic
from onehop.explorer import content
from onehop.explorer.content import Explorer
from onehop.explorer.serve import routes_of
from onehop.interpret.tracer import Tracer
from onehop.model.transformer import Transformer
from onehop.model.variants import VisionTransformer
from onehop.pipelines.sentence_translator import SentenceTranslator
from onehop.text.tokenizer import EOS, Tokenizer

FLAGS = ["--headless", "--no-sandbox", "--disable-gpu", "--disable-background-networking", "--process-per-site"]


class Reticent(Tracer):
    """Ends its sentences after a few pieces, so that a page of nonsense stays short."""

    short = SearchOptions(min_length=6)

    def trace(self, text, edits=(), options=None, **more):
        return super().trace(text, edits, options or self.short, **more)

    def variant(self, text, edits, options=None):
        return super().variant(text, edits, options or self.short)


class SlowTracer(Reticent):
    """Takes its time for each piece of every text but the first, and knows whether a search was stopped."""

    def __init__(self, *args):
        super().__init__(*args)
        self.stopped = threading.Event()

    def trace(self, text, edits=(), options=None, on_step=None, **more):
        def slowly(count):
            try:
                on_step(count)
            except Exception:
                self.stopped.set()
                raise
            time.sleep(0.5)

        slow = None if text == TEXT else slowly
        return super().trace(text, edits, options, on_step=slow, **more)


def a_translator(seed: int = 5, **other: int) -> SentenceTranslator:
    """Random weights, and every width different from every other, so that none can stand in for another."""
    words = [f"{a} {b} {c}" for a in ("the", "a", "it") for b in ("old", "new") for c in ("house", "tree", "bird")]
    tokenizer = Tokenizer.learn(words, TokenizerSettings(vocab_size=300))
    widths = {"d_model": 16, "d_ff": 24, "n_heads": 3, "d_k": 6, "d_v": 5, "n_encoder_layers": 2, "n_decoder_layers": 3}
    widths |= other
    torch.manual_seed(seed)
    model = Transformer(ModelSettings(**widths, dropout=0.0, output_bias=True), tokenizer.vocab_size)
    with torch.no_grad():
        model.output_bias[EOS] = 8.0
        for parameter in model.parameters():
            if parameter.dim() == 1 and len(parameter) == widths["d_model"]:
                nn.init.normal_(parameter, mean=0.5, std=0.5)
    return SentenceTranslator.of_model(model.eval(), tokenizer, "en", "de")


@pytest.fixture(scope="session")
def tracer():
    return Reticent(a_translator(), "tiny", "ab" * 32)


@pytest.fixture(scope="session")
def second():
    """A model of the same languages with more layers and fewer heads."""
    return Reticent(a_translator(7, n_heads=2, n_decoder_layers=4), "second", "cd" * 32)


def measurements(tracer) -> dict:
    """Small ones by the functions that make the large ones; of the trainings only the form."""
    texts, references = [TEXT, "a new bird", "it saw the tree"], ["ein altes Haus", "ein Vogel", "es sah den Baum"]
    return {
        "dimension": synthetic.dimension(),
        "paths": synthetic.paths(draws=2),
        "complexity": synthetic.complexity(lengths=(4, 8), widths=(16,), repeats=1),
        "coreference": coreference.coreference(tracer),
        "patterns": heads.patterns(tracer, texts),
        "pruning": pruning.pruning(tracer, texts, references),
        "lengths": lengths.lengths(tracer, texts, references, longest=4),
        "patches": {**images(), "right": 3, "of": 4},
        **short_trainings(),
    }


def short_trainings() -> dict:
    """Two comparisons as `short_runs` gives them, without the training."""
    curve = [[1, 9.0], [10, 4.0], [20, 3.0]]
    norms = [{"norm": n, "warmup": w, "curve": curve, "diverged": w == 1} for n in ("post", "pre") for w in (1, 10)]
    scores = [(1, 1, 9.0, 3.0), (8, 1, 7.0, 5.0), (1, 2, 8.0, 4.0), (8, 2, 6.5, 6.0)]
    runs = [
        {"n_heads": n, "d_k": 16 // n, "parameters": 900, "seed": s, "perplexity": p, "bleu": b}
        for n, s, p, b in scores
    ]
    facts = {"layers": [2, 2], "d_model": 16, "steps": 20, "batch_tokens": 100, "learning_rate": 0.002}
    facts["data"] = {"pairs": 30, "valid": 4, "vocab_size": 300}
    kinds = {"sinusoidal": 7.0, "learned": 5.0}
    positions = [{"positions": k, "seeds": 2, "bleu": b, "bleu_range": [b - 0.5, b + 0.5]} for k, b in kinds.items()]
    twins = {**facts, "positions": positions, "base": 8, "runs": runs, "rows": short_runs.means(runs, (1, 8))}
    return {"warmup": {**facts, "seed": 1, "runs": norms}, "twins": twins}


def images() -> dict:
    """Four images of 6 × 6 pixels as a vision model with random weights sees them; no side like any other."""
    sizes = {"image": 6, "patch": 2, "levels": 5, "d_model": 12, "d_ff": 8, "n_heads": 3, "n_encoder_layers": 2}
    torch.manual_seed(6)
    network = VisionTransformer(ModelSettings(kind="vision", **sizes, dropout=0.0), 5)
    with torch.no_grad():
        for parameter in network.parameters():
            nn.init.normal_(parameter)
    pixels = np.random.default_rng(6).integers(0, 5, (4, 6, 6))
    return digits.patches(network.eval(), pixels, np.arange(4), [0, 1, 3])


@pytest.fixture(scope="session")
def measured(tracer, tmp_path_factory):
    folder = tmp_path_factory.mktemp("data")
    model = {"name": "tiny", "hash": "ab" * 32}
    origin = {"date": "2026-01-01", "machine": {"cpu": "test"}, "model": model, "set": "few"}
    with pytest.MonkeyPatch.context() as patch:
        pronouns, verbs = coreference.coreference_sentences()[:3], list(heads.subject_sentences())[:3]
        for module in (coreference, heads):
            patch.setattr(module, "coreference_sentences", lambda: pronouns)
        patch.setattr(heads, "subject_sentences", lambda: iter(verbs))
        for name, found in measurements(tracer).items():
            (folder / f"{name}.json").write_text(json.dumps({"name": name, **origin, **found}), encoding="utf-8")
    shutil.copy(content.DATA / "paper.json", folder)
    return folder


@pytest.fixture(scope="module")
def data(measured):
    """The measurements in the place of the package's own."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(content, "DATA", measured)
        yield measured


@pytest.fixture(scope="module")
def explorer(tracer, data):
    return Explorer(tracer, TEXT)


@pytest.fixture(scope="module")
def file(explorer, tmp_path_factory):
    file = tmp_path_factory.mktemp("page") / "page.html"
    file.write_text(explorer.alone(TEXT), encoding="utf-8")
    return file


@pytest.fixture(scope="module")
def address(explorer):
    """The same page, served."""
    yield from served(explorer)


@pytest.fixture(scope="module")
def beside(tracer, second, data):
    """The page of two models, served."""
    yield from served(Explorer(tracer, TEXT, other=Explorer(second, TEXT)))


@pytest.fixture
def slow(tracer, data):
    """The address of a page whose model is slow, and the event that says that a search was stopped."""
    slow = SlowTracer(tracer.translator, "slow", "12" * 32)
    for address in served(Explorer(slow, TEXT)):
        yield address, slow.stopped


@pytest.fixture
def many_heads(data):
    """The page of a model with as many layers and heads as the shipped ones."""
    widths = {"n_heads": 8, "n_encoder_layers": 6, "n_decoder_layers": 6}
    yield from served(Explorer(Reticent(a_translator(9, **widths), "wide", "ef" * 32), TEXT))


def served(explorer):
    app = Starlette(routes=routes_of(explorer))
    server = uvicorn.Server(uvicorn.Config(app, host="127.0.0.1", port=0, log_level="error", ws="none"))
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    while not server.started:
        assert thread.is_alive()
    yield f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}/"
    server.should_exit = True
    thread.join(timeout=10)


@pytest.fixture(scope="module")
def browser():
    program = shutil.which("chromium") or shutil.which("chromium-browser")
    if program is None and not os.environ.get("CI"):
        pytest.skip("there is no chromium here: apt-get install chromium")
    assert program is not None, "CI needs chromium"
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=program, args=FLAGS)
        yield browser
        browser.close()


@pytest.fixture(scope="module")
def page(browser, file):
    """The exported page, from disk and without a network."""
    with opened(browser, file.as_uri(), offline=True) as page:
        yield page


@pytest.fixture
def fresh(browser, file):
    with opened(browser, file.as_uri(), offline=True) as page:
        yield page


@pytest.fixture(scope="module")
def phone(browser, address):
    """The served page on a narrow screen, for one question after the other."""
    with opened(browser, address, width=390) as page:
        yield page


@pytest.fixture
def live(browser, address):
    with opened(browser, address) as page:
        yield page
