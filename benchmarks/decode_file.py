"""Run one system of decode_speed.py's comparison on a real file, in its own process.

    python benchmarks/decode_file.py SYSTEM EXPORTS SOURCE OUT

EXPORTS holds the folders that `onehop export` wrote: ct2 and hf. A system imports only what it needs. All systems use
beam 4 and |Y|^0.6, except the naive loop: it is greedy, which saves it three quarters of the work.
"""

import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

BATCH = 32  # lines at a time where a system does not choose its batches itself
BEAM, ALPHA = 4, 0.6
MORE_THAN_SOURCE = 50


def main() -> None:
    system, exports, source, out = sys.argv[1], *map(Path, sys.argv[2:])
    lines = source.read_text(encoding="utf-8").split("\n")[:-1]
    out.write_text("".join(f"{text}\n" for text in SYSTEMS[system](exports, lines)), encoding="utf-8")


def batches(lines: list[str]) -> Iterator[list[str]]:
    """Split the lines into batches in their order."""
    for begin in range(0, len(lines), BATCH):
        yield lines[begin : begin + BATCH]


def ctranslate2_readme(exports: Path, lines: list[str]) -> Iterator[str]:
    """Call CTranslate2 as its README does, in batches. The whole file in one call does not fit into memory."""
    import ctranslate2

    translator, tokenizer = ctranslate2.Translator(str(exports / "ct2")), tokenizer_of(exports)
    for batch in batches(lines):
        tokens = [tokenizer.tokens(ids) for ids in tokenizer.encode_batch(batch)]
        for result in translator.translate_batch(tokens, beam_size=BEAM, length_penalty=ALPHA):
            yield tokenizer.decode(tokenizer.ids(result.hypotheses[0]))


def ctranslate2_tuned(exports: Path, lines: list[str]) -> Iterator[str]:
    """Call CTranslate2 with two workers and batches by tokens; with a maximum batch size it sorts by length."""
    import ctranslate2

    translator = ctranslate2.Translator(str(exports / "ct2"), inter_threads=2, intra_threads=1)
    tokenizer = tokenizer_of(exports)
    tokens = [tokenizer.tokens(ids) for ids in tokenizer.encode_batch(lines)]
    size = {"max_batch_size": 1024, "batch_type": "tokens"}
    for result in translator.translate_batch(tokens, beam_size=BEAM, length_penalty=ALPHA, **size):
        yield tokenizer.decode(tokenizer.ids(result.hypotheses[0]))


def marian(exports: Path, lines: list[str]) -> Iterator[str]:
    """Translate as the documentation of Hugging Face shows."""
    from transformers import MarianMTModel, MarianTokenizer, logging

    logging.set_verbosity_error()
    model = MarianMTModel.from_pretrained(exports / "hf").eval()
    tokenizer = MarianTokenizer.from_pretrained(exports / "hf")
    for batch in batches(lines):
        tokens = tokenizer(batch, return_tensors="pt", padding=True)
        most = tokens["input_ids"].shape[1] + MORE_THAN_SOURCE
        found = model.generate(**tokens, num_beams=BEAM, length_penalty=ALPHA, max_new_tokens=most)
        yield from tokenizer.batch_decode(found, skip_special_tokens=True)


def naive_torch(exports: Path, lines: list[str]) -> Iterator[str]:
    """Decode greedily and recompute the whole prefix for every token."""
    import torch

    from onehop.decoding.torch_engine import padded
    from onehop.model.transformer import Tokens
    from onehop.pipelines.load import model_of
    from onehop.storage.model_io import read_model
    from onehop.text.tokenizer import BOS, EOS, PAD

    model, tokenizer = model_of(read_model(exports / "model.safetensors")).eval(), tokenizer_of(exports)
    for batch in batches(lines):
        src = Tokens.padded(padded(tokenizer.encode_batch(batch)), PAD)
        out = torch.full((len(batch), 1), BOS)
        with torch.inference_mode():
            while out.shape[1] < src.ids.shape[1] + MORE_THAN_SOURCE and not (out == EOS).any(dim=1).all():
                logits = model(src, Tokens.padded(out, PAD))[:, -1]
                out = torch.cat([out, logits.argmax(dim=-1, keepdim=True)], dim=1)
        for ids in out[:, 1:].tolist():
            yield tokenizer.decode(ids[: ids.index(EOS)] if EOS in ids else ids)


def tokenizer_of(exports: Path) -> Any:
    """Return onehop's tokenizer, which lies beside the exported model."""
    from onehop.text.tokenizer import Tokenizer

    return Tokenizer((exports / "ct2" / "tokenizer.model").read_bytes())


SYSTEMS: dict[str, Callable[[Path, list[str]], Iterator[str]]] = {
    "ctranslate2-readme": ctranslate2_readme,
    "ctranslate2-tuned": ctranslate2_tuned,
    "marian": marian,
    "naive-torch": naive_torch,
}

if __name__ == "__main__":
    main()
