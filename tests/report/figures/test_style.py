"""One look: told apart without colour, whole files, nothing global."""

import sys
import threading
from itertools import pairwise

import matplotlib
import numpy as np
import pytest
from matplotlib import colormaps
from matplotlib._pylab_helpers import Gcf
from matplotlib.colors import to_rgb

from ringconv import _figure_style as style
from ringconv._extras import MissingExtraError
from ringconv.report.figures import save_figure, svg


def grey(colour):
    return float(np.dot(to_rgb(colour), (0.299, 0.587, 0.114)))


def figure_with_a_line():
    figure = style.new_figure(style.COLUMN, 2)
    axes = figure.subplots()
    drawn = axes.plot([0, 1], [0, 1], **style.line(0))
    style.dress(axes, x="x", y="y")
    style.legend(figure, drawn, ["a line"])
    return figure


def test_lines_areas_and_points_differ_without_colour():
    lines = [(str(style.line(number)["linestyle"]), style.line(number)["marker"]) for number in range(40)]
    assert len(set(lines)) == 40
    hatches = [style.area(number)["hatch"] for number in range(8)]
    assert len(set(hatches)) == 8
    points = [(style.point(number)["marker"], style.point(number)["facecolors"] == "none") for number in range(16)]
    assert len(set(points)) == 16
    for colour in style.COLOURS:
        assert grey(colour) < 0.75, "seen on white paper"


@pytest.mark.parametrize("name", ["signed", style.MAGNITUDES])
def test_maps_grow_lighter_in_grey(name):
    colours = style.signed_map() if name == "signed" else colormaps[name]
    lightness = [grey(colours(value)) for value in np.linspace(0, 1, 33)]
    steps = [after - before for before, after in pairwise(lightness)]
    assert min(steps) > 0.4 * sum(steps) / len(steps), "evenly: no two values look alike"


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ([88.0, 92.0], (85.0, 95.0)),
        ([100.0, 100.0], (90.0, 100.0)),
        ([0.0], (0.0, 10.0)),
        ([3.0, 99.0], (0.0, 100.0)),
        ([float("nan"), 71.0], (65.0, 75.0)),
        ([float("nan")], (0.0, 100.0)),
        ([], (0.0, 100.0)),
    ],
)
def test_limits_hold_all_values(values, expected):
    assert style.percent_limits(values) == expected


def test_long_names_are_wrapped_into_the_figure(drawn):
    figure = style.new_figure(style.COLUMN, 3)
    axes = figure.subplots()
    names = ["a network with " + "a very long name " * 8, "short"]
    style.legend(figure, [axes.plot([0, 1])[0] for _ in names], names)
    style.headline(figure, "A headline " * 12)
    drawn(figure)


def test_a_figure_grows_with_its_legend(drawn):
    figure = style.new_figure(style.COLUMN, 2)
    axes = figure.subplots()
    style.legend(figure, [axes.plot([0, 1])[0] for _ in range(40)], [f"a network called {n}" for n in range(40)])
    drawn(figure)
    assert axes.get_window_extent().height > 0.4 * 2 * figure.dpi, "the axes keep their room"


def test_files_are_whole_and_equal_each_time(tmp_path):
    paths = save_figure(figure_with_a_line(), tmp_path / "new" / "folder", "line")
    assert [path.name for path in paths] == ["line.svg", "line.png"]
    assert sorted(path.name for path in paths[0].parent.iterdir()) == ["line.png", "line.svg"]
    first = [path.read_bytes() for path in paths]
    again = [path.read_bytes() for path in save_figure(figure_with_a_line(), tmp_path, "line")]
    assert first == again
    assert first[0].startswith(b"<?xml")
    assert first[1].startswith(b"\x89PNG")


def test_formats_can_be_chosen(tmp_path):
    (path,) = save_figure(figure_with_a_line(), tmp_path, "line", ("png",))
    assert list(tmp_path.iterdir()) == [path]
    with pytest.raises(ValueError, match=r"formats must be of svg, png, got pdf"):
        save_figure(figure_with_a_line(), tmp_path, "line", ("pdf",))
    with pytest.raises(ValueError, match="got none"):
        save_figure(figure_with_a_line(), tmp_path, "line", ())


def test_svg_can_stand_in_a_page():
    one, other = (svg(figure_with_a_line(), prefix=prefix) for prefix in ("one-", "other-"))
    assert one.startswith("<svg")
    assert one.rstrip().endswith("</svg>")
    assert 'id="one-part0"' in one
    assert "url(#one-part" in one, "what refers to a part has its new name too"
    assert "one-part" not in other


def test_figures_are_drawn_in_threads():
    results = []
    threads = [threading.Thread(target=lambda: results.append(svg(figure_with_a_line()))) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(results) == 3
    assert len(set(results)) == 1


def test_nothing_global_is_touched():
    before = dict(matplotlib.rcParams)
    svg(figure_with_a_line())
    assert dict(matplotlib.rcParams) == before
    assert not Gcf.figs, "no figure that somebody would have to close"


def test_a_missing_matplotlib_names_the_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib.backends.backend_agg", None)
    with pytest.raises(MissingExtraError, match=r"ringconv\[bench\]"):
        style.new_figure(1, 1, "bench")
