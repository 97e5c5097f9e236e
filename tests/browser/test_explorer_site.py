"""The static site: the model runs in Chromium, and its numbers are those of the Python trace."""

import functools
import http.server
import os
import random
import threading
from pathlib import Path
from typing import ClassVar

import numpy as np
import pytest
import torch
from explorer_page import FIGURES, opened_apart, settled
from playwright.sync_api import expect
from safetensors.torch import save
from stored_models import stored_model
from torch import nn

import onehop
from onehop.config import ModelSettings, TokenizerSettings
from onehop.errors import OnehopError
from onehop.explorer.content import Explorer
from onehop.explorer.site import tokenizer_rules, write_site
from onehop.interpret import tracer as tracing
from onehop.interpret.trace_file import unpack
from onehop.interpret.tracer import Tracer
from onehop.model.transformer import Transformer
from onehop.pipelines.confidence import DOUBTFUL, WEIGHTS, confidence
from onehop.storage.model_io import read_model, write_model
from onehop.storage.number_formats import Int8Rows, convert, to_float32
from onehop.text.tokenizer import Tokenizer

TEXT = "the old house saw it"
OPENING = "a new tree"  # stored with the site; everything else is computed in the browser
WORDS = [f"{a} {b} {c}" for a in ("the", "a", "it") for b in ("old", "new") for c in ("house", "tree", "bird")]
PLAIN = {"d_model": 16, "d_ff": 32, "n_heads": 2, "n_encoder_layers": 2, "n_decoder_layers": 2, "dropout": 0.0}
# The paper's architecture with widths that do not fit the kernel, and a model with every other option changed.
KINDS = {
    "odd": ({**PLAIN, "n_heads": 3, "d_k": 6, "d_v": 5, "d_ff": 25, "n_decoder_layers": 3}, "int8"),
    "other": (
        {**PLAIN, "n_encoder_layers": 4, "norm": "pre", "positions": "learned", "tied": False, "activation": "gelu"}
        | {"attention_bias": True, "output_bias": True, "source_end": False, "max_length": 64},
        "bfloat16",
    ),
}
EDITS = ["mask=off", "positions=shuffled:7", "scale=2@cross.1.0", "heads=averaged@encoder", "norm=off@encoder.1"]
TIED = ("residual=off", "norm=off")  # without them a random model has several outputs that are equally good
# A trace as the page's backend gives it, its bytes in base64.
TRACE = """async ([text, edits]) => {
  const { blob, ...rest } = await window.onehop.view().backend.trace(text, edits);
  return { ...rest, blob: blob.toBase64() };
}"""


def model_of(kind: str, folder: Path) -> Path:
    """A model with random weights in a file."""
    settings, store = KINDS[kind]
    tokenizer = Tokenizer.learn(WORDS, TokenizerSettings(vocab_size=301), tags=["<bt>", "<2de>"])
    torch.manual_seed(5)
    model = Transformer(ModelSettings(**settings), tokenizer.vocab_size)
    for parameter in model.parameters():
        if parameter.dim() == 1:
            nn.init.normal_(parameter, mean=0.5, std=0.5)
    with torch.no_grad():  # what is likely is plainly so: of two equally good outputs either may be found
        (model.embedding if model.output is None else model.output).weight.mul_(4.0)
    return write_model(folder / f"{kind}.safetensors", stored_model(model, tokenizer), store=store)


class Quiet(http.server.SimpleHTTPRequestHandler):
    """As `python -m http.server`, and it remembers what was asked for."""

    asked: ClassVar[list[str]] = []

    def log_message(self, *_):
        self.asked.append(self.path)


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    return tmp_path_factory.mktemp("sites")


@pytest.fixture(scope="module")
def address(root):
    """A static server over all sites."""
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Quiet, directory=root)) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_address[1]}/"
        server.shutdown()


@pytest.fixture(scope="module", params=KINDS)
def kind(request):
    return request.param


