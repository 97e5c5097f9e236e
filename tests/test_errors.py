"""Errors cross from one process to another as they are: words and remedy, not a worker that "ended"."""

import pickle

import pytest

from onehop import errors
from onehop.config import with_changes
from onehop.data.prepare import prepare
from onehop.errors import OnehopError
from onehop.experiments.demo import demo_settings

KINDS = [kind for kind in vars(errors).values() if isinstance(kind, type) and issubclass(kind, OnehopError)]


@pytest.mark.parametrize("kind", KINDS)
def test_an_error_is_the_same_after_a_journey(kind):
    again = pickle.loads(pickle.dumps(kind("It is broken.", "Mend it.")))
    assert (type(again), again.what, again.remedy, str(again)) == (
        *(kind, "It is broken.", "Mend it.", "It is broken. Mend it."),
    )


def test_what_goes_wrong_in_a_worker_of_prepare_is_said(tmp_path):
    letters = "".join(chr(code) for code in range(0x4E00, 0x4E00 + 600))
    lines = [f"{letters[i : i + 6]}\t{letters[i + 1 : i + 7]}" for i in range(590)]
    (tmp_path / "text.tsv").write_text("\n".join(lines) + "\n", encoding="utf-8")
    settings = with_changes(demo_settings(), ['data.train=["text.tsv"]', "data.valid_size=10"])
    with pytest.raises(OnehopError) as error:
        prepare(settings, tmp_path / "store", root=tmp_path, processes=2)
    assert str(error.value).startswith("A vocabulary of 300 pieces is too small for the characters of this text. ")
