"""Errors of a request: a status, and one sentence with the remedy."""

import math


class Problem(Exception):  # noqa: N818  # most are the client's
    def __init__(self, status: int, sentence: str, *, retry_after: float | None = None) -> None:
        super().__init__(sentence)
        self.status, self.sentence = status, sentence
        self.headers = {} if retry_after is None else {"Retry-After": str(max(1, math.ceil(retry_after)))}
        if status == 401:
            self.headers["WWW-Authenticate"] = 'Bearer realm="onehop"'


def busy(seconds: float) -> Problem:
    return Problem(503, "The queue of the server is full: try again soon.", retry_after=seconds)