@pytest.fixture(scope="module")
def exact():
    """Traces in float32, and outputs that end soon."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tracing, "compact", lambda name, values: values.astype(np.float32))
        patch.setattr("onehop.decoding.engine.MORE_THAN_SOURCE", 4)
        yield


@pytest.fixture(scope="module")
def explorer(kind, root, exact, tmp_path_factory):
    """The explorer in Python; its site is written beside the others."""
    model = model_of(kind, tmp_path_factory.mktemp("model"))
    explorer = Explorer(Tracer.load(model, "cpu"), OPENING)
    write_site(explorer, model, root / kind)
    return explorer


@pytest.fixture(scope="module")
def site(explorer, kind, browser, address):
    with opened_apart(browser, f"{address}{kind}/") as page:
        yield page


def assert_close(found, expected, where="", tolerance=1e-4):
    """Equal texts and structures, and numbers that differ by less than the tolerance, or by that share."""
    if isinstance(expected, dict):
        assert found.keys() == expected.keys(), where
        for key in expected:
            assert_close(found[key], expected[key], f"{where}.{key}", tolerance)
    elif isinstance(expected, list | tuple):
        assert len(found) == len(expected), where
        for i, pair in enumerate(zip(found, expected, strict=True)):
            assert_close(*pair, f"{where}[{i}]", tolerance)
    elif isinstance(expected, float):
        assert found == pytest.approx(expected, rel=tolerance, abs=tolerance), where
    else:
        assert found == expected, where


def assert_same_trace(found, trace):
    """Every field and every tensor; a tensor's error is measured against its largest number, if that is above 1."""
    tensors = unpack(found)
    same = {"engine": "JavaScript", "fast": None, "seconds": found["seconds"], "tensors": found["tensors"]}
    same["confidence"] = found["confidence"]  # the explorer's, which has its own test
    assert_close(found, {**trace.header, **same, "blob": found["blob"]})
    assert tensors.keys() == set(trace)
    for name, tensor in tensors.items():
        assert tensor.axes == trace.axes(name)
        expected = trace[name]
        largest = np.abs(expected, where=np.isfinite(expected), out=np.zeros_like(expected)).max()
        np.testing.assert_allclose(tensor.values, expected, rtol=0, atol=1e-4 * max(1.0, largest), err_msg=name)


def test_traces_equal_pythons(site, explorer):
    for edits in ([], *([edit] for edit in EDITS), ["scale=off", "head=off@cross.1.1"]):
        assert_same_trace(site.evaluate(TRACE, [TEXT, edits]), explorer.tracer.trace(TEXT, edits))


def test_variants_equal_pythons(site, explorer):
    ask = """async ([text, edits]) => {
      const { blob, ...rest } = await window.onehop.view().backend.variant(text, edits);
      return { ...rest, blob: blob.toBase64() };
    }"""
    for edit in explorer.edits():
        expected = explorer.variant(TEXT, [edit])
        found = site.evaluate(ask, [TEXT, [edit]])
        assert found["target"]["score"] == pytest.approx(expected["target"]["score"], abs=1e-4)
        if edit in TIED:
            continue
        cross, expected_cross = (unpack(each)["cross"].values for each in (found, expected))
        np.testing.assert_allclose(cross, expected_cross, atol=1e-4)
        assert_close(found, {**expected, "tensors": found["tensors"], "blob": found["blob"]}, edit)


def test_head_effects_equal_pythons(site, explorer):
    ask = """async (text) => {
      const parts = [];
      await window.onehop.view().backend.heads(text, [], { onPart: (part) => parts.push(part) });
      return parts;
    }"""
    assert_close(site.evaluate(ask, TEXT), list(explorer.heads(TEXT)))


