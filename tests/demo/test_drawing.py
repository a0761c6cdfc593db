"""Charts and pictures as HTML."""

import base64
import io
import re

import numpy as np
import pytest
from PIL import Image

from ringconv.demo.drawing import ANGLE, Axis, Line, bars, card, chart, coloured, data_uri, figure, rounded_up


def _points(drawn):
    return [tuple(map(float, pair.split(","))) for pair in re.search(r'points="([^"]*)"', drawn)[1].split()]


def test_a_line_keeps_to_its_frame():
    y = Axis("", (0, 1))
    points = _points(chart("title", [Line("a", (0, 90, 180, 270, 360), (0, 1, 5, -5, float("nan")))], ANGLE, y))
    assert len(points) == 4, "what is no number is left out"
    heights = [height for _, height in points]
    assert heights[1] == heights[2] == min(heights)
    assert heights[0] == heights[3] == max(heights)


def test_a_logarithmic_axis_takes_zero():
    y = Axis("", (0.001, 1), logarithmic=True)
    assert y.place(0.0) == 0
    assert y.place(1.0) == 1
    assert y.place(0.001**0.5) == pytest.approx(0.5)


def test_names_cannot_be_markup():
    evil = '<script>alert("1")</script>'
    drawn = [
        card(evil, evil),
        bars([(evil, 0.5, 0.5)]),
        chart(evil, [Line(evil, (0, 1), (0, 1))], ANGLE, Axis("", (0, 1))),
        figure(np.zeros((2, 2), np.uint8), evil),
    ]
    assert all("<script" not in each for each in drawn)


def test_colours_run_from_end_to_end():
    pixels = coloured(np.array([[-9.0, 0.0, 1.0, 9.0]]), 0.0, 1.0, ("#000000", "#ffffff"))
    np.testing.assert_array_equal(pixels[0, :, 0], [0, 0, 255, 255])
    assert coloured(np.zeros((2, 2)), 0.0, 0.0).shape == (2, 2, 3), "a flat map"


def test_images_are_kept_pixel_by_pixel():
    pixels = np.random.default_rng(0).integers(0, 256, (5, 7, 3), dtype=np.uint8)
    content = base64.b64decode(data_uri(pixels).partition(",")[2])
    np.testing.assert_array_equal(np.asarray(Image.open(io.BytesIO(content))), pixels)


@pytest.mark.parametrize(
    ("value", "end"), [(0.1, 0.1), (0.11, 0.15), (1.6, 2.0), (0.0042, 0.005), (9.5, 10.0), (30, 30)]
)
def test_axes_end_at_a_round_number(value, end):
    assert rounded_up(value) == pytest.approx(end)
