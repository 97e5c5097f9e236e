"""One self-contained model file: weights, settings, tokenizer, languages, provenance, and a hash over all of it.

The file is a safetensors file, so it holds numbers and text and nothing that could be run, and it is read here
without torch. `docs/modelfile.md` describes the layout, the hash and the shards.
"""

from onehop.modelfile.content import PART, SUFFIX, Label, StoredModel, with_suffix
from onehop.modelfile.formats import Int8Rows, Tensor, convert, plain_bytes, to_float32
from onehop.modelfile.reading import check_kind, describe, find_head, read_model
from onehop.modelfile.writing import write_model

__all__ = [
    "PART",
    "SUFFIX",
    "Int8Rows",
    "Label",
    "StoredModel",
    "Tensor",
    "check_kind",
    "convert",
    "describe",
    "find_head",
    "plain_bytes",
    "read_model",
    "to_float32",
    "with_suffix",
    "write_model",
]