def test_a_sweep_can_be_stopped(site):
    stopped = """async (text) => {
      const [cancel, parts] = [new AbortController(), []];
      const each = (part) => parts.push(part) === 2 && cancel.abort();
      const ended = await window.onehop.view().backend.heads(text, [], { onPart: each, signal: cancel.signal })
        .catch((error) => error.message);
      return [ended, parts.length < 1 + parts[0].attentions];
    }"""
    text = " ".join([TEXT] * 6)  # so long that the sweep cannot end before it is stopped
    assert site.evaluate(stopped, text) == ["Stopped.", True]


def test_neurons_and_matrices_equal_pythons(site, explorer):
    for stack, layer in (("encoder", 1), ("decoder", 0)):
        found = site.evaluate("a => window.onehop.view().backend.neurons(...a)", [stack, layer, [3, 0, 11]])
        assert_close(found, explorer.tracer.neurons(stack, layer, [3, 0, 11]))
    ask = """async (place) => {
      const { blob, tensors } = await window.onehop.view().backend.weights(...place);
      return { tensors, blob: blob.toBase64() };
    }"""
    for role in ("encoder", "decoder", "cross"):
        expected = unpack(explorer.tracer.weights(role, 1, 1))
        found = unpack(site.evaluate(ask, [role, 1, 1]))
        assert found.keys() == expected.keys()
        for name, tensor in found.items():
            assert tensor.axes == expected[name].axes
            np.testing.assert_array_equal(tensor.values, expected[name].values)


def test_the_page_works_with_the_network_cut(site, explorer, kind):
    """Three typed sentences, and a switch: everything that is needed was fetched."""
    expect(site.locator("html")).to_have_attribute("data-model", "ready")
    site.context.set_offline(True)
    for text in ("a new bird", "it saw the tree", "the house"):
        site.fill("input[name=sentence]", text)
        site.click("form.ask button")
        expect(site.locator(".answer")).to_have_attribute("data-sentence", text)
        settled(site)
        shown = site.evaluate("window.onehop.view().trace.target.text")
        assert shown == explorer.tracer.trace(text).text
    site.locator("#figure-breaking").scroll_into_view_if_needed()
    site.locator("#figure-breaking input[type=checkbox]").first.check()
    expect(site.locator(".edited").first).to_be_visible()
    settled(site)
    site.evaluate("window.onehop.view().choose({ edits: [] })")
    settled(site)
    site.context.set_offline(False)


def test_bad_input_gets_one_line(site, explorer):
    site.fill("input[name=sentence]", "   ")
    site.click("form.ask button")
    expect(site.get_by_role("alert")).to_have_text("There is nothing to trace: the text is empty. Give a sentence.")
    refused = "edit => window.onehop.view().backend.trace('the house', [edit]).catch((error) => error.message)"
    for edit in ("colour=blue", "scale=red", "head=off@cross.1", "head=off@cross.9.0", "scale=0", "mask=off@cross"):
        with pytest.raises(OnehopError) as expected:
            explorer.tracer.trace("the house", [edit])
        assert site.evaluate(refused, edit).startswith(expected.value.what)


def test_the_model_is_fetched_once(browser, explorer, kind, address):
    Quiet.asked.clear()
    with opened_apart(browser, f"{address}{kind}/") as page:
        page.reload()
        settled(page)
    assert sum("model.safetensors" in path for path in Quiet.asked) == 1


# --- one site is enough ----------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def another(root, exact, tmp_path_factory):
    """A site to be damaged, and a page without anything."""
    (root / "empty.html").write_text("<!doctype html><title>nothing</title>", encoding="utf-8")
    model = model_of("odd", tmp_path_factory.mktemp("model"))
    write_site(Explorer(Tracer.load(model, "cpu"), OPENING), model, root / "damaged")
    return root / "damaged"


def test_a_partial_download_is_reported_and_repeated(browser, another, address):
    file = another / "model.safetensors"
    whole = file.read_bytes()
    file.write_bytes(whole[:-100])
    os.utime(file, (1, 1))  # a browser takes what is old for what it may keep
    with opened_apart(browser, f"{address}damaged/") as page:
        expect(page.locator("html")).to_have_attribute("data-model", "failed")
        expect(page.get_by_role("alert")).to_contain_text(f"The model has {len(whole)} bytes")
        file.write_bytes(whole)
        page.get_by_role("button", name="Fetch the model").click()
        expect(page.locator("html")).to_have_attribute("data-model", "ready")
        expect(page.locator(".model-status")).to_have_count(0)


