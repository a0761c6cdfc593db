"""Complete or not there, also with several processes."""

import multiprocessing
import os
import stat
import time

import pytest

from ringconv.data import cache


def build_slowly(folder, number, started, results):
    def build(partial):
        (partial / "one").write_text(str(number))
        started.wait()  # both are building now
        time.sleep(0.05 * number)
        (partial / "two").write_text(str(number))

    results.put(str(cache.stored("set", "key", build, folder)))


def test_two_processes_at_once(tmp_path):
    context = multiprocessing.get_context("fork")
    started, results = context.Barrier(2), context.Queue()
    workers = [context.Process(target=build_slowly, args=(tmp_path, n, started, results)) for n in (0, 1)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join(30)
        assert worker.exitcode == 0
    assert results.get(timeout=5) == results.get(timeout=5) == str(tmp_path / "set-key")
    assert [path.name for path in tmp_path.iterdir()] == ["set-key"], "nothing half done is left"
    contents = {(tmp_path / "set-key" / name).read_text() for name in ("one", "two")}
    assert len(contents) == 1, "all of it is of one process"


def test_what_fails_leaves_nothing(tmp_path):
    def build(folder):
        (folder / "half").write_text("x")
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        cache.stored("a set/with: odd name", "key", build, tmp_path)
    assert list(tmp_path.iterdir()) == []
    path = cache.stored("a set/with: odd name", "key", lambda folder: None, tmp_path)
    assert path.parent == tmp_path


def test_others_may_read_what_the_user_lets_them(tmp_path):
    before = os.umask(0o027)
    try:
        path = cache.stored("set", "key", lambda folder: cache.new_memmap(folder / "rows.npy", "u1", (2, 3)), tmp_path)
    finally:
        os.umask(before)
    assert stat.S_IMODE(path.stat().st_mode) == 0o750
    assert stat.S_IMODE((path / "rows.npy").stat().st_mode) == 0o640


def test_keys_change_with_files_and_options(tmp_path):
    file = tmp_path / "a"
    file.write_text("1")
    before = cache.key_of([file], "size 3")
    assert cache.key_of([file], "size 3") == before
    assert cache.key_of([file], "size 4") != before
    file.write_text("12")
    assert cache.key_of([file], "size 3") != before


def test_where_it_is(tmp_path, monkeypatch):
    monkeypatch.delenv("RINGCONV_CACHE", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert cache.cache_folder() == tmp_path / "ringconv"
    monkeypatch.setenv("RINGCONV_CACHE", str(tmp_path / "other"))
    assert cache.cache_folder() == tmp_path / "other"
    assert cache.cache_folder(tmp_path) == tmp_path
    assert cache.room_for(1)
    assert not cache.room_for(1 << 60)
