"""Models that are installed for a test."""

from dataclasses import replace

import pytest

from onehop.storage import registry
from onehop.storage.model_io import read_model, write_model


@pytest.fixture
def install(tmp_path, monkeypatch, model_file):
    """Installs the small model under other languages, and no other model is installed."""
    monkeypatch.setenv("ONEHOP_MODELS", str(tmp_path / "models"))
    monkeypatch.setattr(registry, "package_folder", lambda: tmp_path / "none")
    monkeypatch.setattr(registry, "model_packages", dict)
    (tmp_path / "models").mkdir()

    def installed(*names, stored=None):
        for name in names:
            source, target = name.split("-")[:2]
            changed = replace(stored or read_model(model_file), source=source, target=target)
            write_model(tmp_path / "models" / f"{name}.safetensors", changed)
        return tmp_path / "models"

    return installed
