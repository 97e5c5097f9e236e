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
Places = Int[np.ndarray, " pairs"]


def sampled(store: Store, pairs: int, out: Path) -> Store:
    """Sample training pairs of a store into a new store. An existing sample is reused."""
    drawn = {"of": store.hash, "pairs": pairs, "seed": _SEED}
    if out.exists():
        if read_description(out).get("sample") != drawn:
            raise StoreError(
                f"{out} is not a sample of {pairs:,} pairs of {store.path}.", "Give another -o, or remove it."
            )
        return Store.open(out)
    there = len(store.pairs("train"))
    if pairs > there:
        raise StoreError(f"The token store {store.path} has {there:,} pairs, not {pairs:,}.", "Ask for fewer pairs.")
    places = np.sort(np.random.default_rng(_SEED).choice(there, pairs, replace=False))
    with new_folder(out) as partial:
        shutil.copytree(store.path, partial, ignore=shutil.ignore_patterns("train.*", DESCRIPTION), dirs_exist_ok=True)
        with closing(PairsWriter(partial, "train")) as writer:
            writer.write(chosen(store.pairs("train"), places))
        write_description(partial, {**_described(store, places), "sample": drawn})
    return Store.open(out)


def chosen(pairs: Pairs, places: Places) -> Pairs:
    return Pairs(_some(pairs.source, places), _some(pairs.target, places))


def _some(side: Side, places: Places) -> Side:
    ids = np.concatenate([side[i] for i in places.tolist()])
    return Side(ids, np.cumsum(side.lengths[places], dtype=np.int64))


def _described(store: Store, places: Places) -> dict[str, Any]:
    """The store's description with the sample's counts, in total and for each source."""
    kept = {key: value for key, value in store.description.items() if key not in ("format", "version", "hash", "files")}
    kept["pairs"] = {**kept["pairs"], "train": len(places)}
    pairs = store.pairs("train")
    tokens = int(pairs.src_lengths[places].sum()), int(pairs.tgt_lengths[places].sum())
    kept["report"] = report_to_dict(replace(store.report, train=len(places), train_tokens=tokens))
    if store.sources:
        ends = np.cumsum([size for _, size in store.sources])
        counts = np.diff(np.searchsorted(places, ends), prepend=0).tolist()
        named = zip(kept["sources"], counts, strict=True)
        kept["sources"] = [{**source, "pairs": count} for source, count in named]
    return kept
