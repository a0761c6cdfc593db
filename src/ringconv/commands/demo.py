"""``ringconv demo``."""

from __future__ import annotations

import contextlib
import time
from pathlib import Path

from tyro.conf import Positional

from ringconv.commands._terminal import UsageError, terminal, usage_errors
from ringconv.demo.app import HOST, serving
from ringconv.demo.networks import checkpoint_network
from ringconv.training.stopping import stop_on_signals


def demo(
    checkpoints: Positional[tuple[Path, ...]] = (),
    /,
    host: str = HOST,
    port: int | None = None,
    open_browser: bool = False,
) -> None:
    """Show a page where images turn and networks answer, on this machine only.

    Without a checkpoint it shows small networks that come with the package: a plain and a ring classifier of textures,
    and a plain and a ring U-Net that segment coins and cells. Turn an image by hand or let it turn, mirror it, take
    your own; see class probabilities, feature maps and the drift of the embedding against the angle. A second tab
    builds a kernel from its rings, a third shows segmentations that turn with their image.

    Nothing is sent anywhere: the page asks no other host, and images that are uploaded are not kept. Ctrl-C ends it.

    Your own networks beside each other: ringconv demo plain.safetensors ring.safetensors

    Args:
        checkpoints: Files written by training or by ringconv.models.save_model; classifiers and segmentations.
        host: Address to listen at. Others can reach the page at 0.0.0.0; by default nobody else can.
        port: Default the first free one from 7860 on.
        open_browser: Open the page in a browser.
    """
    console = terminal()
    with usage_errors():
        networks = [checkpoint_network(path) for path in checkpoints]
    if port is not None and not 0 < port < 65536:
        raise UsageError(f"port must be from 1 to 65535, got {port}")
    console.print("Starting ...")
    with stop_on_signals() as stop, contextlib.ExitStack() as served:
        with usage_errors():
            address = served.enter_context(serving(networks, host, port, open_browser))
        console.print(f"The page: {address}  (Ctrl-C ends it)", soft_wrap=True)
        while not stop.asked:
            time.sleep(0.1)
    console.print("Ended.")
