"""A smaller store from a larger one: a fixed sample of its training pairs, and all validation pairs."""

import shutil
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Int

from onehop.atomic import new_folder
from onehop.data.filters import report_to_dict
from onehop.data.store import DESCRIPTION, Pairs, PairsWriter, Side, Store, read_description, write_description
from onehop.errors import StoreError

_SEED = 1
Indices = Int[np.ndarray, " pairs"]


def sampled(store: Store, count: int, out: Path) -> Store:
    """Sample training pairs of a store into a new store. An existing sample is reused."""
    origin = {"of": store.hash, "pairs": count, "seed": _SEED}
    if out.exists():
        if read_description(out).get("sample") != origin:
            raise StoreError(
                f"{out} is not a sample of {count:,} pairs of {store.path}.", "Give another -o, or remove it."
            )
        return Store.open(out)
    available = len(store.pairs("train"))
    if count > available:
        raise StoreError(
            f"The token store {store.path} has {available:,} pairs, not {count:,}.", "Ask for fewer pairs."
        )
    indices = np.sort(np.random.default_rng(_SEED).choice(available, count, replace=False))
    with new_folder(out) as partial:
        shutil.copytree(store.path, partial, ignore=shutil.ignore_patterns("train.*", DESCRIPTION), dirs_exist_ok=True)
        with closing(PairsWriter(partial, "train")) as writer:
            pairs = store.pairs("train")
            writer.write(Pairs(_take(pairs.source, indices), _take(pairs.target, indices)))
        write_description(partial, {**_description(store, indices), "sample": origin})
    return Store.open(out)


def _take(side: Side, indices: Indices) -> Side:
    ids = np.concatenate([side[i] for i in indices.tolist()])
    return Side(ids, np.cumsum(side.lengths[indices], dtype=np.int64))


def _description(store: Store, indices: Indices) -> dict[str, Any]:
    """The store's description with the sample's counts, in total and for each source."""
    description = {
        key: value for key, value in store.description.items() if key not in ("format", "version", "hash", "files")
    }
    description["pairs"] = {**description["pairs"], "train": len(indices)}
    pairs = store.pairs("train")
    tokens = int(pairs.src_lengths[indices].sum()), int(pairs.tgt_lengths[indices].sum())
    description["report"] = report_to_dict(replace(store.report, train=len(indices), train_tokens=tokens))
    if store.sources:
        ends = np.cumsum([size for _, size in store.sources])
        counts = np.diff(np.searchsorted(indices, ends), prepend=0).tolist()
        named = zip(description["sources"], counts, strict=True)
        description["sources"] = [{**source, "pairs": count} for source, count in named]
    return description
