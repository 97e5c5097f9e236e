"""A trace equals what the model computes, and stepwise decoding; its file; limits; edits."""

import json
import math

import numpy as np
import pytest
import torch
from command_line import onehop
from torch import nn

from onehop.config import ModelSettings, TokenizerSettings
from onehop.decoding.options import SearchOptions
from onehop.errors import OnehopError, SettingsError, TextError
from onehop.interpret.ablations import EditTap, parse_edits
from onehop.interpret.trace_file import LEAVE_OUT, compact, fit_to_limit, pack, unpack
from onehop.interpret.tracer import Trace, Tracer
from onehop.model.taps import AXES, Recorder, watch
from onehop.model.transformer import Tokens, Transformer
from onehop.pipelines.sentence_translator import SentenceTranslator
from onehop.storage.model_label import describe
from onehop.text.tokenizer import BOS, EOS, Tokenizer, normalise

TEXT = "the old house a new bird"
OPTIONS = SearchOptions(min_length=5)  # so that the output is not empty
NORMS = pytest.mark.parametrize("norm", ["post", "pre"])
HOSTILE = {
    "script": "</script><script>alert(1)</script><!-- the old house",
    "emoji": "👩‍👩‍👧‍👦 the house 🏳️‍🌈",
    "right to left": "הבית הישן \u202eesuoh eht\u202c البيت",
    "zero width": "\u200b\u200c\u200d\u2060\ufeff",
    "controls": "the\x00 \x1b[31mhouse\x07\u2028bird",
    "lone surrogate": "the \ud83d house",
}


def a_translator(norm: str = "post", **changes: object) -> SentenceTranslator:
    """A small model with random weights and a high probability of EOS."""
    words = [f"{a} {b} {c}" for a in ("the", "a") for b in ("old", "new") for c in ("house", "tree", "bird")]
    tokenizer = Tokenizer.learn(words, TokenizerSettings(vocab_size=300))
    widths = {"d_model": 12, "d_ff": 20, "n_heads": 3, "d_k": 7, "d_v": 8, "n_encoder_layers": 2, "n_decoder_layers": 2}
    settings = ModelSettings(**{**widths, "dropout": 0.0, "norm": norm, "output_bias": True, **changes})
    torch.manual_seed(3)
    model = Transformer(settings, tokenizer.vocab_size)
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.dim() == 1:
                nn.init.normal_(parameter, mean=0.5, std=0.5)
        model.output_bias[EOS] = 8.0
    return SentenceTranslator.of_model(model.eval(), tokenizer, "en", "de")


@pytest.fixture(scope="module", params=["post", "pre"])
def tracer(request):
    return Tracer(a_translator(request.param))


@pytest.fixture(scope="module")
def trace(tracer):
    return tracer.trace(TEXT, options=OPTIONS)


# --- the tensors


def test_a_trace_contains_every_quantity_of_the_forward_pass(tracer, trace):
    recorder = Recorder()
    src, tgt = trace.header["source"]["ids"], [BOS, *trace.header["target"]["ids"]]
    assert trace.header["target"]["finished"]
    watch(tracer.model, recorder)(*(Tokens.padded(torch.tensor([ids])) for ids in (src, tgt)))
    assert set(trace) == {*recorder, "positions", "beam.cross_attention"}
    for name, recorded in recorder.items():
        assert trace.axes(name) == AXES[name.rpartition(".")[2]][1:]
        exact = ("q", "k", "v", "scores", "scaled_scores", "weights", "head_outputs")
        wanted = np.float32 if name.rpartition(".")[2] in exact else np.float16
        assert trace[name].dtype == wanted, name
        np.testing.assert_allclose(trace[name], recorded.value[0].detach().numpy(), rtol=2e-3, atol=2e-3, err_msg=name)


