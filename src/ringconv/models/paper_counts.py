"""Parameter counts that the paper prints, and what our networks of those options have, exactly.

The paper mixes rounding and truncation, so a printed count agrees if either gives it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from ringconv.models.registry import list_models, model_entry


@dataclass(frozen=True)
class PaperCount:
    """A network of the paper."""

    name: str
    parameters: int
    """Exact, of our network."""
    printed: str
    """In millions; empty if the paper does not say."""
    options: dict[str, Any] = field(default_factory=dict)
    remark: str = ""

    @property
    def agrees(self) -> bool | None:
        """None if there is nothing to compare with."""
        return agrees(self.parameters, self.printed) if self.printed else None


def agrees(parameters: int, printed: str) -> bool:
    """Whether ``printed`` ("3.9M") is the exact count rounded or cut to its digits."""
    digits = printed.removesuffix("M")
    unit = 10 ** (6 - len(digits.partition(".")[2]))
    value = round(float(digits) * 1_000_000 / unit)
    return value in (parameters // unit, round(parameters / unit))


def paper_counts() -> list[PaperCount]:
    """Every registered model that the paper counts, and the further options it tries."""
    rows = []
    for name in list_models():
        entry = model_entry(name)
        exact = entry.paper_parameters or entry.parameters
        if entry.paper and exact:
            rows.append(PaperCount(name, exact, entry.paper, dict(entry.paper_options)))
    return rows + list(FURTHER_OPTIONS)


FURTHER_OPTIONS = (
    # Kernel sizes and rings
    PaperCount("gmr_resnet18", 2_628_589, "2.6M", {"kernel_size": 3}),
    PaperCount("gmr_resnet18", 3_849_213, "3.8M", {"kernel_size": 5}),
    PaperCount("gmr_resnet18", 5_069_837, "5.1M", {"kernel_size": 7}),
    PaperCount("gmr_resnet18", 6_290_461, "6.3M", {"kernel_size": 9}),
    PaperCount("gmr_resnet18", 6_364_197, "6.4M", {"kernel_size": (11, 11, 9, 9)}),
    PaperCount("gmr_resnet18", 4_242_453, "4.2M", {"kernel_size": (11, 9, 7, 5)}),
    PaperCount("gmr_resnet18", 3_922_949, "3.8M", {"kernel_size": (7, 7, 5, 5)}),
    PaperCount("gmr_resnet18", 5_143_573, "5.1M", {"rings": (5, 5, 4, 4)}),
    PaperCount("gmr_resnet18", 4_070_421, "4.1M", {"rings": (6, 6, 3, 3)}),
    PaperCount("gmr_resnet18", 6_437_933, "5.4M", {"rings": (7, 7, 5, 5)}, "a misprint of 6.4M?"),
    # How the rings are made
    PaperCount("gmr_resnet18", 5_217_502, "5.2M", {"circular": False}),
    PaperCount("gmr_resnet18", 5_217_418, "5.2M", {"circular": False, "sigma": None}),
    PaperCount("gmr_resnet18", 3_996_618, "3.9M", {"sigma": None}),
    PaperCount("gmr_resnet18", 3_996_618, "", {"sigma": "fixed"}),
    PaperCount("gmr_resnet18", 10_248_074, "10.2M", {"circular": False, "sigma": "channel"}),
    PaperCount("gmr_resnet18", 7_806_474, "8.0M", {"sigma": "channel"}),
    # Base widths, for which the paper shows a plot
    PaperCount("gmr_resnet18", 64_197, "", {"width": 8}),
    PaperCount("gmr_resnet18", 252_733, "", {"width": 16}),
    PaperCount("gmr_resnet18", 1_003_053, "", {"width": 32}),
    PaperCount("gmr_resnet18", 8_980_973, "", {"width": 96}),
    # ImageNet
    PaperCount("gmr_resnet50", 18_159_081, "18.1M", {"num_classes": 1000}),
    PaperCount("resnet50", 25_557_032, "25.5M", {"stem_kernel_size": 7, "num_classes": 1000}),
    # Other stems and up-samplings of the plain networks
    PaperCount("resnet18", 11_173_962, "11.2M", {"stem_kernel_size": 3}),
    PaperCount("unet", 487_809, "0.48M", {"up": "deconv"}),
    PaperCount("wide_resnet16_8", 10_961_370, "", {"stem_kernel_size": 3}, "the stem of Zagoruyko & Komodakis"),
)