def test_the_stored_example_is_shown_before_the_model_is_loaded(browser, another, address):
    """Every figure is drawn, and the sweep is there, while the model's file is held back; a sentence waits for it."""
    held = []
    with opened_apart(browser, f"{address}empty.html", wait=False) as page:
        page.route("**/model.safetensors*", lambda route: held.append(route))
        page.goto(f"{address}damaged/")
        settled(page)
        expect(page.locator("html")).to_have_attribute("data-model", "loading")
        expect(page.locator(".answer")).to_have_attribute("data-sentence", OPENING)
        expect(page.locator("figure[data-drawn]")).to_have_count(len(FIGURES))
        page.evaluate("window.onehop.view().startSweep()")
        page.wait_for_function("window.onehop.view().sweep.state === 'done'")
        page.fill("input[name=sentence]", TEXT)
        page.click("form.ask button")
        expect(page.locator(".answer")).to_have_attribute("aria-busy", "true")
        for route in held:
            route.continue_()
        expect(page.locator(".answer")).to_have_attribute("data-sentence", TEXT)


def test_fetching_the_model_can_be_stopped(browser, another, address):
    with opened_apart(browser, f"{address}empty.html", wait=False) as page:
        page.route("**/model.safetensors*", lambda _: None)
        page.goto(f"{address}damaged/#sentence=the+house")
        status = page.locator(".model-status")
        expect(status).to_contain_text("0.0 of")
        expect(page.locator(".answer")).to_have_attribute("data-sentence", OPENING)  # until its own is there
        status.get_by_role("button", name="Stop").click()
        expect(page.locator("html")).to_have_attribute("data-model", "stopped")
        expect(status).to_contain_text("The model was not fetched")
        expect(page.get_by_role("alert")).to_contain_text("The model is not here.")
        page.unroute("**/model.safetensors*")
        status.get_by_role("button", name="Fetch the model").click()
        expect(page.locator("html")).to_have_attribute("data-model", "ready")
        page.click("form.ask button")
        expect(page.locator(".answer")).to_have_attribute("data-sentence", "the house")


def test_the_confidence_equals_pythons(browser, another, address):
    """Stopped, looped, short and long ones; edited ones and those of a model without weights have none."""
    ask = """async ([fitted, targets]) => {
      const { confidenceOf } = await import("./damaged/page/local/confidence.js");
      return targets.map((target) => confidenceOf(fitted, target, []));
    }"""
    cases = [(-0.3, 1, True, False), (-9.0, 12, True, False), (-80.0, 5, True, False), (-2.0, 40, True, False)]
    cases += [(-1.0, 9, False, False), (-1.0, 9, True, True)]
    targets = [{"ids": [7] * n, "finished": f, "looped": r, "log_prob": p} for p, n, f, r in cases]
    with opened_apart(browser, f"{address}empty.html", wait=False) as page:
        found = page.evaluate(ask, [{"weights": WEIGHTS["en-de"], "doubtful": DOUBTFUL}, targets])
        assert page.evaluate(ask, [{"weights": None, "doubtful": DOUBTFUL}, targets[:1]]) == [None]
    for each, (p, n, f, r) in zip(found, cases, strict=True):
        expected = confidence("en-de", p, n + f, finished=f and not r)
        assert each == {"value": pytest.approx(expected, abs=1e-9), "doubtful": expected < DOUBTFUL}


