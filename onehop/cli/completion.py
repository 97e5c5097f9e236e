"""Shell completion of installed models and presets. If none matches, the shell completes files."""

from collections.abc import Iterator

from onehop.config import preset_names


def presets(incomplete: str) -> list[str]:
    return [name for name in preset_names() if name.startswith(incomplete)]


def models(incomplete: str) -> Iterator[tuple[str, str]]:
    """Matching installed models, each with its languages."""
    from onehop.storage.registry import labels

    for name, label in labels().items():
        if name.startswith(incomplete):
            yield name, f"{label.content['source']} → {label.content['target']}"
