"""Errors can be pickled; a missing package is named with its extra."""

import errno
import os
import pickle
import re
import sys
import tomllib
from pathlib import Path

import pytest

from onehop import errors
from onehop.config import with_changes
from onehop.data.prepare import prepare
from onehop.errors import MissingPackageError, OnehopError, is_installed, missing_package, require
from onehop.experiments.reverse import reverse_settings

KINDS = [kind for kind in vars(errors).values() if isinstance(kind, type) and issubclass(kind, OnehopError)]


@pytest.mark.parametrize("kind", KINDS)
def test_an_error_survives_pickling(kind):
    again = pickle.loads(pickle.dumps(kind("It is broken.", "Mend it.")))
    assert (type(again), again.what, again.remedy, str(again)) == (
        *(kind, "It is broken.", "Mend it.", "It is broken. Mend it."),
    )


def test_a_module_of_a_missing_package_is_not_installed():
    assert not is_installed("no_such_package.module")
    assert is_installed("json.decoder")


def test_the_first_missing_module_is_named_with_its_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "sacrebleu", None)
    require("json", "numpy")
    with pytest.raises(MissingPackageError) as error:
        require("numpy", "sacrebleu", "matplotlib", instead="do without")
    install = 'This needs sacreBLEU. Install it with: pip install "onehop[evaluate]"'
    assert str(error.value) == f"{install}, or do without"
    assert str(missing_package("sacrebleu.metrics")) == install


def test_a_folder_that_cannot_be_written_is_refused_with_the_systems_reason(tmp_path, monkeypatch):
    errors.check_folder(tmp_path / "new" / "deep")
    assert list(tmp_path.iterdir()) == []
    (tmp_path / "file").write_text("")
    with pytest.raises(OnehopError, match=r"file/new cannot be written: Not a directory\. Give another -o\."):
        errors.check_folder(tmp_path / "file" / "new")

    def read_only(dir):
        raise OSError(errno.EROFS, os.strerror(errno.EROFS))

    monkeypatch.setattr("tempfile.TemporaryFile", read_only)
    with pytest.raises(OnehopError, match=r"new cannot be written: Read-only file system\. Give another -o\."):
        errors.check_folder(tmp_path / "new")


def test_every_module_of_extras_is_a_dependency_of_its_extra():
    """tokenizers is a dependency of transformers."""
    project = tomllib.loads((Path(__file__).parents[1] / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    for module, extra in errors.EXTRAS.items():
        package = {
            "backports": "backports.zstd",
            "google": "protobuf",
            "sklearn": "scikit-learn",
            "tokenizers": "transformers",
            "yaml": "pyyaml",
        }.get(module, module)
        wishes = project["optional-dependencies"][extra]
        assert any(re.match(rf"{package.replace('_', '-')}(\[[\w,]+\])?>=", wish) for wish in wishes), module


def test_an_error_in_a_worker_of_prepare_is_reported(tmp_path):
    letters = "".join(chr(code) for code in range(0x4E00, 0x4E00 + 600))
    lines = [f"{letters[i : i + 6]}\t{letters[i + 1 : i + 7]}" for i in range(590)]
    (tmp_path / "text.tsv").write_text("\n".join(lines) + "\n", encoding="utf-8")
    settings = with_changes(reverse_settings(), ['data.train=["text.tsv"]', "data.valid_size=10"])
    with pytest.raises(OnehopError) as error:
        prepare(settings, tmp_path / "store", root=tmp_path, processes=2)
    assert str(error.value).startswith("A vocabulary of 300 pieces is too small for the characters of this text. ")
