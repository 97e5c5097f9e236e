"""What the shell offers after Tab: installed models and presets. Where none fits, it offers files."""

from collections.abc import Iterator

from onehop.config import preset_names


def presets(incomplete: str) -> list[str]:
    """Presets that begin so."""
    return [name for name in preset_names() if name.startswith(incomplete)]


def models(incomplete: str) -> Iterator[tuple[str, str]]:
    """Installed models that begin so, each with its languages."""
    from onehop.storage.registry import labels

    for name, label in labels().items():
        if name.startswith(incomplete):
            yield name, f"{label.content['source']} → {label.content['target']}"
