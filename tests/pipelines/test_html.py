"""HTML: everything but text is unchanged, tags move with their words, entities stay entities."""

import re
from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from onehop.pipelines import html_tags
from onehop.pipelines.html import Aligned, flows, model_text, needs_alignment, render_flow
from onehop.pipelines.html_markup import MARKUP, Flow, parse
from onehop.pipelines.html_tags import MAX_DEPTH, MAX_MARKS, TooMuchMarkup, by_words, words
from onehop.pipelines.result import Sentence
from onehop.pipelines.sentence_translator import Translation
from onehop.text.sentences import segment, split_sentences


def verbatim(pieces):
    """The parsed pieces joined without translation."""
    out = []
    for piece in pieces:
        if isinstance(piece, str):
            out.append(piece)
            continue
        at = 0
        for mark in piece.marks:
            out += [*piece.raw[at : mark.position], mark.markup]
            at = mark.position
        out += piece.raw[at:]
    return "".join(out)


def translated(html, dictionary, order=None):
    """HTML translated word by word. `order` holds the index of the source word for each target word."""
    out = []
    for piece in parse(html):
        if isinstance(piece, str):
            out.append(piece)
            continue
        segments = [segment(model_text(piece))] if order else split_sentences(model_text(piece), "en")
        out.append(render_flow(piece, segments, [aligned(s, dictionary, order) for s in segments]))
    return "".join(out)


def aligned(piece, dictionary, order=None):
    source = piece.text
    if not any(map(str.isalnum, source)):
        return Aligned(Sentence(source=source, text=source))
    spans = [m.span() for m in re.finditer(r"\w+|[^\w\s]", source)]
    tokens = [source[a:b] for a, b in spans]
    chosen = order or range(len(tokens))
    target, places = "", []
    for i in chosen:
        word = dictionary.get(tokens[i], tokens[i])
        target += " " if target and re.match(r"\w|[&<©]", word) else ""
        places.append((len(target), len(target) + len(word)))
        target += word
    attention = np.full((len(places), len(spans)), 0.1 / len(spans), dtype=np.float32)
    for t, i in enumerate(chosen):
        attention[t, i] += 0.9
    found = Translation(target, ("t",), 0.0, 0.0, finished=True, looped=False)
    # The spans are those of the normalised source, which has single spaces.
    single = [m.span() for m in re.finditer(r"\w+|[^\w\s]", " ".join(source.split()))]
    return Aligned(Sentence(source=source, text=target, n_best=(found,)), single, places, attention)


GERMAN = {"the": "das", "old": "alte", "house": "Haus", "I": "ich", "have": "habe", "seen": "gesehen", "it": "es"}


@pytest.mark.parametrize(
    ("html", "expected"),
    [
        ("the <b>old</b> house", "das <b>alte</b> Haus"),
        ("<p>the <b>old</b> house.</p>", "<p>das <b>alte</b> Haus.</p>"),
        (
            "the <a href='old.html' title=\"old > new\">old house</a>!",
            "das <a href='old.html' title=\"old > new\">alte Haus</a>!",
        ),
        ("<a title='the < old' >old</a> house", "<a title='the < old' >alte</a> Haus"),
        ("<b>the <i>old</i> house</b>", "<b>das <i>alte</i> Haus</b>"),
        ("<b><i>old</i></b> house", "<b><i>alte</i></b> Haus"),
        ("the<br>old<hr/>house", "das<br>alte<hr/>Haus"),
        ("the <img src=house.png> old house", "das <img src=house.png> alte Haus"),
        ("<!-- old --> house", "<!-- old --> Haus"),
        ("the <b>old", "das <b>alte"),
        ("old</b> house", "alte</b> Haus"),
        ("<script>the old house</script>old", "<script>the old house</script>alte"),
        (
            '<script>document.write("<script src=x><\\/script>")</script><p>the old</p>',
            '<script>document.write("<script src=x><\\/script>")</script><p>das alte</p>',
        ),
        ("<textarea/>the <textarea> old</textarea>old", "<textarea/>the <textarea> old</textarea>alte"),
        ("<svg/>old", "<svg/>alte"),
        ("<pre>the <pre>old</pre> old</pre>old", "<pre>the <pre>old</pre> old</pre>alte"),
        ("<pre>the old</pre>", "<pre>the old</pre>"),
        ("<div translate=no>the <b>old</b></div> house", "<div translate=no>the <b>old</b></div> Haus"),
        ("the <code>old_house. It</code> house", "das <code>old_house. It</code> Haus"),
        (
            "the <span translate='no'>old &amp; <b>house</b></span> house",
            "das <span translate='no'>old &amp; <b>house</b></span> Haus",
        ),
        ("old &amp; house &lt; b &gt;", "alte &amp; Haus &lt; b&gt;"),
        ("&copy; old © house", "&copy; alte &copy; Haus"),
        ("the old&nbsp;house", "das alte&nbsp;Haus"),
        ("&nbsp;old&nbsp;", "&nbsp;alte&nbsp;"),
        ("a &lt; b", "a &lt; b"),
        ("5 < 6 & 7", "5 &lt; 6 &amp; 7"),
        ("the old &notanentity house", "das alte &amp; notanentity Haus"),
        ("", ""),
        ("  \n ", "  \n "),
        ("<b></b>", "<b></b>"),
        ("the\n<b>old</b>\n\thouse\n", "das <b>alte</b> Haus\n"),
    ],
)
def test_tags_and_entities_are_kept_around_translated_words(html, expected):
    assert translated(html, GERMAN) == expected