def test_each_traced_stage_of_attention_follows_from_the_previous_one(trace):
    for path in trace.header["inputs"]:
        q, k, v, scores = (trace[f"{path}.{n}"].astype(np.float64) for n in ("q", "k", "v", "scores"))
        np.testing.assert_allclose(q @ k.swapaxes(1, 2), scores, rtol=1e-4, atol=1e-5)
        scaled = scores / math.sqrt(trace.header["model"]["settings"]["d_k"])
        if path.startswith("decoder") and "self" in path:
            scaled = np.where(np.tri(scaled.shape[1], dtype=bool), scaled, -np.inf)
        np.testing.assert_allclose(trace[f"{path}.masked_scores"], scaled, rtol=1e-3, atol=1e-3)
        weights = np.exp(scaled) / np.exp(scaled).sum(-1, keepdims=True)
        np.testing.assert_allclose(trace[f"{path}.weights"], weights, rtol=1e-4, atol=1e-6)
        np.testing.assert_allclose(trace[f"{path}.head_outputs"], weights @ v, rtol=1e-4, atol=1e-5)


def test_the_named_inputs_times_the_weights_give_queries_keys_and_values(tracer, trace):
    for role, path in (("encoder", "encoder.layers.1.self"), ("cross", "decoder.layers.1.cross")):
        found = unpack(tracer.weights(role, 1, 2))
        inputs = trace.header["inputs"][f"{path}_attention"]
        for letter, source in (("q", "query"), ("k", "memory"), ("v", "memory")):
            x = trace[inputs[source]].astype(np.float32)
            product = x @ found[f"w_{letter}"].values
            np.testing.assert_allclose(product, trace[f"{path}_attention.{letter}"][2], rtol=1e-2, atol=1e-2)
        assert found["w_o"].axes == ("d_v", "d_model")


def test_weights_include_attention_biases():
    tracer = Tracer(a_translator(attention_bias=True))
    found, trace = unpack(tracer.weights("decoder", 0, 1)), tracer.trace(TEXT)
    x = trace[trace.header["inputs"]["decoder.layers.0.self_attention"]["query"]].astype(np.float32)
    product = x @ found["w_q"].values + found["b_q"].values
    np.testing.assert_allclose(product, trace["decoder.layers.0.self_attention.q"][1], rtol=1e-2, atol=1e-2)


def test_head_outputs_times_their_w_o_sum_to_the_projection(tracer, trace):
    path = "encoder.layers.0.self_attention"
    outputs = trace[f"{path}.head_outputs"].astype(np.float32)
    total = sum(outputs[h] @ unpack(tracer.weights("encoder", 0, h))["w_o"].values for h in range(3))
    np.testing.assert_allclose(total, trace[f"{path}.projection"], rtol=1e-2, atol=1e-2)


@pytest.mark.parametrize(
    "edits",
    [
        *([], ["scale=off"], ["positions=off"], ["positions=shuffled"], ["head=only@cross.1.0"], ["heads=averaged"]),
        *(["residual=off"], ["norm=off"], ["scale=2@decoder", "norm=off@encoder.0"]),
    ],
    ids=str,
)
def test_stepwise_decoding_gives_the_traced_tensors(tracer, edits):
    """A trace is made by one teacher-forced pass, the search decodes token by token."""
    trace = tracer.trace(TEXT, edits, OPTIONS)
    model, tap, recorder = tracer.model, EditTap(tracer.model, parse_edits(edits)), Recorder()
    watched = watch(model, lambda name, value: recorder(name, tap(name, value)))
    src = Tokens.padded(torch.tensor([trace.header["source"]["ids"]]))
    read = [BOS, *trace.header["target"]["ids"]][: len(trace.header["steps"])]
    with torch.inference_mode():
        cache = watched.init_cache(src, len(read))
        for i, token in enumerate(read):
            watched.step(torch.tensor([[token]]), cache)
            for name in (n for n in recorder if n.startswith(("target", "decoder", "logits"))):
                step, row = recorder[name], of_one_row(trace, name, i)
                if not name.endswith("cross_attention.k") and not name.endswith("cross_attention.v"):
                    value = step.value[0].squeeze(-2).numpy()
                    np.testing.assert_allclose(
                        value, row, rtol=5e-3, atol=5e-3 * max(1, np.abs(row).max()), err_msg=name
                    )


