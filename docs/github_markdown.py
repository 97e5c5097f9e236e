"""For mkdocs: our pages are written for GitHub's Markdown, and the site's differs from it in four places."""

import re
from pathlib import Path
from typing import Any

DOCS = Path(__file__).parent
FENCE = re.compile(r"\s*```")
# Text and target of a link to a file, not of a picture or an address.
LINK = re.compile(r"(?<!!)\[([^\]]+)\]\((?!\w+:|#)([^)\s]+)\)")
CODE = re.compile(r"`[^`]+`")
ITEM = re.compile(r"[-*] |\d+\. |\|")


def on_page_markdown(markdown: str, page: Any = None, **_: Any) -> str:
    """What mkdocs calls for each page."""
    folder = (DOCS / page.file.src_uri).parent if page else DOCS
    linked = LINK.sub(lambda link: kept_or_named(link, folder), markdown)
    linked = linked.replace(
        "<details>", '<details markdown="1">'
    )  # GitHub renders Markdown inside it, the site if told so
    return with_room_before_lists(without_escapes_in_code(linked))


def kept_or_named(link: re.Match[str], folder: Path) -> str:
    """The site holds the pages of docs/ alone: a link to another file or to a folder becomes its path."""
    text, target = link.groups()
    there = (folder / target.partition("#")[0]).resolve()
    if not there.is_dir() and there.is_relative_to(DOCS):
        return link.group()  # mkdocs looks whether it leads somewhere
    if not there.exists():
        raise FileNotFoundError(f"{link.group()} leads nowhere")
    path = there.relative_to(DOCS.parent).as_posix()
    return f"`{path}`" if text in path else f"{text} (`{path}`)"


def without_escapes_in_code(markdown: str) -> str:
    """A bar in a table's code has a backslash on GitHub, which the site would show."""
    table_rows = re.compile(r"^\|.*$", re.M)
    return table_rows.sub(lambda row: CODE.sub(lambda code: code[0].replace("\\|", "|"), row[0]), markdown)


def with_room_before_lists(markdown: str) -> str:
    """A list or table right after a paragraph gets the empty line that Python's Markdown wants."""
    lines: list[str] = []
    in_code = False
    for line in markdown.split("\n"):
        in_code ^= bool(FENCE.match(line))
        if not in_code and ITEM.match(line) and lines and ends_a_paragraph(lines[-1]):
            lines.append("")
        lines.append(line)
    return "\n".join(lines)


def ends_a_paragraph(line: str) -> bool:
    """Neither empty nor itself part of a list, a table, a heading or an indented block."""
    return bool(line.strip()) and not ITEM.match(line) and not line.startswith((" ", "#"))