def test_tags_move_with_their_words():
    order = [0, 1, 3, 2]  # I have it seen
    assert (
        translated("I <i>have</i> <b>seen</b> <u>it</u>", GERMAN, order) == "ich <i>habe</i> <u>es</u> <b>gesehen</b>"
    )
    assert translated("I have <b>seen <u>it</u></b>", GERMAN, order) == "ich habe <b><u>es</u> gesehen</b>"


def test_an_element_over_several_sentences_has_one_tag_at_each_end():
    html = "<p>The <b>old house. It</b> have seen.</p>"
    assert translated(html, {**GERMAN, "It": "Es"}) == "<p>The <b>alte Haus. Es</b> habe gesehen.</p>"


def test_tags_at_the_ends_of_a_sentence_need_no_alignment():
    (flow,) = flows(parse("<b>the old house.</b> The <i>old</i> house. It&nbsp;have."))
    assert needs_alignment(flow, split_sentences(model_text(flow), "en")) == [False, True, True]


PIECES = [
    *("<b>", "</b>", "<i class='x'>", "</i>", "<p>", "</p>", "<br>", "<img src=a>", "<!-- c -->", "<code>", "</code>"),
    *("&amp;", "&nbsp;", "&copy;", "&shy;", "&#x41;", "&bogus;", "<", ">", "&", ". ", " ", "<script>", "</script>"),
    *('<a href="x>y">', "</a>", "<span translate=no>", "</span>", "<b", "<!", "the old house", "old"),
]
HTML = st.lists(st.sampled_from(PIECES) | st.text(max_size=4), max_size=14).map("".join)


@given(html=HTML)
@settings(max_examples=300, deadline=None)
def test_parsed_pieces_join_to_the_input(html):
    assert verbatim(parse(html)) == html


@given(html=HTML)
@settings(max_examples=300, deadline=None)
def test_every_tag_is_written_once_and_text_is_escaped(html):
    out = translated(html, GERMAN)
    tags = lambda text: Counter(m[0] for m in MARKUP.finditer(text))  # noqa: E731
    assert tags(out) == tags(html)


@pytest.mark.parametrize(
    "nasty",
    [
        "<a " * 20_000,
        "<a '" * 20_000,
        '<a "' * 20_001,
        "<!--" * 20_000,
        "-->" + "<!--" * 20_000,
        "<!" * 40_000,
        "<code>" * 10_000,
        '<a "<a" ' * 9_000,
        "<a \"'" * 15_000,
        "&" * 50_000,
        "<" * 50_000,
    ],
)
def test_long_malformed_markup_is_parsed_unchanged(nasty):
    assert verbatim(parse(nasty)) == nasty


@pytest.mark.parametrize("html", ["the " + "<b>" * (MAX_DEPTH + 1) + "old", "the " + "<b></b>" * MAX_MARKS + " old"])
def test_too_much_markup_is_refused(html):
    with pytest.raises(TooMuchMarkup):
        translated(html, GERMAN)


def test_by_words_sums_the_attention_of_tokens():
    attention = np.array([[0.5, 0.3, 0.0], [0.1, 0.3, 0.4]], dtype=np.float32)
    found = by_words(attention, [(0, 2), (2, 4)], [(0, 2), (2, 4), (4, 6)], [(0, 4)], [(0, 4), (5, 6)])
    np.testing.assert_allclose(found, [[1.2 / 1.6, 0.4 / 1.6]], rtol=1e-6)


def test_words_are_runs_of_letters_or_single_signs():
    assert words("It's 5 %.") == [(0, 2), (2, 3), (3, 4), (5, 6), (7, 8), (8, 9)]


def test_an_element_includes_a_doubtful_word_in_its_middle():
    # The second of four target words is doubtful. The element includes it, so that it stays in one piece.
    attention = np.array([[0.9, 0.1], [0.45, 0.55], [0.9, 0.1], [0.0, 1.0]], dtype=np.float32)
    element = html_tags.Element(0, 1, "<b>", "</b>", 0)
    html_tags.place_elements([element], attention, (0, 4))
    assert element.target == (0, 3)


def test_neighbouring_elements_do_not_overlap():
    attention = np.array([[0.5, 0.5]], dtype=np.float32)
    pair = [html_tags.Element(0, 1, "<b>", "</b>", 0), html_tags.Element(1, 2, "<i>", "</i>", 1)]
    html_tags.place_elements(pair, attention, (0, 1))
    assert html_tags.render("x", [(0, 1)], pair, str) in ("<b>x</b><i></i>", "<i></i><b>x</b>")


def test_entities_of_a_flow_are_decoded():
    (flow,) = parse("a &lt; &eacute;")
    assert isinstance(flow, Flow)
    assert flow.text == "a < é"
    assert flow.spelling() == {"<": "&lt;", "é": "&eacute;"}
