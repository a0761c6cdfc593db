"""Downloads against a server that breaks off, and archives that want out."""

import contextlib
import errno
import gzip
import hashlib
import http.server
import io
import os
import signal
import stat
import subprocess
import sys
import tarfile
import threading
import zipfile
from pathlib import Path

import pytest

from ringconv.data import fetch_data, layouts
from ringconv.data.fetch import Download, extract, fetch

CONTENT = bytes(range(256)) * 20_000


@pytest.fixture
def server(monkeypatch):
    """Serves CONTENT; ``breaks`` holds after how many bytes the next answers break off. Until ``goes_on`` is set,
    they stop half way."""
    monkeypatch.setattr("ringconv.data.fetch._PAUSE", 0.01)

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            state.asked.append(self.headers.get("Range"))
            content = state.content
            start = 0
            if state.ranges and self.headers.get("Range"):
                start = int(self.headers["Range"].removeprefix("bytes=").removesuffix("-"))
            if start >= len(content) and start:
                self.send_error(416)
                return
            if state.missing:
                self.send_error(404)
                return
            self.send_response(206 if start else 200)
            self.send_header("Content-Length", str(len(content) - start))
            self.end_headers()
            end = start + state.breaks.pop(0) if state.breaks else len(content)
            middle = (start + end) // 2
            self.wfile.write(content[start:middle])
            state.goes_on.wait(60)
            with contextlib.suppress(ConnectionError):  # whoever asked may be gone
                self.wfile.write(content[middle:end])

        def log_message(self, *args):
            pass

    class State(http.server.ThreadingHTTPServer):
        content, ranges, missing = CONTENT, True, False

    state = State(("127.0.0.1", 0), Handler)
    state.breaks, state.asked, state.goes_on = [], [], threading.Event()
    state.goes_on.set()
    state.url = f"http://127.0.0.1:{state.server_port}/file.bin"
    thread = threading.Thread(target=state.serve_forever)
    thread.start()
    yield state
    state.shutdown()
    thread.join()
    state.server_close()


def md5(content):
    return hashlib.md5(content).hexdigest()


def test_a_broken_download_goes_on_where_it_stopped(server, tmp_path):
    server.breaks = [100_000, 2_000_000]
    seen = []
    path = fetch(server.url, tmp_path / "new" / "file.bin", md5(CONTENT), lambda *step: seen.append(step))
    assert path.read_bytes() == CONTENT
    assert server.asked == [None, "bytes=100000-", "bytes=2100000-"]
    assert [file.name for file in path.parent.iterdir()] == ["file.bin"]
    assert seen[-1] == ("fetch file.bin", len(CONTENT), len(CONTENT))


def test_what_arrived_is_kept_for_the_next_run(server, tmp_path):
    server.breaks = [100_000]
    with pytest.raises(OSError, match=r"could not be fetched.*100,000 bytes are kept"):
        fetch(server.url, tmp_path / "file.bin", md5(CONTENT), tries=1)
    assert not (tmp_path / "file.bin").exists()
    fetch(server.url, tmp_path / "file.bin", md5(CONTENT))
    assert server.asked == [None, "bytes=100000-"]
    fetch(server.url, tmp_path / "file.bin", md5(CONTENT))
    assert len(server.asked) == 2, "a complete file is not fetched again"


FETCH = """
import sys
from pathlib import Path
from types import ModuleType

data, *what = sys.argv[1:]
for name, folder in {"ringconv": Path(data).parent, "ringconv.data": Path(data)}.items():
    sys.modules[name] = ModuleType(name)  # empty packages: torch, which the real ones import, takes many seconds
    sys.modules[name].__path__ = [str(folder)]
from ringconv.data.fetch import fetch

url, path, md5 = what
fetch(url, Path(path), md5, lambda stage, done, total: print(stage, flush=True))
"""