def of_one_row(trace: Trace, name: str, i: int) -> np.ndarray:
    """The part of a tensor that belongs to position i: a query's row, or the keys and values up to it."""
    axes, values = trace.axes(name), trace[name].astype(np.float32)
    axis = next(n for n, a in enumerate(axes) if a in ("token", "query", "key"))
    row = (
        np.take(values, i, axis=axis) if "cross_attention.k" not in name and "cross_attention.v" not in name else values
    )
    return row[..., : i + 1] if axes[-1] == "key" and "self" in name else row


# --- steps and beam


def test_the_traced_translation_equals_the_torch_engines(tracer, trace):
    best = tracer.translator.translate([TEXT], OPTIONS)[0]
    target = trace.header["target"]
    assert (trace.text, tuple(target["tokens"])) == (best.text, best.tokens)
    assert target["score"] == pytest.approx(best.score, rel=1e-4)
    assert trace.header["engine"] == best.engine == "torch"
    assert target["input_tokens"] == ["<s>", *target["tokens"]]
    assert target["output_tokens"] == [*target["tokens"], "</s>"]
    assert trace.header["fast"] is None


def test_a_trace_contains_ctranslate2s_translation(model_file):
    header = Tracer.load(model_file, "cpu").trace("the old house").header
    fast = SentenceTranslator.load(model_file, engine="ctranslate2").translate(["the old house"])[0]
    assert header["fast"]["text"] == fast.text
    assert (header["fast"]["engine"], header["fast"]["compute"]) == ("ctranslate2", "int8")
    assert header["fast"]["same"] == (fast.tokens == tuple(header["target"]["tokens"]))
    assert Tracer.load(model_file, "cpu").trace("the old house", ["scale=off"]).header["fast"] is None


def test_the_steps_probabilities_give_the_score(trace):
    steps, target = trace.header["steps"], trace.header["target"]
    assert [s["chosen"]["id"] for s in steps] == [*target["ids"], EOS]
    assert sum(math.log(s["chosen"]["p"]) for s in steps) == pytest.approx(target["log_prob"], rel=1e-4)
    for i, step in enumerate(steps):
        logits = trace["logits"][i].astype(np.float64)
        p = np.exp(logits) / np.exp(logits).sum()
        assert step["entropy"] == pytest.approx(-(p * np.log2(p)).sum(), rel=1e-2)
        best = np.sort(p)[::-1][:10]
        np.testing.assert_allclose([t["p"] for t in step["top"]], best, rtol=2e-2)
        assert step["rank"] == sum(t["p"] > step["chosen"]["p"] for t in step["top"]) or step["rank"] >= 10


def test_the_beam_is_a_tree_with_the_translation_as_a_path(trace):
    steps = trace.header["beam"]["steps"]
    chosen = [next((n for n in step if n["chosen"]), None) for step in steps]
    written = [node["id"] for node in chosen if node]
    assert written == [*trace.header["target"]["ids"], EOS]
    assert chosen[len(written) - 1]["state"] == "finished"
    for t, step in enumerate(steps[1:], 1):
        for node in step:
            assert steps[t - 1][node["parent"]]["state"] == "live"
            assert node["log_prob"] <= steps[t - 1][node["parent"]]["log_prob"] + 1e-9
    for t, step in enumerate(steps):
        children = {n["parent"] for n in steps[t + 1]} if t + 1 < len(steps) else set()
        for place, node in enumerate(step):
            assert (node["state"] == "live") == (place in children)
            assert node["state"] in ("live", "finished", "stopped", "open" if t + 1 == len(steps) else "dropped")


def test_every_kept_hypothesis_has_its_cross_attention(trace):
    looked, steps = trace["beam.cross_attention"], trace.header["beam"]["steps"]
    assert trace.axes("beam.cross_attention") == ("step", "slot", "layer", "key")
    assert len(looked) == len(steps)
    for t, step in enumerate(steps):
        for node in step:
            assert np.allclose(looked[t, node["parent"]].sum(-1), 1, atol=5e-3)
            if node["chosen"]:
                for layer in (0, 1):
                    weights = trace[f"decoder.layers.{layer}.cross_attention.weights"][:, t].mean(0)
                    np.testing.assert_allclose(looked[t, node["parent"], layer], weights, atol=5e-3)


