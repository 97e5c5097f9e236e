"""HTML files: everything but text is unchanged, and tags move with their words."""

from pathlib import Path

import pytest

PAGE = """\
<!doctype html>
<html lang="en"><head><title>The sea</title><style>p { color: red }</style></head>
<body class="x"><p>It was <b>late</b>,
and   <a href="/x?a=1&amp;b=2" title="keep">nobody</a> came.<br>Run <code>pip install</code> now.</p>
<script>var keep = "this";</script><p translate="no">Keep this.</p></body></html>
"""
STATIC = sorted((Path(__file__).parents[3] / "onehop").glob("**/*.html"))


@pytest.mark.parametrize("data", [PAGE.encode(), *(file.read_bytes() for file in STATIC)])
def test_unchanged_text_gives_the_same_bytes(same, data):
    for each in (data, data.replace(b"\r", b"").replace(b"\n", b"\r\n"), b"\xef\xbb\xbf" + data):
        assert same(each, "page.html")


def test_only_text_is_translated(translated):
    found = translated(PAGE, "page.html")
    assert '<p>IT WAS <b>LATE</b>, AND <a href="/x?a=1&amp;b=2" title="keep">NOBODY</a> CAME.<br>' in found
    assert "<br>RUN <code>pip install</code> NOW.</p>" in found
    assert '<script>var keep = "this";</script><p translate="no">Keep this.</p>' in found


def test_placeholders_inside_and_beside_tags_are_kept(translated):
    page = "<p>Dear {{name}}, <b>{count}</b> of <code>{total}</code> files <i>are at %s now</i>.</p>"
    changed = "<p>DEAR {{name}}, <b>{count}</b> OF <code>{total}</code> FILES <i>ARE AT %s NOW</i>.</p>"
    assert translated(page, "a.html") == changed


@pytest.mark.parametrize("name", ["{{first <b>name</b>}}, read", "{{first <b>name}}, read</b>"])
def test_a_placeholder_with_a_tag_inside_is_kept(translated, name):
    assert translated(f"<p>Dear {name} it.</p>", "a.html") == f"<p>DEAR {name.replace('read', 'READ')} IT.</p>"
