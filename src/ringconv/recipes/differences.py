"""Where the paper's text and the commands that its authors released say different things, or only one says anything."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Difference:
    """One such point. Recipes follow ``used``; ``other`` are the options of ``ringconv train`` that do the other."""

    name: str
    text: str
    released: str
    used: str
    other: str = ""

    def __str__(self) -> str:
        instead = f" For the other: {self.other}" if self.other else ""
        return f"{self.name}: the text has {self.text}; the release has {self.released}. Here: {self.used}.{instead}"


AUGMENTATION = Difference(
    "augmentation",
    "none that is geometric",
    "RandomResizedCrop(.5-1), ColorJitter(.4, .4, .4, .1) p=.8, grayscale p=.2, blur p=.2 and translation .2 (NCT-CRC"
    " and PCam .1)",
    "none, as the text",
    "--augmentation release",
)
STEM_POOLING = Difference(
    "stem pooling",
    "no pooling after the stem, but for NCT-CRC and PCam",
    "AvgPool2d(2) after the 5x5 ring stem",
    "as the text",
    "--model-options stem_pool=true",
)
UNEQUAL_STEMS = Difference(
    "first maps",
    "the plain network's stem unchanged on NCT-CRC, PCam and ImageNet (first stage at a quarter of the image's size)",
    "a ring stem of stride 1 with AvgPool2d(2) (first stage at half of it)",
    "each as it is, so memory and speed compare unequal maps",
    "--model-options stem_stride=2 for the ring network",
)
RING_SAMPLING = Difference(
    "rings",
    "Gaussians of the radius in pixels",
    "Gaussians of the number of the ring, over hard bins",
    "as the text",
    "--model-options sampling=binned",
)
WEIGHT_DECAY = Difference("weight decay", "none mentioned", "1e-3 (ImageNet: 1e-4), none for sigma", "as the release")
LAST_EPOCH = Difference("tested weights", "no mention", "those of the last epoch", "as the release", "--keep best")
ANGLES = Difference(
    "angles",
    "36, every 10 degrees (volumes: every 30 about each of three axes)",
    "37, with 0 degrees twice (volumes: about x only)",
    "as the text",
)
VOLUME_STEM = Difference(
    "ring stem of volumes",
    "an R3D, whose stem is (3, 7, 7)",
    "(3, 7, 7) asked for, of which 3x3x3 is used",
    "3x3x3, as the printed number of parameters",
)

EVERYWHERE = (WEIGHT_DECAY, LAST_EPOCH, ANGLES)
"""Differences that concern every recipe that is trained."""
ALL = (AUGMENTATION, STEM_POOLING, UNEQUAL_STEMS, RING_SAMPLING, VOLUME_STEM, *EVERYWHERE)