def test_an_unfinished_translation_is_traced_without_eos():
    tracer = Tracer(a_translator())
    with torch.no_grad():
        tracer.model.output_bias[EOS] = -1e4
    target = tracer.trace("the", options=SearchOptions(beam=2)).header["target"]
    assert not target["finished"]
    assert len(target["input_tokens"]) == len(target["output_tokens"]) == len(target["ids"])
    assert target["output_tokens"] == target["tokens"]


def test_greedy_search_has_a_beam_of_one(tracer):
    trace = tracer.trace(TEXT, options=SearchOptions(beam=1))
    assert trace.text == tracer.translator.translate([TEXT], SearchOptions(beam=1))[0].text
    assert all(len(step) <= 2 for step in trace.header["beam"]["steps"])


def test_tracing_a_sampled_translation_is_refused(tracer):
    with pytest.raises(SettingsError) as error:
        tracer.trace(TEXT, options=SearchOptions(sample=True))
    assert str(error.value) == "A trace shows a beam, and sampling has none. Set search.sample to false."


# --- edits


@pytest.mark.parametrize("edit", ["scale=off", "mask=off", "positions=off", "head=off@cross.1.0", "norm=off"])
def test_an_edited_trace_does_not_change_later_traces(tracer, trace, edit):
    edited = tracer.trace(TEXT, [edit], OPTIONS)
    assert edited.header["edits"] == [edit]
    assert not np.array_equal(edited["logits"], trace["logits"])
    again = tracer.trace(TEXT, options=OPTIONS)
    assert again.header["steps"] == trace.header["steps"]
    assert all(np.array_equal(again[name], trace[name]) for name in trace)


def test_without_the_mask_each_step_is_computed_without_cache(tracer):
    """Without a mask, earlier positions attend to later ones, so cached states would be wrong."""
    trace = tracer.trace(TEXT, ["mask=off"], OPTIONS)
    written = [s["chosen"]["id"] for s in trace.header["steps"]]
    for i, step in enumerate(trace.header["steps"]):
        recorder, tap = Recorder(), EditTap(tracer.model, parse_edits(["mask=off"]))
        watched = watch(tracer.model, lambda name, value, tap=tap, r=recorder: r(name, tap(name, value)))
        ids = ([*trace.header["source"]["ids"]], [BOS, *written[:i]])
        with torch.inference_mode():
            watched(*(Tokens.padded(torch.tensor([row])) for row in ids))
        p = recorder["logits"].value[0, -1].softmax(-1)[written[i]]
        assert step["chosen"]["p"] == pytest.approx(float(p), rel=1e-4)
    assert trace.header["leak"] is None


def test_a_variant_equals_the_edited_trace(tracer):
    variant, trace = tracer.variant(TEXT, ["heads=averaged"], OPTIONS), tracer.trace(TEXT, ["heads=averaged"], OPTIONS)
    assert variant["target"] == trace.header["target"]
    assert variant["steps"] == trace.header["steps"]
    cross = unpack(variant)["cross"]
    assert cross.axes == ("layer", "head", "query", "key")
    assert np.array_equal(cross.values[1], trace["decoder.layers.1.cross_attention.weights"])


def test_a_model_with_nan_is_an_error():
    tracer = Tracer(a_translator())
    with torch.no_grad():
        tracer.model.encoder.layers[0].feed_forward.w_2.bias.fill_(math.nan)
    with pytest.raises(OnehopError, match=r"^The model's log-probabilities contain NaN\. "):
        tracer.trace(TEXT)


# --- measurements


def test_the_leak_compares_probabilities_with_and_without_mask(trace):
    leak = trace.header["leak"]
    for step, pair in zip(trace.header["steps"], leak["probability"], strict=True):
        assert pair["masked"] == pytest.approx(step["chosen"]["p"], rel=1e-3)
    assert any(abs(pair["masked"] - pair["unmasked"]) > 1e-4 for pair in leak["probability"])
    assert all(0 < w < 1 for heads in leak["future_weight"].values() for w in heads)


