"""The page as one HTML text: linked to its files where it is served, with all of them in it where it stands alone."""

import base64
import hashlib
import json
import re
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).with_name("page")
WORKER = "local/"  # modules of the thread that runs the model, which a file has not
_START = 'import "onehop/main.js";'
TYPES = {".js": "text/javascript", ".css": "text/css", ".svg": "image/svg+xml"}

# Nothing is fetched, whatever stands in the page: a file that says so of itself.
ALONE = "default-src 'none'; script-src 'unsafe-inline' data:; style-src 'unsafe-inline'; img-src data: blob:"


@cache
def assets() -> Mapping[str, bytes]:
    """Every file of the page but the first, by its path."""
    files = sorted(file for file in FOLDER.rglob("*") if file.suffix in TYPES)
    return {file.relative_to(FOLDER).as_posix(): file.read_bytes() for file in files}


def served_page(data: Mapping[str, Any]) -> str:
    """The page that asks a server for its files."""
    modules = {f"onehop/{path}": f"./page/{path}" for path in assets() if path.endswith(".js")}
    styles = [f'<link rel="stylesheet" href="./page/{path}">' for path in assets() if path.endswith(".css")]
    return _filled(modules, "\n".join(styles), data, {})


def page_alone(data: Mapping[str, Any], late: Mapping[str, Any]) -> str:
    """The page in one file that asks nobody for anything; what its first picture can do without comes late in it."""
    scripts = {path: text for path, text in assets().items() if path.endswith(".js") and not path.startswith(WORKER)}
    encoded = {path: base64.b64encode(content).decode("ascii") for path, content in scripts.items()}
    modules = {f"onehop/{path}": f"data:text/javascript;base64,{content}" for path, content in encoded.items()}
    policy = f'<meta http-equiv="Content-Security-Policy" content="{ALONE}">'
    styles = [f"<style>\n{text.decode()}</style>" for path, text in assets().items() if path.endswith(".css")]
    return _filled(modules, "\n".join([policy, *styles]), data, late)


def _filled(modules: Mapping[str, str], style: str, data: Mapping[str, Any], late: Mapping[str, Any]) -> str:
    """The first file with its five marks replaced. The script does not wait for what comes late."""
    parts = {
        "style": style,
        "import-map": f'<script type="importmap">{json.dumps({"imports": modules})}</script>',
        "data": _data_script("data", data),
        "start": f'<script type="module" async>{_START}</script>',
        "late": "\n".join(_data_script(name, content) for name, content in late.items()),
    }
    template = (FOLDER / "index.html").read_text(encoding="utf-8")
    return re.sub(r"<!-- onehop:([\w-]+) -->", lambda mark: parts[mark[1]], template)


def _data_script(name: str, content: Any) -> str:
    """JSON for the page's script to read."""
    return f'<script type="application/json" id="onehop-{name}">{in_script(content)}</script>'


def in_script(data: Any) -> str:
    """JSON that cannot end the element it stands in, whatever texts it holds."""
    return json.dumps(data, ensure_ascii=False, allow_nan=False).replace("<", "\\u003c")


def policy_of(html: str) -> str:
    """What a served page may load: its own files, and exactly the scripts that stand in it."""
    inline = re.findall(r'<script type="(?:importmap|module)"(?: async)?>(.*?)</script>', html, re.DOTALL)
    hashes = " ".join(f"'sha256-{base64.b64encode(hashlib.sha256(s.encode()).digest()).decode()}'" for s in inline)
    return (
        f"default-src 'none'; script-src 'self' {hashes}; style-src 'self' 'unsafe-inline'; img-src data: blob:; "
        "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'self'"
    )
