"""HTML: the text between its tags, and the tags around the words that come from theirs."""

from onehop.pipelines.documents.flow import Pieces, decoded, keep_placeholders
from onehop.pipelines.html_markup import parse


def read(data: bytes, name: str) -> Pieces:
    source = decoded(data, name)
    return Pieces(source, keep_placeholders(parse(source.text)))
