"""Writes models in several files, as onehop did before version 0.2 and still reads them."""

from dataclasses import replace
from pathlib import Path

from onehop.storage.model_file import content_hash, content_of, to_arrays
from onehop.storage.model_io import encode_part, layout_of
from onehop.storage.model_label import Label, part_names

CUT = "embedding.weight"


def write_shards(path, model, count=4, *, store=None, cut_at=10):
    """Write the files, the first under this name; return them. The embedding is cut after `cut_at` rows."""
    model = model if store is None else model.stored_as(store)
    content, arrays = content_of(model), to_arrays(model)
    digest, parts = content_hash(content, arrays), [{} for _ in range(count)]
    for i, (name, array) in enumerate(sorted(arrays.items())):
        parts[i % count][name] = array
    for part in parts:
        part.pop(CUT, None)
    parts[0][CUT], parts[1][CUT] = arrays[CUT][:cut_at], arrays[CUT][cut_at:]
    head = Path(path).with_name(Path(path).name.removesuffix(".safetensors") + ".safetensors")
    label = Label(hash=digest, layout=layout_of(digest, parts), part=1, parts=count, content=content)
    names = [head, *part_names(head, label)]
    for i, (name, part) in enumerate(zip(names, parts, strict=True), start=1):
        name.write_bytes(b"".join(encode_part(replace(label, part=i), part)))
    return names