def test_the_residual_table_has_norms_and_cosines_of_recorded_vectors(trace):
    names = [row["name"] for row in trace.header["residual"]]
    assert names[:2] == ["encoder.layers.0.self_attention", "encoder.layers.0.feed_forward"]
    assert len(names) == 2 * 2 + 2 * 3
    row = trace.header["residual"][names.index("decoder.layers.1.cross_attention")]
    stream = trace["decoder.layers.1.cross_add_norm.skip"].astype(np.float32)
    added = trace["decoder.layers.1.cross_attention.projection"].astype(np.float32)
    np.testing.assert_allclose(row["stream"], np.linalg.norm(stream, axis=-1), rtol=1e-2)
    np.testing.assert_allclose(row["added"], np.linalg.norm(added, axis=-1), rtol=1e-2)
    cosine = (stream * added).sum(-1) / np.linalg.norm(stream, axis=-1) / np.linalg.norm(added, axis=-1)
    np.testing.assert_allclose(row["cosine"], cosine, atol=1e-2)


def test_the_score_variance_equals_that_of_recorded_scores(trace):
    for path, heads in trace.header["score_variance"].items():
        for head, found in enumerate(heads):
            for kind in ("scores", "q", "k"):
                assert found[kind] == pytest.approx(trace[f"{path}.{kind}"][head].var(), rel=1e-3)


def test_neighbours_are_the_nearest_embeddings_by_cosine(tracer, trace):
    matrix = tracer.model.embedding.weight.detach().numpy().astype(np.float64)
    matrix = matrix / np.linalg.norm(matrix, axis=1, keepdims=True)
    for id_, near in zip(trace.header["source"]["ids"], trace.header["neighbours"]["source"], strict=True):
        cosines = matrix @ matrix[id_]
        cosines[[0, 1, 2, 3, id_]] = -2
        assert [n["id"] for n in near] == np.argsort(-cosines)[:8].tolist()
        np.testing.assert_allclose([n["cosine"] for n in near], np.sort(cosines)[::-1][:8], atol=1e-5)
    assert len(trace.header["neighbours"]["target"]) == len(trace.header["steps"])


def test_the_projection_uses_the_first_two_principal_components(tracer, trace):
    matrix = tracer.model.embedding.weight.detach().numpy().astype(np.float64)
    _, sizes, components = np.linalg.svd(matrix - matrix.mean(0), full_matrices=False)
    projection, ids = trace.header["projection"], trace.header["source"]["ids"]
    np.testing.assert_allclose(projection["explained"], (sizes**2 / (sizes**2).sum())[:2], rtol=1e-4)
    points = (matrix - matrix.mean(0))[ids] @ components[:2].T
    np.testing.assert_allclose(np.abs(projection["source"]["embedding"]), np.abs(points), atol=1e-4)
    scaled = np.array(projection["source"]["embedding"]) * math.sqrt(12)
    np.testing.assert_allclose(projection["source"]["scaled"], scaled, atol=1e-4)
    moved = np.array(projection["source"]["positioned"]) - scaled
    table = trace["positions"][: len(ids)].astype(np.float64) @ components[:2].T
    np.testing.assert_allclose(np.abs(moved), np.abs(table), atol=1e-4)
    assert len(projection["cloud"]) == len(projection["cloud_tokens"]) > 0


def test_the_diagrams_boxes_count_every_parameter_once(tracer, trace):
    model = trace.header["model"]
    boxes, s = model["boxes"], model["settings"]
    tops = [count for name, count in boxes.items() if "." not in name]
    assert sum(tops) == model["parameters"] == sum(p.numel() for p in tracer.model.parameters())
    assert boxes["encoder.layers.0.self_attention.w_q"] == s["d_model"] * s["n_heads"] * s["d_k"]
    assert boxes["encoder.layers.0.feed_forward"] == 2 * s["d_model"] * s["d_ff"] + s["d_model"] + s["d_ff"]
    assert boxes["embedding"] == model["vocab_size"] * s["d_model"]


