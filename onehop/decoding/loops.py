"""The loop guard for arrays of ids; `options` defines a loop, without NumPy."""

import numpy as np

from onehop.decoding.options import LONGEST_LOOP, loop_span
from onehop.shapes import Bool, Int


def ends_in_loop(ids: Int[np.ndarray, "rows length"], repeats: int) -> Bool[np.ndarray, " rows"]:
    """Whether each row ends in an n-gram repeated that many times; 0: never."""
    looped: Bool[np.ndarray, " rows"] = np.zeros(len(ids), dtype=bool)
    for n in range(1, LONGEST_LOOP + 1) if repeats else ():
        span = loop_span(n, repeats)
        if span <= ids.shape[1]:
            tail = ids[:, -span:]
            looped |= (tail[:, n:] == tail[:, :-n]).all(axis=1)
    return looped
