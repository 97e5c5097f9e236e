"""Further passes over a traced translation: each head switched off, the logit lens, the effects of neurons."""

import pytest
import torch

from onehop.config import ModelSettings, TokenizerSettings
from onehop.errors import SettingsError
from onehop.interpret.ablations import parse_edits
from onehop.interpret.reruns import attentions
from onehop.interpret.tracer import Tracer
from onehop.model.transformer import Transformer
from onehop.pipelines.sentence_translator import SentenceTranslator
from onehop.text.tokenizer import EOS, Tokenizer

TEXT = "the old house"
VARIANTS = {
    "post-norm": {},
    "pre-norm": {"norm": "pre"},
    "untied": {"tied": False},
}


@pytest.fixture(scope="module", params=VARIANTS)
def tracer(request):
    words = [f"{a} {b} {c}" for a in ("the", "a") for b in ("old", "new") for c in ("house", "tree", "bird")]
    tokenizer = Tokenizer.learn(words, TokenizerSettings(vocab_size=300))
    sizes = {"d_model": 16, "d_ff": 24, "n_heads": 3, "d_k": 6, "d_v": 5, "n_encoder_layers": 2, "n_decoder_layers": 3}
    torch.manual_seed(3)
    model = Transformer(ModelSettings(**sizes, dropout=0.0, **VARIANTS[request.param]), tokenizer.vocab_size)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("onehop.decoding.engine.MORE_THAN_SOURCE", 3)
        yield Tracer(SentenceTranslator.of_model(model.eval(), tokenizer, "en", "de"), "tiny", "ab" * 32)


def written(tracer, header, edits):
    """The log-probability of each output token under edits, in a separate pass."""
    target = header["target"]
    outputs = [*target["ids"], EOS] if target["finished"] else target["ids"]
    with torch.inference_mode():
        recording = tracer.record(header["source"]["ids"][:-1], outputs, parse_edits(edits))
        return recording.value("logits")[0].log_softmax(-1).gather(1, torch.tensor(outputs)[:, None])[:, 0]


@pytest.mark.parametrize(
    "edits", [[], ["residual=off@encoder.1"], ["norm=off@decoder.1", "scale=off"], ["positions=off"]]
)
def test_heads_off_equals_switching_each_head_off_separately(tracer, edits):
    header = tracer.trace(TEXT, edits).header
    plain = written(tracer, header, edits)
    parts = list(tracer.heads_off(header))
    assert [(part.role, part.layer) for part in parts] == attentions(tracer.model)
    assert len(parts) == 2 + 3 + 3
    seen = 0.0
    for part in parts:
        for head, effect in enumerate(part.effect):
            alone = written(tracer, header, [*edits, f"head=off@{part.role}.{part.layer}.{head}"]) - plain
            torch.testing.assert_close(effect, alone, atol=1e-4, rtol=1e-4)
            seen = max(seen, float(alone.abs().max()))
    assert seen > 0.01


def test_top_tokens_with_a_head_off_equal_those_of_a_separate_pass(tracer):
    header = tracer.trace(TEXT).header
    part = list(tracer.heads_off(header))[4]
    target = header["target"]
    outputs = [*target["ids"], EOS] if target["finished"] else target["ids"]
    edit = parse_edits([f"head=off@{part.role}.{part.layer}.2"])
    with torch.inference_mode():
        p = tracer.record(header["source"]["ids"][:-1], outputs, edit).value("logits")[0].softmax(-1)
    best = p.topk(2)
    for step, pairs in enumerate(part.top[2]):
        assert [i for i, _ in pairs] == best.indices[step].tolist()
        assert [x for _, x in pairs] == pytest.approx(best.values[step].tolist(), rel=1e-4)


def test_a_head_sweep_does_not_change_later_traces(tracer):
    before = tracer.trace(TEXT)
    list(tracer.heads_off(before.header))
    after = tracer.trace(TEXT)
    for name in before:
        assert (before[name] == after[name]).all(), name


def test_the_lens_after_the_last_layer_equals_the_models_probabilities(tracer):
    header = tracer.trace(TEXT).header
    assert len(header["lens"]) == 3
    for step, last in zip(header["steps"], header["lens"][-1], strict=True):
        assert last["candidates"] == pytest.approx([c["p"] for c in step["top"]], rel=1e-4)
        assert last["top"][0]["token"] == step["top"][0]["token"]
    assert header["lens"][0][0]["candidates"] != pytest.approx(header["lens"][-1][0]["candidates"], rel=1e-2)


def test_the_aligner_is_the_head_with_most_weight_on_aligned_tokens(tracer):
    trace = tracer.trace(TEXT)
    looked = trace["decoder.layers.1.cross_attention.weights"].mean(0).argmax(-1)
    shares = {
        (layer, head): float(
            trace[f"decoder.layers.{layer}.cross_attention.weights"][head, range(len(looked)), looked].mean()
        )
        for layer in range(3)
        for head in range(3)
    }
    found = trace.header["aligner"]
    assert (found["layer"], found["head"]) == max(shares, key=shares.get)
    assert found["share"] == pytest.approx(max(shares.values()), rel=1e-4)


def test_a_neurons_effect_is_its_column_of_w_2(tracer):
    model = tracer.model
    column = model.decoder.layers[1].feed_forward.w_2.weight[:, 7]
    (found,) = tracer.neurons("decoder", 1, [7])
    scores = (model.output_weight @ column).tolist()
    assert found["norm"] == pytest.approx(float(column.norm().detach()), rel=1e-5)
    assert [t["score"] for t in found["towards"]] == pytest.approx(sorted(scores, reverse=True)[:6], rel=1e-4)
    assert [t["score"] for t in found["away"]] == pytest.approx(sorted(scores)[:3], rel=1e-4)
    assert set(tracer.neurons("encoder", 0, [7])[0]) == {"neuron", "norm"}  # no output matrix reads the encoder


@pytest.mark.parametrize(("stack", "layer", "place"), [("decoder", 3, 0), ("encoder", 2, 0), ("decoder", 0, 24)])
def test_an_unknown_neuron_is_refused(tracer, stack, layer, place):
    with pytest.raises(SettingsError, match="There is no neuron"):
        tracer.neurons(stack, layer, [place])