def test_learned_positions_equal_the_models():
    tracer = Tracer(a_translator(positions="learned", max_length=70))
    table = tracer.model.source_input.positions.detach().numpy()
    assert np.array_equal(tracer.trace(TEXT, options=OPTIONS)["positions"], table[:64])


def test_untied_embeddings_have_separate_neighbours():
    tracer = Tracer(a_translator(tied=False))
    assert tracer.spaces[0] is not tracer.spaces[1]
    trace = tracer.trace(TEXT, options=OPTIONS)
    matrix = torch.nn.functional.normalize(tracer.model.target_embedding.weight.detach(), dim=-1)
    first, near = trace.header["steps"][0]["chosen"]["id"], trace.header["neighbours"]["target"][0]
    assert near[0]["cosine"] == pytest.approx(float(matrix[first] @ matrix[near[0]["id"]]), abs=1e-5)


def test_a_source_beyond_the_table_of_sinusoids_is_traced():
    tracer, text = Tracer(a_translator(max_length=8)), "the old house " * 30
    trace = tracer.trace(text)
    assert len(trace.header["source"]["ids"]) == len(trace["positions"]) > 64
    shuffled = tracer.trace(text, ["positions=shuffled"])
    assert not np.array_equal(shuffled["source_input.positioned"], trace["source_input.positioned"])
    assert trace["source_input.positioned"].shape[0] == len(trace.header["source"]["ids"])


# --- the format


def test_a_trace_file_round_trips(trace, tmp_path):
    trace.write(tmp_path / "t.json")
    again = Trace.read(tmp_path / "t.json")
    assert again.header == trace.header
    assert list(again) == list(trace)
    assert len(again) == len(trace)
    for name in trace:
        assert again.axes(name) == trace.axes(name)
        assert again[name].dtype == trace[name].dtype
        assert np.array_equal(again[name], trace[name])


def test_the_blob_is_little_endian_and_aligned_to_eight_bytes(trace):
    packed = pack(trace.tensors)
    assert all(t["offset"] % 8 == 0 for t in packed["tensors"].values())
    assert {t["type"] for t in packed["tensors"].values()} == {"float16", "float32"}
    json.loads(trace.to_json(), parse_constant=lambda name: pytest.fail(f"{name} is not JSON"))


def test_values_too_large_for_float16_stay_in_float32():
    assert compact("masked_scores", np.array([1.0, -np.inf], np.float32)).dtype == np.float16
    assert compact("residual", np.array([1.0, 1e5], np.float32)).dtype == np.float32
    assert compact("x.scores", np.array([1.0], np.float32)).dtype == np.float32


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "This is not a trace. Give a file that `onehop trace` has written."),
        ("[]", "This is not a trace. Give a file that `onehop trace` has written."),
        ('{"format": "onehop trace", "version": 9}', "The trace has version 9, but this onehop reads version 1. "
         "Make it again with `onehop trace`."),
    ],
)  # fmt: skip
def test_invalid_trace_files_are_refused(text, message):
    with pytest.raises(OnehopError) as error:
        Trace.from_json(text)
    assert str(error.value) == message


def test_unreadable_and_unwritable_files_are_errors(trace, tmp_path):
    with pytest.raises(OnehopError, match=r"cannot be read\. Check the path\.$"):
        Trace.read(tmp_path / "none.json")
    with pytest.raises(OnehopError, match=r"cannot be written: .*\. Choose another path\.$"):
        trace.write(tmp_path / "none" / "t.json")


# --- limits and hostile texts


