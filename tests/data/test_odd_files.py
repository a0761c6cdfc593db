"""Folders as people have them: links, damaged files, faults that pass, and places that name nothing."""

import os
import re

import numpy as np
import pytest
import tifffile
from PIL import Image

from ringconv.commands._terminal import UsageError
from ringconv.commands.data import data as data_command
from ringconv.data import check_outside, open_data
from ringconv.data.folders import images_below


@pytest.fixture
def photos(tmp_path):
    """Two classes of four pictures."""
    for number in range(8):
        path = tmp_path / "photos" / "ab"[number % 2] / f"{number}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.new("L", (8, 8), 20 * number).save(path)
    return tmp_path / "photos"


def images_in(data):
    return sum(len(split) for split in data.splits.values())


def test_linked_folders_are_read_once(photos, tmp_path):
    (tmp_path / "more").mkdir()
    for number in range(3):
        Image.new("L", (8, 8), number).save(tmp_path / "more" / f"{number}.png")
    (photos / "a" / "linked").symlink_to(tmp_path / "more")
    (photos / "a" / "again").symlink_to(tmp_path / "more")
    (photos / "a" / "circle").symlink_to(photos / "a")
    (tmp_path / "more" / "back").symlink_to(photos)
    (photos / "a" / "up").symlink_to("..")
    assert images_in(open_data(photos)) == 8 + 3
    assert len(images_below(photos / "a")) == len({path.resolve() for path in images_below(photos / "a")})


@pytest.mark.parametrize("cache", [True, False])
def test_a_link_to_nowhere_is_named_or_skipped(photos, cache):
    (photos / "a" / "gone.png").symlink_to(photos / "nowhere.png")
    with pytest.raises(ValueError, match=r"gone\.png"):
        open_data(photos, cache=cache)
    data = open_data(photos, faults="skip", cache=cache)
    assert images_in(data) == 8
    assert any("gone.png" in note for note in data.notes)


@pytest.mark.parametrize(("place", "value"), [(24, 5), (36, 1), (108, 12)])
def test_damaged_tiffs_are_skipped(tmp_path, place, value):
    """At these bytes of its header tifffile raises TypeError, ValueError and OverflowError."""
    for number in range(6):
        path = tmp_path / "set" / "ab"[number % 2] / f"{number}.tif"
        path.parent.mkdir(parents=True, exist_ok=True)
        tifffile.imwrite(path, np.full((24, 24), number, np.uint16))
    damaged = tmp_path / "set" / "a" / "0.tif"
    content = bytearray(damaged.read_bytes())
    content[place] = value
    damaged.write_bytes(content)
    data = open_data(tmp_path / "set", faults="skip", size=8)
    assert images_in(data) == 5


def test_a_fault_that_has_passed_is_forgotten(photos):
    path = photos / "a" / "0.png"
    whole, times = path.read_bytes(), path.stat()
    path.write_bytes(b"\0" * len(whole))
    os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))
    for _ in range(2):
        with pytest.raises(ValueError, match=r"0\.png"):
            open_data(photos)
    path.write_bytes(whole)
    os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))  # as if the disk, and not the file, had been at fault
    assert images_in(open_data(photos)) == 8


def test_the_folder_one_is_in(photos, monkeypatch):
    monkeypatch.chdir(photos / "a")
    assert open_data("..").name == "photos"
    monkeypatch.chdir(photos)
    assert open_data(".").name == "photos"
    with pytest.raises(UsageError, match=re.escape(f"out must not be within the data folder {photos}")):
        data_command("show", ".")
    assert sorted(path.name for path in photos.iterdir()) == ["a", "b"]


def test_what_may_be_written_beside_data(photos, tmp_path):
    check_outside(tmp_path / "runs", photos)
    check_outside(photos / "runs", tmp_path / "photos.npz")
    check_outside(tmp_path / "runs", "textures")
    with pytest.raises(ValueError, match="would be taken for a class"):
        check_outside(photos / "deep" / "runs", photos)


def test_names_with_dollars_and_brackets_are_drawn_and_printed(photos, tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "200")
    (photos / "a").rename(photos / "$1 to $5")
    (photos / "b").rename(photos / "$_10_$")
    out = tmp_path / "sheets [x]" / "sheet.png"
    data_command("show", str(photos), out=out)
    assert str(out) in capsys.readouterr().out
    assert out.is_file()
