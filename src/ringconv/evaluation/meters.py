"""Adding up what a network said, view by view."""

from __future__ import annotations

import importlib.util
from collections import defaultdict
from typing import Protocol

import torch
from torch import Tensor

from ringconv._extras import needs
from ringconv._torchvision import import_torchvision
from ringconv.evaluation.overlap import foreground, overlap
from ringconv.evaluation.results import Drift, Scores
from ringconv.evaluation.views import UPRIGHT, Plan


class Meter(Protocol):
    def add(self, view: str, output: Tensor, targets: Tensor, valid: Tensor | None = None) -> None:
        """A batch in one view; the upright view of a batch comes before its others.

        Args:
            valid: (*S) bool, the pixels of a map that are compared; default all.
        """
        ...

    def scores(self, plan: Plan) -> dict[str, Scores]: ...

    def drift(self) -> Drift | None: ...


class Classified:
    """Accuracy and logit drift of (B, K) logits, or (B, 1) of the second of two classes.

    Args:
        classes: of the images; K may be more, since some that a network knows may not be there.
    """

    def __init__(self, classes: int) -> None:
        self._classes = classes
        # Sums stay on the device: reading one would wait for the network.
        self._sums: dict[str, Tensor] = {}
        self._count = 0
        self._logits = self._said = self._right = torch.empty(0)

    def add(self, view: str, output: Tensor, targets: Tensor, valid: Tensor | None = None) -> None:
        if output.ndim != 2:
            raise ValueError(f"a classifier must return (B, classes), got {tuple(output.shape)}")
        if output.shape[1] < self._classes and (output.shape[1], self._classes) != (1, 2):
            raise ValueError(
                f"the network must return {self._classes} logits (or 1 for two classes), got {output.shape[1]}"
            )
        logits = output.double()
        said = (logits[:, 0] > 0).long() if logits.shape[1] == 1 else logits.argmax(1)
        right = said == targets
        if view == UPRIGHT:
            self._logits, self._said, self._right = logits, said, right
            self._count += len(targets)
        moved = (logits - self._logits).norm(dim=1) / self._logits.norm(dim=1).clamp(min=1e-300)
        cosine = torch.nn.functional.cosine_similarity(logits, self._logits, dim=1, eps=1e-300)
        changed = (said != self._said) & self._right
        sums = torch.stack([right.sum(), moved.sum(), cosine.sum(), changed.sum()])
        self._sums[view] = self._sums[view] + sums if view in self._sums else sums

    def scores(self, plan: Plan) -> dict[str, Scores]:
        percent = {view: 100 * float(sums[0]) / self._count for view, sums in self._sums.items()}
        return {"accuracy": _scores(percent, plan)}

    def drift(self) -> Drift | None:
        sums = {view: sums.tolist() for view, sums in self._sums.items()}
        right = sums.pop(UPRIGHT)[0]
        if not sums:
            return None
        return Drift(
            norm={view: moved / self._count for view, (_, moved, _, _) in sums.items()},
            cosine={view: cosine / self._count for view, (_, _, cosine, _) in sums.items()},
            # Where nothing was right there is nothing to change.
            changed={view: 100 * changed / right for view, (*_, changed) in sums.items()} if right else {},
        )


class Segmented:
    """AUC, IoU and Dice of maps (B, K, *S) of logits, or (B, 1, *S) of the foreground, averaged per image.

    With more than two classes, each one but the background is held against the rest, and averaged over those that are
    in the image or in the answer. A class that is in neither counts as found (IoU and Dice 1) if it is the only one;
    the AUC of an image without foreground, or with nothing else, does not exist and is left out.
    """

    def __init__(self, classes: int) -> None:
        if classes < 2:
            raise ValueError(f"a segmentation needs at least 2 classes, got {classes}")
        self._classes = classes
        self._values: dict[str, dict[str, list[Tensor]]] = defaultdict(lambda: defaultdict(list))
        if importlib.util.find_spec("torchvision") is not None:
            import_torchvision()  # torchmetrics imports it as it is, which fails beside some builds of torch
        self._auroc = needs("torchmetrics.functional.classification", "evaluate").binary_auroc

    def add(self, view: str, output: Tensor, targets: Tensor, valid: Tensor | None = None) -> None:
        if output.shape[2:] != targets.shape[1:]:
            raise ValueError(f"a map must have its mask's size, got {tuple(output.shape)} for {tuple(targets.shape)}")
        if int(targets.max()) >= self._classes:
            raise ValueError(f"masks must hold class numbers below {self._classes}, got {int(targets.max())}")
        odds, said = self._foreground(output)
        wanted = foreground(targets, self._classes)
        if valid is not None and not valid.all():
            odds, said, wanted = (values[..., valid] for values in (odds, said, wanted))
        odds, said, wanted = (values.flatten(2) for values in (odds, said, wanted))
        for metric, values in zip(("iou", "dice"), overlap(said, wanted), strict=True):
            self._values[metric][view].append(values)
        self._values["auc"][view].append(self._auc(odds, wanted))

    def _foreground(self, output: Tensor) -> tuple[Tensor, Tensor]:
        """Log-odds and answer of every class but the background: (B, classes - 1, *S). Probabilities would all be 1 of
        logits above 17."""
        if output.shape[1] == 1 and self._classes == 2:
            return output.double(), output > 0
        if output.shape[1] != self._classes:
            raise ValueError(
                f"the network must return {self._classes} channels (or 1 for two classes), got {output.shape[1]}"
            )
        logits = output.double()
        others = [torch.cat([logits[:, :k], logits[:, k + 1 :]], 1).logsumexp(1) for k in range(1, self._classes)]
        return logits[:, 1:] - torch.stack(others, 1), foreground(output.argmax(1), self._classes)

    def _auc(self, odds: Tensor, wanted: Tensor) -> Tensor:
        """(B,), NaN where it does not exist."""
        per_image = []
        for image, mask in zip(odds, wanted, strict=True):
            exists = mask.any(1) & ~mask.all(1)
            found = [
                self._auroc(_ranks(scores), truth.long(), validate_args=False).double()
                for scores, truth in zip(image[exists], mask[exists], strict=True)
            ]
            per_image.append(torch.stack(found).mean() if found else odds.new_tensor(torch.nan))
        return torch.stack(per_image)

    def scores(self, plan: Plan) -> dict[str, Scores]:
        return {
            metric: _scores(
                {view: 100 * float(torch.cat(values).nanmean()) for view, values in self._values[metric].items()}, plan
            )
            for metric in ("auc", "iou", "dice")
        }

    def drift(self) -> Drift | None:
        return None


def _scores(percent: dict[str, float], plan: Plan) -> Scores:
    """The turns by 0 degrees are the upright view."""
    upright = percent[UPRIGHT]
    per_turn = {name: upright if turn.angle == 0 else percent[name] for name, turn in plan.turns.items()}
    return Scores(upright, per_turn, {name: percent[name] for name in plan.flips})


def _ranks(scores: Tensor) -> Tensor:
    """In the same order, from 0 to 1: what is outside of it torchmetrics takes for logits, and rounds."""
    _, place = torch.unique(scores, return_inverse=True)
    ranks: Tensor = place.double() / place.max().clamp(min=1)
    return ranks
