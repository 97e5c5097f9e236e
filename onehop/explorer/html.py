"""The page as HTML: with links to its files if it is served, with all files inlined if it is exported."""

import base64
import hashlib
import json
import re
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).with_name("page")
WORKER = "local/"  # modules of the worker that runs the model; an exported file has none
TYPES = {".js": "text/javascript", ".css": "text/css", ".svg": "image/svg+xml"}

# An exported file forbids itself every request.
ALONE = "default-src 'none'; script-src 'unsafe-inline' data:; style-src 'unsafe-inline'; img-src data: blob:"


@cache
def assets() -> Mapping[str, bytes]:
    """Every file of the page except index.html, by its path."""
    files = sorted(file for file in FOLDER.rglob("*") if file.suffix in TYPES)
    return {file.relative_to(FOLDER).as_posix(): file.read_bytes() for file in files}


def served_page(data: Mapping[str, Any]) -> str:
    """The page that loads its files from a server."""
    modules = {f"onehop/{path}": f"./page/{path}" for path in assets() if path.endswith(".js")}
    styles = [f'<link rel="stylesheet" href="./page/{path}">' for path in assets() if path.endswith(".css")]
    return _filled(modules, "\n".join(styles), data, {})


def page_alone(data: Mapping[str, Any], late: Mapping[str, Any]) -> str:
    """The page in one file without any request. Data that the first figure does not need is at the end."""
    scripts = {path: text for path, text in assets().items() if path.endswith(".js") and not path.startswith(WORKER)}
    encoded = {path: base64.b64encode(content).decode("ascii") for path, content in scripts.items()}
    modules = {f"onehop/{path}": f"data:text/javascript;base64,{content}" for path, content in encoded.items()}
    policy = f'<meta http-equiv="Content-Security-Policy" content="{ALONE}">'
    styles = [f"<style>\n{text.decode()}</style>" for path, text in assets().items() if path.endswith(".css")]
    return _filled(modules, "\n".join([policy, *styles]), data, late)


def _filled(modules: Mapping[str, str], style: str, data: Mapping[str, Any], late: Mapping[str, Any]) -> str:
    """index.html with its five placeholders replaced. The script does not wait for the data at the end."""
    parts = {
        "style": style,
        "import-map": f'<script type="importmap">{json.dumps({"imports": modules})}</script>',
        "data": data_script("data", data),
        "start": '<script type="module" async>import "onehop/main.js";</script>',
        "late": "\n".join(data_script(name, content) for name, content in late.items()),
    }
    template = (FOLDER / "index.html").read_text(encoding="utf-8")
    return re.sub(r"<!-- onehop:([\w-]+) -->", lambda mark: parts[mark[1]], template)


def data_script(name: str, content: Any) -> str:
    """A script element with JSON that cannot close it, whatever texts it contains."""
    text = json.dumps(content, ensure_ascii=False, allow_nan=False).replace("<", "\\u003c")
    return f'<script type="application/json" id="onehop-{name}">{text}</script>'


def policy_of(html: str) -> str:
    """The Content-Security-Policy of a served page: its own files, and its inline scripts by hash."""
    inline = re.findall(r'<script type="(?:importmap|module)"(?: async)?>(.*?)</script>', html, re.DOTALL)
    hashes = " ".join(f"'sha256-{base64.b64encode(hashlib.sha256(s.encode()).digest()).decode()}'" for s in inline)
    return (
        f"default-src 'none'; script-src 'self' {hashes}; style-src 'self' 'unsafe-inline'; img-src data: blob:; "
        "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'self'"
    )