@pytest.mark.parametrize("first_is_killed", [False, True])
def test_a_second_process_waits_for_the_first(server, tmp_path, first_is_killed):
    server.goes_on.clear()
    package = str(Path(layouts.__file__).parent)
    command = [sys.executable, "-c", FETCH, package, server.url, str(tmp_path / "file.bin"), md5(CONTENT)]
    with contextlib.ExitStack() as stack:

        def start():
            process = stack.enter_context(subprocess.Popen(command, stdout=subprocess.PIPE, text=True))
            stack.callback(process.kill)  # if the test fails
            return process, process.stdout.readline().strip()

        first, stage = start()
        assert stage == "fetch file.bin"
        second, stage = start()
        assert stage == "wait for another process that fetches file.bin"
        if first_is_killed:
            first.kill()
        server.goes_on.set()
        stages = second.communicate(timeout=60)[0].splitlines()
        assert second.returncode == 0
        first.communicate(timeout=60)
        assert first.returncode == (-signal.SIGKILL if first_is_killed else 0)
    assert (tmp_path / "file.bin").read_bytes() == CONTENT
    assert [path.name for path in tmp_path.iterdir()] == ["file.bin"]
    if first_is_killed:
        assert server.asked[0] is None
        assert server.asked[1].startswith("bytes="), "it goes on where the first one stopped"
        assert "fetch file.bin" in stages
    else:
        assert server.asked == [None], "it takes what the first one fetched"
        assert "fetch file.bin" not in stages


def test_a_lock_that_was_left_behind_does_no_harm(server, tmp_path):
    (tmp_path / "file.bin.part.lock").touch()
    fetch(server.url, tmp_path / "file.bin", md5(CONTENT))
    assert [path.name for path in tmp_path.iterdir()] == ["file.bin"]


@pytest.mark.parametrize("error", [errno.ENOLCK, errno.ENOSYS])
def test_without_locks_files_are_fetched_all_the_same(server, tmp_path, monkeypatch, error):
    def fail(*_):
        raise OSError(error, "no locks here")

    monkeypatch.setattr("fcntl.flock", fail)
    assert fetch(server.url, tmp_path / "one" / "file.bin", md5(CONTENT)).read_bytes() == CONTENT
    assert [path.name for path in (tmp_path / "one").iterdir()] == ["file.bin"]
    monkeypatch.setitem(sys.modules, "fcntl", None)
    assert fetch(server.url, tmp_path / "two" / "file.bin", md5(CONTENT)).read_bytes() == CONTENT


def test_a_complete_part_needs_its_name_only(server, tmp_path):
    (tmp_path / "file.bin.part").write_bytes(CONTENT)
    assert fetch(server.url, tmp_path / "file.bin", md5(CONTENT)).read_bytes() == CONTENT


def test_a_host_without_ranges_starts_over(server, tmp_path):
    server.ranges = False
    server.breaks = [100_000]
    assert fetch(server.url, tmp_path / "file.bin", md5(CONTENT)).read_bytes() == CONTENT
    assert server.asked == [None, "bytes=100000-"]


def test_a_wrong_checksum_leaves_nothing(server, tmp_path):
    with pytest.raises(OSError, match=f"has the checksum {md5(CONTENT)}, expected {md5(b'')}"):
        fetch(server.url, tmp_path / "file.bin", md5(b""))
    assert list(tmp_path.iterdir()) == []


def test_what_is_not_there_is_asked_for_once(server, tmp_path):
    server.missing = True
    with pytest.raises(OSError, match="404"):
        fetch(server.url, tmp_path / "file.bin", md5(CONTENT))
    assert len(server.asked) == 1


def test_only_http_is_fetched(tmp_path):
    with pytest.raises(ValueError, match="only http and https"):
        fetch("file:///etc/hostname", tmp_path / "file", md5(b""))


