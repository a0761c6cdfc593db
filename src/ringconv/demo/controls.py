"""What the tabs with a turning picture share: choosing it, turning it by hand or by itself, mirroring it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from ringconv.demo.drawing import note
from ringconv.demo.pictures import Picture, PictureError, read_picture

_PERIOD = 0.2
"""Seconds between two frames while the picture turns by itself."""
_TURN = 5
"""Degrees from one of these frames to the next."""

Draw = dict[str, Any]
"""The function that draws a frame, its inputs and its outputs, as event listeners of gradio take them."""


class Example(NamedTuple):
    name: str
    picture: Picture


class Controls:
    """The left column of a tab."""

    def __init__(self, gr: Any, examples: Sequence[Example]) -> None:
        self._gr = gr
        self._examples = examples
        self.picture = gr.State(examples[0].picture)
        self.shown = gr.HTML(elem_classes=["rc-html", "rc-shown"])
        self.angle = gr.Slider(0, 359, value=0, step=1, label="Turn by (degrees)", elem_classes="rc-angle")
        with gr.Row():
            self._play = gr.Button("Play", min_width=80, elem_classes="rc-play")
            self.mirrored = gr.Checkbox(label="Mirror", min_width=80, elem_classes="rc-mirror")
        self._gallery = gr.Gallery(
            [(example.picture.pixels, example.name) for example in examples],
            label="Examples",
            columns=4,
            allow_preview=False,
            interactive=False,
            buttons=[],
            elem_classes="rc-examples",
        )
        self._file = gr.File(label="Your image", file_types=["image"], height=120, elem_classes="rc-upload")
        self._message = gr.HTML(elem_classes=["rc-html", "rc-message"])
        self._timer = gr.Timer(_PERIOD, active=False)
        self._playing = gr.State(False)

    def connect(self, frame: Callable[..., list[str]], inputs: Sequence[Any], outputs: Sequence[Any]) -> Draw:
        """Draw a frame whenever something in this column changes.

        Args:
            frame: (picture, angle, mirrored, *inputs) -> HTML of the turned picture and of all ``outputs``.
        """
        gr = self._gr
        draw: Draw = {
            "fn": frame,
            "inputs": [self.picture, self.angle, self.mirrored, *inputs],
            "outputs": [self.shown, *outputs],
            **quiet(),
        }

        def tick(picture: Picture, angle: float, *others: Any) -> list[Any]:
            angle = (angle + _TURN) % 360
            return [angle, *frame(picture, angle, *others)]

        def play(playing: bool) -> tuple[bool, Any, str]:
            return not playing, gr.Timer(active=not playing), "Play" if playing else "Stop"

        def choose(event: Any) -> tuple[Picture, str]:
            return self._examples[event.index].picture, ""

        # What gradio passes is told by the annotation, which cannot name an optional package in the signature.
        choose.__annotations__["event"] = gr.SelectData
        self.angle.input(**draw)
        self.mirrored.input(**draw)
        self._timer.tick(tick, draw["inputs"], [self.angle, *draw["outputs"]], **quiet())
        self._play.click(play, self._playing, [self._playing, self._timer, self._play], **quiet())
        self._gallery.select(choose, None, [self.picture, self._message], **quiet()).then(**draw)
        self._file.upload(self._read, self._file, [self.picture, self._message, self._file], **quiet()).then(**draw)
        return draw

    def _read(self, path: str | None) -> tuple[Any, str, None]:
        """An upload; what cannot be shown leaves the picture as it is and says why."""
        if path is None:
            return self._gr.skip(), "", None
        try:
            return read_picture(Path(path)), "", None
        except PictureError as error:
            return self._gr.skip(), note(str(error), "refused"), None
        finally:
            Path(path).unlink(missing_ok=True)  # nothing that was sent is kept


def quiet() -> dict[str, Any]:
    """Of events that come many times a second: no spinner, the newest wins, and no public endpoint."""
    return {"show_progress": "hidden", "trigger_mode": "always_last", "api_visibility": "private"}
