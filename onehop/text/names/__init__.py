"""Names that two languages write alike, learned from pairs of sentences (recipes/copied_names.py)."""

from functools import lru_cache
from importlib.resources import files


@lru_cache
def copied_names(one: str, two: str) -> frozenset[str]:
    """The names of a pair of languages, in either direction; none where there is no list."""
    for name in (f"{one}-{two}.txt", f"{two}-{one}.txt"):
        file = files(__name__) / name
        if file.is_file():
            return frozenset(file.read_text(encoding="utf-8").split())
    return frozenset()
