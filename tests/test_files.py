"""Files are complete or not there, and have the permissions of any other new file."""

import errno
import os
import stat

import pytest

from ringconv._files import write_whole, written_whole


@pytest.fixture
def path(tmp_path):
    return tmp_path / "x.json"


def test_a_full_disk_leaves_what_was_there(path, monkeypatch):
    def full(descriptor):
        raise OSError(errno.ENOSPC, "No space left")

    write_whole(path, "old")
    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", full)
        with pytest.raises(OSError, match="No space left"):
            write_whole(path, "new")
    assert path.read_text() == "old"
    assert list(path.parent.iterdir()) == [path]
    write_whole(path, "ä\n".encode())
    assert path.read_bytes() == "ä\n".encode()
    write_whole(path, "ö\n")
    assert path.read_bytes() == "ö\n".encode()


def test_a_writer_that_stops_leaves_what_was_there(path):
    def write_half():
        with written_whole(path) as partial:
            partial.write_text("half")
            raise KeyboardInterrupt

    write_whole(path, "old")
    with pytest.raises(KeyboardInterrupt):
        write_half()
    assert path.read_text() == "old"
    assert list(path.parent.iterdir()) == [path]


@pytest.mark.parametrize("umask", [0o022, 0o027, 0o002])
def test_permissions_are_those_of_any_new_file(path, umask):
    before = os.umask(umask)
    try:
        write_whole(path, "x")
    finally:
        os.umask(before)
    assert stat.S_IMODE(path.stat().st_mode) == 0o666 & ~umask


def test_content_and_name_are_on_the_disk(path, monkeypatch):
    synchronised, fsync = [], os.fsync

    def record(descriptor):
        fsync(descriptor)
        synchronised.append((os.fstat(descriptor).st_ino, path.exists()))

    monkeypatch.setattr(os, "fsync", record)
    write_whole(path, "x")
    assert synchronised == [(path.stat().st_ino, False), (path.parent.stat().st_ino, True)]


def test_a_folder_that_cannot_be_synchronised_does_no_harm(path, monkeypatch):
    fsync = os.fsync

    def refuse_folders(descriptor):
        if stat.S_ISDIR(os.fstat(descriptor).st_mode):
            raise OSError(errno.EINVAL, "not of folders")
        fsync(descriptor)

    monkeypatch.setattr(os, "fsync", refuse_folders)
    write_whole(path, "x")
    assert path.read_text() == "x"


def test_two_writers_have_names_of_their_own(path):
    with written_whole(path) as one, written_whole(path) as other:
        assert one != other
        assert {one.parent, other.parent} == {path.parent}
        one.write_text("one")
        other.write_text("other")
        assert list(path.parent.glob("*.json")) == [], "what is not finished is not found"
    assert path.read_text() == "one"
    with written_whole(path, ending=".json") as partial:
        assert partial.suffix == ".json"
        partial.write_text("two")
    assert path.read_text() == "two"


def test_a_link_is_replaced_and_not_what_it_leads_to(path):
    write_whole(path, "old")
    link = path.with_name("link")
    link.symlink_to(path)
    write_whole(link, "new")
    assert not link.is_symlink()
    assert (link.read_text(), path.read_text()) == ("new", "old")