def test_a_doubtful_translation_is_marked(browser, another, address):
    shown = """(confidence) => {
      const { json } = window.onehop.view().trace;
      json.confidence = confidence;
      window.onehop.view().chooseToken(0);
    }"""
    with opened_apart(browser, f"{address}damaged/") as page:
        expect(page.locator("[data-confidence]")).to_have_count(0)  # random weights: nobody has fitted it
        page.evaluate(shown, {"value": 0.12, "doubtful": True})
        expect(page.locator("[data-confidence]")).to_contain_text("12%")
        expect(page.locator("[data-confidence] .verdict")).to_have_text("doubtful")
        page.evaluate(shown, {"value": 0.82, "doubtful": False})
        expect(page.locator("[data-confidence]")).to_contain_text("82%")
        expect(page.locator("[data-confidence] .verdict")).to_have_count(0)


def answering(module: str):
    return lambda route: route.fulfill(body=module, content_type="text/javascript")


def test_missing_simd_or_webassembly_is_reported(browser, another, address):
    lacking = {
        "WebAssembly.instantiate = () => Promise.reject(new Error('no SIMD'));": ("ready", "no WebAssembly SIMD"),
        "delete globalThis.WebAssembly;": ("failed", "This browser has no WebAssembly"),
    }
    for script, (state, told) in lacking.items():
        module = script + (another / "page/local/errors.js").read_text(encoding="utf-8")
        with opened_apart(browser, f"{address}empty.html", wait=False) as page:
            page.route("**/local/errors.js", answering(module))
            page.goto(f"{address}damaged/")
            expect(page.locator("html")).to_have_attribute("data-model", state)
            expect(page.locator(".model-status")).to_contain_text(told)
            settled(page)


def test_without_the_stored_tensors_the_model_computes_them(browser, another, address):
    with opened_apart(browser, f"{address}empty.html", wait=False) as page:
        page.route("**/example.json", lambda route: route.abort())
        page.goto(f"{address}damaged/")
        settled(page)
        expect(page.locator("figure[data-drawn]")).to_have_count(len(FIGURES))


def as_tensor(array):
    """NumPy has no bfloat16; its 16 bits are stored."""
    tensor = torch.from_numpy(array)
    return tensor.view(torch.bfloat16) if array.dtype == np.uint16 else tensor


def test_matrix_products_equal_numpys(browser, another, address):
    """In every number format, by both kernels and without one, also where widths are no multiple of the block."""
    ask = """async ([bytes, x, refused]) => {
      const instantiate = WebAssembly.instantiate;
      let left = refused;
      WebAssembly.instantiate = (...given) =>
        left-- > 0 ? Promise.reject(new Error("no SIMD")) : instantiate(...given);
      const { Weights, allocate } = await import("./damaged/page/local/weights.js");
      const memory = allocate(bytes.length);
      memory.file.set(bytes);
      const weights = await Weights.open(memory);
      WebAssembly.instantiate = instantiate;
      if (weights.isFast !== refused < 2) throw new Error("the kernel is another");
      const numbers = Float32Array.from(x);
      return [Array.from(weights.linear(numbers, "w", weights.floats("b"))), Array.from(weights.column("w", 1))];
    }"""
    draw = np.random.default_rng(3)
    sizes = [(1, 4, 4), (2, 7, 12), (3, 33, 20), (5, 8, 15)]
    with opened_apart(browser, f"{address}empty.html", wait=False) as page:
        for store in ("float32", "bfloat16", "int8"):
            for rows, height, width in sizes:
                w = draw.normal(size=(height, width)).astype(np.float32)
                x, bias = draw.normal(size=(rows, width)), draw.normal(size=height).astype(np.float32)
                stored = convert("w", w, store)
                scale = {"w.scale": stored.scale} if isinstance(stored, Int8Rows) else {}
                arrays = {"w": getattr(stored, "values", stored), "b": bias, **scale}
                file = list(save({name: as_tensor(array) for name, array in arrays.items()}))
                for refused in range(3):  # neither, relaxed SIMD, all SIMD
                    product, column = page.evaluate(ask, [file, x.ravel().tolist(), refused])
                    expected = x @ to_float32(stored).T + bias
                    np.testing.assert_allclose(np.reshape(product, expected.shape), expected, atol=1e-5)
                    np.testing.assert_array_equal(np.array(column, np.float32), to_float32(stored)[:, 1])


