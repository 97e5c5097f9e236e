"""Attention as a picture: a square for each weight, and escaped labels."""

from xml.etree import ElementTree

import pytest
import torch

from onehop.interpret.attention_svg import Panel, heatmap_svg

SVG = "{http://www.w3.org/2000/svg}"


@pytest.fixture
def picture():
    weights = torch.tensor([[0.25, 0.75], [1.0, 0.0], [0.5, 0.5]])
    panels = [Panel(f"head {i}", weights, ["<b>", "&", "c"], ["x", "y"]) for i in range(3)]
    return ElementTree.fromstring(heatmap_svg(panels, 2, 'a "caption" & more'))


def squares(picture):
    return [r for r in picture.iter(f"{SVG}rect") if r.find(f"{SVG}title") is not None]


def test_every_weight_has_a_square(picture):
    found = [float(s.find(f"{SVG}title").text) for s in squares(picture)]
    assert found == 3 * [0.25, 0.75, 1.0, 0.0, 0.5, 0.5]


def test_larger_weights_are_darker(picture):
    by_weight = sorted(squares(picture), key=lambda s: float(s.find(f"{SVG}title").text))
    shades = [float(s.get("fill-opacity")) for s in by_weight]
    assert shades == sorted(shades)
    assert shades[0] < 0.1
    assert shades[-1] == 1.0


def test_labels_are_escaped(picture):
    labels = [t.text for t in picture.iter(f"{SVG}text")]
    assert labels.count("<b>") == labels.count("&") == labels.count("x") == 3
    assert picture.get("aria-label") == 'a "caption" & more'


def test_all_squares_are_inside_the_picture(picture):
    width, height = float(picture.get("width")), float(picture.get("height"))
    for group in picture.iter(f"{SVG}g"):
        x, y = map(float, group.get("transform").removeprefix("translate(").removesuffix(")").split())
        for square in squares(group):
            assert 0 <= x + float(square.get("x")) <= width - float(square.get("width"))
            assert 0 <= y + float(square.get("y")) <= height - float(square.get("height"))
