"""Learn a vocabulary with a piece for each tag, from the training files of a recipe.

    python recipes/tagged_tokenizer.py recipes/de-en.toml --data CORPORA -o tokenizer.model
    onehop prepare -s recipes/de-en.toml --data CORPORA --tokenizer tokenizer.model -o store

The recipe's table [tokenizer] gives its size and the weights of the sources, as in `onehop prepare`. The files are
not filtered before. The piece of a tag includes the space before it, so a tag must be a word of its own.
"""

import argparse
from collections.abc import Iterator
from pathlib import Path

from translation_data import TAGS

from onehop.config import Settings, load_settings
from onehop.data.chunks import read_chunks
from onehop.data.clean import evenly_spaced
from onehop.data.corpus import ParallelFile, find_files
from onehop.data.filters import columns_of, decoded
from onehop.data.mixture import quotas, source_name, weights_of
from onehop.text.tokenizer import Tokenizer


def sample(settings: Settings, root: Path) -> Iterator[str]:
    """Yield both sides of pairs from all sources. Size and weight of a source decide how many it gives."""
    data, wanted = settings.data, settings.tokenizer
    files = [file for entry in data.train for file in find_files([entry], root, data.source, data.target)]
    sizes = [sum(len(chunk.src) for chunk in read_chunks(file)) for file in files]
    weights = weights_of([source_name(file.name) for file in files], wanted.weights, "tokenizer.weights")
    for file, size, count in zip(files, sizes, quotas(sizes, weights, wanted.sample // 2), strict=True):
        yield from sides(file, frozenset(evenly_spaced(count, size).tolist()))


def sides(file: ParallelFile, chosen: frozenset[int]) -> Iterator[str]:
    """Yield both sides of the chosen lines of a file."""
    for chunk in read_chunks(file):
        for i, columns in enumerate(columns_of(chunk), chunk.first_line - 1):
            if i in chosen and not isinstance(pair := decoded(columns), str):
                yield from filter(None, pair)


def learn(settings: Settings, root: Path) -> bytes:
    """Learn the vocabulary with a piece for each tag."""
    return Tokenizer.learn(sample(settings, root), settings.tokenizer, TAGS).model


def main() -> None:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("settings", help="a recipe with [data] and [tokenizer]")
    parser.add_argument("--data", type=Path, required=True, help="folder with the files of [data]")
    parser.add_argument("-o", "--out", type=Path, required=True, help="SentencePiece model to write")
    args = parser.parse_args()
    model = learn(load_settings(args.settings), args.data)
    args.out.write_bytes(model)
    print(f"{args.out}: {Tokenizer(model).vocab_size} pieces")


if __name__ == "__main__":
    main()
