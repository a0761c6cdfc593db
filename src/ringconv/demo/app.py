"""The page as a whole, and the server that shows it: here only, to nobody else, and asking nobody else."""

from __future__ import annotations

import contextlib
import errno
import os
import socket
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from ringconv._extras import needs
from ringconv.demo.classify import classify_tab
from ringconv.demo.examples import scene_examples, texture_examples
from ringconv.demo.kernel import kernel_tab
from ringconv.demo.networks import Network, bundled_networks, with_names_of_their_own
from ringconv.demo.pictures import LARGEST_FILE
from ringconv.demo.segment import segment_tab
from ringconv.models.registry import Task

HOST = "127.0.0.1"
_STYLE = Path(__file__).with_name("style.css")
_FONT = ("system-ui", "-apple-system", "Segoe UI", "sans-serif")
_MONO = ("ui-monospace", "Consolas", "monospace")
_COLUMNS = (2, 4)
"""Networks beside each other, at least and at most."""

_INTRODUCTION = """# What turns with the image?
Turn an image and watch. A ring network answers the same at quarter turns and mirrored, and nearly the same in between;
a plain network only where training taught it to.
"""


def build_page(gr: Any, networks: Sequence[Network]) -> Any:
    """The three tabs. ``networks`` come first; those of the package are always there beside them."""
    bundled = bundled_networks()
    with gr.Blocks(title="ringconv") as blocks:
        gr.Markdown(_INTRODUCTION)
        with gr.Tab("Classify"):
            named, first = _choice("classification", networks, bundled)
            drawn = [classify_tab(gr, named, first, texture_examples())]
        with gr.Tab("Build a kernel"):
            drawn.append(kernel_tab(gr))
        with gr.Tab("Segment"):
            named, first = _choice("segmentation", networks, bundled)
            drawn.append(segment_tab(gr, named, first, scene_examples()))
        for draw in drawn:
            blocks.load(**draw)
    return blocks


def _choice(task: Task, given: Sequence[Network], bundled: Sequence[Network]) -> tuple[dict[str, Network], list[str]]:
    """All networks of a task by name, and the names of those to begin with: what was given, or plain and ring."""
    own = [network for network in given if network.task == task]
    named = with_names_of_their_own([*own, *(network for network in bundled if network.task == task)])
    names = list(named)
    least, most = _COLUMNS
    missing = max(0, least - len(own))
    return named, [*names[: min(len(own), most)], *names[len(names) - missing :]]


@contextlib.contextmanager
def serving(
    networks: Sequence[Network] = (), host: str = HOST, port: int | None = None, open_browser: bool = False
) -> Iterator[str]:
    """Serve the page in the background; gives its address.

    What is uploaded goes to a temporary folder, which is gone afterwards.

    Args:
        port: default the first free one from 7860; OSError if it is taken.

    Raises:
        OSError: nobody can listen there.
    """
    _check_address(host, port)
    with tempfile.TemporaryDirectory(prefix="ringconv-demo-") as folder:
        _keep_to_this_machine(folder)
        gr = needs("gradio", "demo")
        blocks = build_page(gr, networks)
        _, address, _ = blocks.launch(
            server_name=host,
            server_port=port,
            inbrowser=open_browser,
            prevent_thread_lock=True,
            quiet=True,
            share=False,
            ssr_mode=False,
            max_file_size=LARGEST_FILE,
            theme=gr.themes.Default(font=_FONT, font_mono=_MONO, primary_hue="cyan"),
            css=_STYLE.read_text(encoding="utf-8"),
            footer_links=[],
        )
        try:
            yield address
        finally:
            blocks.close(verbose=False)


def _check_address(host: str, port: int | None) -> None:
    """Before anything is loaded: whether the address can be listened at."""
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(host, port or 0, type=socket.SOCK_STREAM)[0]
        with socket.socket(family, kind, protocol) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(address)
    except OSError as error:
        if error.errno == errno.EADDRINUSE:
            raise OSError(f"port {port} is taken; give another one, or none for the first that is free") from error
        raise OSError(f"cannot listen at {host}, port {port or 'any'}: {error}") from error


def _keep_to_this_machine(folder: str) -> None:
    """Before gradio is imported: no usage statistics, no look at the hub, all files in ``folder``."""
    os.environ.update(GRADIO_ANALYTICS_ENABLED="False", HF_HUB_OFFLINE="1", GRADIO_TEMP_DIR=folder)
    # gradio asks matplotlib for its backend, which would otherwise go and list all fonts, and write that to the home.
    os.environ.update(MPLBACKEND="agg", MPLCONFIGDIR=folder)
    # gradio looks at its own page once; that must not go through a proxy.
    for name in ("NO_PROXY", "no_proxy"):
        others = [host for host in os.environ.get(name, "").split(",") if host]
        os.environ[name] = ",".join(dict.fromkeys([*others, "127.0.0.1", "localhost"]))
