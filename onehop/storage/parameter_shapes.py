"""Names and shapes of all parameters, computed from the settings without building the model.

`model.transformer` and `model.variants` define the same in torch; a test compares the two for every variant.
"""

from onehop.config import ModelSettings

_Shapes = dict[str, tuple[int, ...]]


def parameter_shapes(model: ModelSettings, vocab_size: int) -> _Shapes:
    """Every parameter of a model of these settings, in no particular order."""
    shapes = _vision(model, vocab_size) if model.kind == "vision" else _embeddings(model, vocab_size)
    if model.output_bias:
        shapes["output_bias"] = (vocab_size,)
    if model.kind != "decoder":
        shapes |= _input("source_input", model)
        shapes |= _stack("encoder", model, model.n_encoder_layers, cross=False)
    if model.kind in (None, "decoder"):
        shapes |= _input("target_input", model)
        shapes |= _stack("decoder", model, model.n_decoder_layers, cross=model.kind is None)
    return shapes


def _embeddings(model: ModelSettings, vocab_size: int) -> _Shapes:
    names = ["embedding.weight"]
    if not model.tied:
        names += ["output.weight", *(["target_embedding.weight"] if model.kind is None else [])]
    return dict.fromkeys(names, (vocab_size, model.d_model))


def _vision(model: ModelSettings, classes: int) -> _Shapes:
    return {
        **_linear("projection", (model.patch or 0) ** 2, model.d_model, bias=True),
        **_linear("output", model.d_model, classes, bias=False),
        "answer_embedding": (model.d_model,),
    }


def _input(name: str, model: ModelSettings) -> _Shapes:
    shapes = _norm(f"{name}.norm", model) if model.input_norm else {}
    if model.positions == "learned":
        shapes[f"{name}.positions"] = (model.max_length, model.d_model)
    if model.segments:
        shapes[f"{name}.segment_embeddings"] = (model.segments, model.d_model)
    return shapes


def _stack(name: str, model: ModelSettings, n_layers: int, *, cross: bool) -> _Shapes:
    shapes = _norm(f"{name}.last_norm", model) if model.norm == "pre" else {}
    for i in range(n_layers):
        shapes |= _layer(f"{name}.layers.{i}", model, cross=cross)
    return shapes


def _layer(name: str, model: ModelSettings, *, cross: bool) -> _Shapes:
    shapes = {
        **_linear(f"{name}.feed_forward.w_1", model.d_model, model.d_ff, bias=True),
        **_linear(f"{name}.feed_forward.w_2", model.d_ff, model.d_model, bias=True),
        **_norm(f"{name}.feed_add_norm.norm", model),
    }
    keys, values = model.n_heads * model.key_width, model.n_heads * model.value_width
    for kind in ("self", "cross") if cross else ("self",):
        for projection, width in (("w_q", keys), ("w_k", keys), ("w_v", values)):
            shapes |= _linear(f"{name}.{kind}_attention.{projection}", model.d_model, width, bias=model.attention_bias)
        shapes |= _linear(f"{name}.{kind}_attention.w_o", values, model.d_model, bias=model.attention_bias)
        shapes |= _norm(f"{name}.{kind}_add_norm.norm", model)
    return shapes


def _linear(name: str, inputs: int, outputs: int, *, bias: bool) -> _Shapes:
    return {f"{name}.weight": (outputs, inputs), **({f"{name}.bias": (outputs,)} if bias else {})}


def _norm(name: str, model: ModelSettings) -> _Shapes:
    return {f"{name}.weight": (model.d_model,), f"{name}.bias": (model.d_model,)}