def test_a_set_is_fetched_and_unpacked(server, tmp_path, monkeypatch):
    server.content = gzip.compress(b"rows")
    layout = layouts.Layout("A set", None, "*", "tree", "source", (Download(server.url, md5(server.content), "in"),))
    monkeypatch.setitem(layouts.LAYOUTS, "new", layout)
    monkeypatch.setattr(Download, "name", "rows.h5.gz")
    assert fetch_data("new", tmp_path) == tmp_path
    assert (tmp_path / "in" / "rows.h5").read_bytes() == b"rows"
    with pytest.raises(ValueError, match="cannot be fetched by a program; get it from https"):
        fetch_data("mtarsi", tmp_path)
    with pytest.raises(ValueError, match="must be one of cifar10"):
        fetch_data("nothing", tmp_path)


@pytest.mark.parametrize("name", ["../out.txt", "/tmp/out.txt", "a/../../out.txt"])
def test_an_archive_cannot_write_outside(name, tmp_path):
    folder = tmp_path / "deep" / "folder"
    with zipfile.ZipFile(tmp_path / "a.zip", "w") as archive:
        archive.writestr("fine.txt", "fine")
        archive.writestr(name, "out")
    with pytest.raises(ValueError, match="outside of the folder"):
        extract(tmp_path / "a.zip", folder)
    with tarfile.open(tmp_path / "a.tar.gz", "w:gz") as archive:
        entry = tarfile.TarInfo(name)
        entry.size = 3
        archive.addfile(entry, io.BytesIO(b"out"))
    if name.startswith("/"):
        extract(tmp_path / "a.tar.gz", folder)  # tar's own rule: the leading slash is dropped
        assert (folder / "tmp" / "out.txt").exists()
    else:
        with pytest.raises(ValueError, match="not safe to unpack"):
            extract(tmp_path / "a.tar.gz", folder)
    assert not (tmp_path / "out.txt").exists()
    assert not (tmp_path / "deep" / "out.txt").exists()


def test_a_link_out_of_the_folder_is_refused(tmp_path):
    with tarfile.open(tmp_path / "a.tar", "w") as archive:
        link = tarfile.TarInfo("link")
        link.type, link.linkname = tarfile.SYMTYPE, "/etc"
        archive.addfile(link)
    with pytest.raises(ValueError, match="not safe to unpack"):
        extract(tmp_path / "a.tar", tmp_path / "folder")


def test_good_archives(tmp_path):
    with zipfile.ZipFile(tmp_path / "a.zip", "w") as archive:
        archive.writestr("folder with spaces/ä.txt", "1")
    extract(tmp_path / "a.zip", tmp_path / "zip")
    assert (tmp_path / "zip" / "folder with spaces" / "ä.txt").read_text() == "1"
    with tarfile.open(tmp_path / "a.tar.gz", "w:gz") as archive:
        archive.add(tmp_path / "zip", "top")
    extract(tmp_path / "a.tar.gz", tmp_path / "tar")
    assert (tmp_path / "tar" / "top" / "folder with spaces" / "ä.txt").read_text() == "1"
    (tmp_path / "rows.h5.gz").write_bytes(gzip.compress(b"rows"))
    before = os.umask(0o027)
    try:
        extract(tmp_path / "rows.h5.gz", tmp_path / "single")
    finally:
        os.umask(before)
    assert (tmp_path / "single" / "rows.h5").read_bytes() == b"rows"
    assert stat.S_IMODE((tmp_path / "single" / "rows.h5").stat().st_mode) == 0o640, "as of any new file"
    (tmp_path / "a.txt").write_text("x")
    with pytest.raises(ValueError, match="neither a zip nor a tar nor a gz"):
        extract(tmp_path / "a.txt", tmp_path / "zip")
    (tmp_path / "rows.h5.gz").write_bytes(gzip.compress(b"rows")[:-4])
    with pytest.raises(EOFError):
        extract(tmp_path / "rows.h5.gz", tmp_path / "gz")
    assert list((tmp_path / "gz").iterdir()) == []