def test_tensors_over_the_limit_are_omitted_in_order_and_listed(tracer, trace):
    whole = sum(t.values.nbytes for t in trace.tensors.values())
    kinds = []
    for limit in (whole - 1, whole * 3 // 4):
        small = tracer.trace(TEXT, options=OPTIONS, limit=limit)
        left = small.header["left_out"]
        assert set(small) | {x["name"] for x in left} == set(trace)
        assert sum(t.values.nbytes for t in small.tensors.values()) <= limit
        assert all(x["bytes"] == trace[x["name"]].nbytes for x in left)
        assert left[0]["why"] == f"the trace was larger than {limit:,} bytes"
        kinds.append(list(dict.fromkeys(x["name"].rpartition(".")[2] for x in left)))
    assert kinds[0] == ["logits"]
    assert kinds[1] == list(LEAVE_OUT[: len(kinds[1])])


def test_a_limit_below_the_required_tensors_is_refused(trace):
    least = {n: t for n, t in trace.tensors.items() if n.rpartition(".")[2] not in LEAVE_OUT}
    size = sum(t.values.nbytes for t in least.values())
    assert fit_to_limit(size, trace.tensors)[0].keys() == least.keys()
    with pytest.raises(TextError, match=r"^The trace of this text takes at least .* MB; the limit is .* MB\. Give a "):
        fit_to_limit(size - 1, trace.tensors)


def test_a_very_long_text_is_refused_before_any_computation(tracer, monkeypatch):
    monkeypatch.setattr(Transformer, "encode", lambda *_: pytest.fail("it was computed"))
    with pytest.raises(TextError) as error:
        tracer.trace("the old house. " * 667)
    assert str(error.value).startswith("The trace of this text takes ")
    assert str(error.value).endswith(
        " MB; the limit is 32 MB. Give a shorter sentence, or raise --limit of `onehop trace` or `onehop explore`."
    )


@pytest.mark.parametrize("text", ["", "  \n\t"])
def test_an_empty_text_is_refused(tracer, text):
    with pytest.raises(TextError) as error:
        tracer.trace(text)
    assert str(error.value) == "There is nothing to trace: the text is empty. Give a sentence."


@pytest.mark.parametrize("text", HOSTILE.values(), ids=HOSTILE)
def test_hostile_texts_are_traced(tracer, text):
    trace = Trace.from_json(tracer.trace(text).to_json())
    assert trace.header["source"]["text"] == normalise(text)
    assert len(trace.header["source"]["tokens"]) == trace["source_input.scaled"].shape[0]


# --- the command


def test_the_command_writes_a_trace(model_file, tmp_path):
    out = tmp_path / "t.json"
    args = ["trace", "the old house", "-m", str(model_file), "-o", str(out), "--edit", "scale=off", "--beam", "2"]
    done = onehop(*args)
    assert done.exit_code == 0, done.output
    trace = Trace.read(str(out))
    assert done.output.splitlines()[-1] == f"{out}: {len(trace)} tensors"
    assert trace.header["edits"] == ["scale=off"]
    assert trace.header["options"]["beam"] == 2
    assert trace.header["model"]["hash"] == describe(model_file).hash
    assert trace.header["model"]["name"] == model_file.parent.name


def test_the_command_reports_omitted_tensors(model_file, tmp_path):
    text = "the old house " * 20
    args = ["trace", text, "-m", str(model_file), "-o", str(tmp_path / "t.json"), "--limit", "1"]
    done = onehop(*args)
    left = Trace.read(tmp_path / "t.json").header["left_out"]
    assert left
    assert done.output.endswith(f"tensors, {len(left)} left out for their size\n")


@pytest.mark.parametrize(
    ("text", "edit"), [("", "scale=off"), ("the house", "scale=wide"), ("the", "head=off@cross.9.0")]
)
def test_the_commands_errors_are_one_line(model_file, tmp_path, text, edit):
    args = ["trace", text, "-m", str(model_file), "-o", str(tmp_path / "t.json"), "--edit", edit]
    done = onehop(*args)
    assert done.exit_code == 2
    assert done.stderr.startswith("onehop: ")
    assert done.stderr.count("\n") == 1


def test_a_tracers_name_is_that_of_its_file_or_folder(tmp_path, model_file):
    data = model_file.read_bytes()
    (tmp_path / "en-de").mkdir()
    for path in (tmp_path / "en-de" / "model.safetensors", tmp_path / "other.safetensors"):
        path.write_bytes(data)
    assert Tracer.load(tmp_path / "en-de" / "model.safetensors").name == "en-de"
    assert Tracer.load(tmp_path / "other.safetensors").name == "other"
