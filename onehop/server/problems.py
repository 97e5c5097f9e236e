"""What goes wrong with a request, as one helpful sentence with the right status."""

import math


class Problem(Exception):  # noqa: N818  # most are the client's
    """An answer that is no translation."""

    def __init__(self, status: int, sentence: str, *, retry_after: float | None = None) -> None:
        super().__init__(sentence)
        self.status, self.sentence = status, sentence
        self.headers = {} if retry_after is None else {"Retry-After": str(max(1, math.ceil(retry_after)))}
        if status == 401:
            self.headers["WWW-Authenticate"] = 'Bearer realm="onehop"'


def busy(seconds: float) -> Problem:
    return Problem(503, "The server has more to translate than it can hold: try again soon.", retry_after=seconds)
