"""The page as one HTML text."""

import base64
import json
import re

import numpy as np
from page_data import HOSTILE, TEXT, data_of

from onehop.explorer.content import deciding_heads, is_shown
from onehop.explorer.html import ALONE, WORKER, assets, data_script
from onehop.interpret.trace_file import Trace, unpack


def test_an_exported_page_is_complete_and_sends_no_requests(explorer):
    html = explorer.alone(TEXT)
    data = data_of(html)
    assert data["backend"] == "export"
    trace = Trace.from_json(explorer.trace(TEXT))
    assert {key: value for key, value in data["trace"].items() if key not in ("tensors", "opening")} == trace.header
    offered = [entry["edits"] for entry in data["about"]["edits"]]
    assert [variant["edits"] for variant in data_of(html, "variants")] == offered
    assert offered[-12:] == [entry["edits"] for entry in explorer.about()["edits"]]
    layer, head = trace.header["aligner"]["layer"], trace.header["aligner"]["head"]
    held = {(w["role"], w["layer"], w["head"]) for w in data_of(html, "weights")}
    assert held >= {("encoder", 0, head), ("decoder", layer, head), ("cross", layer, head), ("cross", 0, head)}
    assert set(data) >= {"about", "measured", "worked", "paper"}
    (imports,) = re.findall(r'<script type="importmap">(.*?)</script>', html)
    modules = json.loads(imports)["imports"]
    in_page = {path for path in assets() if path.endswith(".js") and not path.startswith(WORKER)}
    assert set(modules) == {f"onehop/{path}" for path in in_page}
    for name, url in modules.items():
        content = base64.b64decode(url.removeprefix("data:text/javascript;base64,"))
        assert content == assets()[name.removeprefix("onehop/")]
    assert ALONE in html
    assert not re.findall(r'<(?:script|link|img|iframe)[^>]+(?:src|href)="(?!data:)', html)
    assert "<!-- onehop:" not in html


def test_an_exported_page_translates_without_the_head_that_decides():
    """Of two heads that turn a piece the strongest counts; a piece that stays or was no first choice has none."""
    steps = [{"rank": 0, "chosen": {"token": token}} for token in ("a", "b")] + [{"rank": 1, "chosen": {"token": "c"}}]
    turned, kept = [["x", 0.5]], [["b", 0.5]]
    heads = [
        {"role": "encoder", "layer": 0, "effect": [[-1.0, 0.1, -9.0]], "top": [[turned, kept, turned]]},
        {
            "role": "cross",
            "layer": 1,
            "effect": [[0.2, -2.0, 0.0], [-3.0, 0.3, 0.0]],
            "top": [[kept] * 3, [turned] * 3],
        },
    ]
    assert deciding_heads(steps, heads) == {"head=off@cross.1.1": "cross-attention, layer 2, head 2 off"}
    assert deciding_heads(steps, []) == {}


def test_an_exported_page_starts_with_the_data_of_the_first_picture(explorer):
    """Tensors that no figure shows are left out; the others follow the script, except those of the opening."""
    html = explorer.alone(TEXT)
    trace, first = Trace.from_json(explorer.trace(TEXT)), data_of(html)["trace"]
    shown = unpack({"tensors": first["tensors"], "blob": data_of(html, "blob")})
    assert shown.keys() == {name for name in trace if is_shown(name, trace.header)} < set(trace)
    for name, tensor in shown.items():
        np.testing.assert_array_equal(tensor.values, trace[name])
    ((name, tensor),) = unpack(first["opening"]).items()
    assert name == f"decoder.layers.{trace.header['aligner']['layer']}.cross_attention.weights"
    np.testing.assert_array_equal(tensor.values, trace[name])
    places = [html.index(mark) for mark in ('id="onehop-data"', '<script type="module" async>', 'id="onehop-blob"')]
    assert places == sorted(places)


def test_an_exported_page_can_open_with_edits(explorer):
    assert data_of(explorer.alone(TEXT, ["scale=off"]))["trace"]["edits"] == ["scale=off"]


def test_script_content_is_escaped(explorer):
    html = explorer.alone(HOSTILE)
    assert HOSTILE not in html
    assert html.count("</script>") == 8
    assert data_of(html)["trace"]["source"]["text"] == HOSTILE
    assert data_script("data", {"text": "<!--<script>\u2028"}).count("<") == 2  # its own tags


def test_every_bare_import_of_the_page_has_a_file():
    """Page modules import each other as onehop/…, by the import map. A worker's modules use relative paths."""
    for path, content in assets().items():
        if path.endswith(".js") and not path.startswith("vendor/"):
            for name in re.findall(
                r'^(?:import|export)\b(?:[^;"=]*\bfrom)?\s+"([^"]+)"', content.decode(), re.MULTILINE
            ):
                if path.startswith(WORKER):
                    assert WORKER + name.removeprefix("./") in assets(), f"{path} imports {name}"
                else:
                    assert name.removeprefix("onehop/") in assets(), f"{path} imports {name}"
