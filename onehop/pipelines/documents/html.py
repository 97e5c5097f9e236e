"""HTML: text between tags; inline tags go around the words that translate their words."""

from onehop.pipelines.documents.flow import Pieces, decoded, keep_placeholders
from onehop.pipelines.html_markup import parse


def read(data: bytes, name: str) -> Pieces:
    source = decoded(data, name)
    return Pieces(source, keep_placeholders(parse(source.text)))