def odd_lines() -> list[str]:
    """Prose and code of the project itself, and characters drawn from all over Unicode."""
    folder = Path(onehop.__file__).parent
    files = [folder / "models/en-de/card.md", *sorted((folder / "explorer").glob("**/*.js"))]
    lines = [line for file in files for line in file.read_text(encoding="utf-8").splitlines() if line.strip()]
    draw = random.Random(1)
    ranges = [(0x20, 0x7F), (0xA0, 0x250), (0x300, 0x370), (0x400, 0x500), (0x3040, 0x30FF), (0x4E00, 0x9FFF)]
    ranges += [(0x1F300, 0x1F6FF), (0xAC00, 0xD7A4), (0x2000, 0x206F), (0, 0x20), (0xFE00, 0xFFFF)]
    odd = ["", " ", "\u2581", "a\u2581b", "\x00", "\ufeffx", "e\u0301", "\u1100\u1161", "\ud800x\udc00", "<s> </s>"]
    odd += ["<bt> Hi", "x <2de> y", "<0x41>", "<unk>", "\x1c\x85a\u3000b", "Ｆｕｌｌ", "ﬁ", "1234567890", "x" * 3000]
    for _ in range(400):
        chosen = draw.choices(ranges, k=draw.randint(1, 3))
        odd.append("".join(chr(draw.randrange(*draw.choice(chosen))) for _ in range(draw.randint(1, 40))))
    return [*odd, *draw.sample(lines, 1000)]


def test_the_tokenizer_equals_sentencepiece(browser, another, address):
    """On prose, code and odd input, with the shipped vocabulary; ids drawn at random come back as the same text."""
    tokenizer = Tokenizer(read_model(Path(onehop.__file__).parent / "models/en-de/model.safetensors").tokenizer)
    lines = odd_lines()
    draw = random.Random(2)
    spoken = [draw.choices(range(1, tokenizer.vocab_size), k=8) for _ in range(200)]
    spoken += [draw.choices(range(4, 320), k=8) for _ in range(200)]
    ask = """async ([rules, units, spoken]) => {
      const { Tokenizer, normalise } = await import("./page/local/tokenizer.js");
      const tokenizer = new Tokenizer(rules);
      const lines = units.map((line) => String.fromCharCode(...line));
      return [lines.map((line) => tokenizer.encode(line)), spoken.map((ids) => tokenizer.decode(ids))];
    }"""
    units = [np.frombuffer(s.encode("utf-16-le", "surrogatepass"), np.uint16).tolist() for s in lines]
    with opened_apart(browser, f"{address}damaged/", wait=False) as page:
        encoded, decoded = page.evaluate(ask, [tokenizer_rules(tokenizer), units, spoken])
    assert len(lines) > 1400
    for line, ids in zip(lines, encoded, strict=True):
        assert ids == tokenizer.encode(line), repr(line)
    for ids, text in zip(spoken, decoded, strict=True):
        assert text == tokenizer.decode(ids), tokenizer.tokens(ids)


@pytest.mark.slow
def test_the_shipped_model_runs_in_the_browser(browser, root, address):
    """The first sentence of the page: every number that the page is given, and the figure that is drawn from it."""
    model = Path(onehop.__file__).parent / "models/en-de/model.safetensors"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tracing, "compact", lambda name, values: values.astype(np.float32))
        explorer, text = Explorer(Tracer.load(model, "cpu")), "The cat sat because it was sleepy."
        write_site(explorer, model, root / "en-de")
        trace = explorer.tracer.trace(text)
    with opened_apart(browser, f"{address}en-de/") as page:
        found = page.evaluate(TRACE, [text, []])
    assert_same_trace(found, trace)
