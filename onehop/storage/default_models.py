"""The user's default model of each language pair, kept in a file of the user's model folder.

The last choice is also used if neither a model nor a language is named.
"""

import json
from collections.abc import Mapping
from pathlib import Path

from onehop.errors import ModelFileError, write_errors

FILE = "defaults.json"
Defaults = dict[str, tuple[str, str]]  # name and languages of each, in the order of the choices


def read_defaults(folder: Path) -> Defaults:
    """The chosen defaults; empty if there is no file."""
    file = folder / FILE
    try:
        content = json.loads(file.read_bytes())
        return {str(name): (str(source), str(target)) for name, (source, target) in content.items()}
    except (FileNotFoundError, NotADirectoryError):
        return {}
    except (OSError, ValueError, TypeError, AttributeError):
        raise ModelFileError(
            f"{file} cannot be read.", "Remove it and choose a default again: onehop models default NAME."
        ) from None


def write_defaults(folder: Path, defaults: Mapping[str, tuple[str, str]]) -> None:
    from onehop.atomic import write_json  # only here: every start reads the choices

    remedy = "Check the folder's permissions, or set ONEHOP_MODELS to another folder."
    with write_errors(folder / FILE, remedy, ModelFileError):
        if not defaults:
            (folder / FILE).unlink(missing_ok=True)
            return
        folder.mkdir(parents=True, exist_ok=True)
        write_json(folder / FILE, dict(defaults))
