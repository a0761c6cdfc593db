"""What the competing convolutions share: torch's arguments, and a dense kernel that is computed from fewer weights."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from ringconv._computed_weights import of_weight
from ringconv.ops import ConvOptions, PaddingMode, dense_conv

_TORCH_CONV = {2: nn.Conv2d, 3: nn.Conv3d}


class KernelConv(nn.Module):
    """A convolution whose dense kernel is a function of ``weight``; the arguments are those of torch's layer.

    A map holds its channels as fields of ``orders[1]`` components each, (B, out_channels * orders[1], *S), components
    of one field side by side; ``orders`` is that of the input and of the output. A subclass gives the weight's shape
    and the kernel, and its constants in ``new_tables``.
    """

    dimensions = 2

    weight: nn.Parameter
    bias: nn.Parameter | None

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: int | Sequence[int],
        stride: int | Sequence[int] = 1,
        padding: int | Sequence[int] | str = 0,
        dilation: int | Sequence[int] = 1,
        groups: int = 1,
        bias: bool = True,
        padding_mode: PaddingMode = "zeros",
        device: torch.device | str | int | None = None,
        dtype: torch.dtype | None = None,
        *,
        orders: tuple[int, int] = (1, 1),
    ) -> None:
        super().__init__()
        # torch's own layer checks the arguments and spells them out; the meta device makes it cost nothing.
        like: Any = _TORCH_CONV[self.dimensions](
            in_channels, out_channels, kernel_size, stride, padding, dilation, groups,  # type: ignore[arg-type]
            padding_mode=padding_mode, device="meta",
        )  # fmt: skip
        flat = like._reversed_padding_repeated_twice
        per_side = tuple((flat[i], flat[i + 1]) for i in reversed(range(0, 2 * self.dimensions, 2)))
        self.in_channels = in_channels
        self.out_channels = out_channels
        self.kernel_size: tuple[int, ...] = like.kernel_size
        self.stride: tuple[int, ...] = like.stride
        self.padding: tuple[int, ...] | str = like.padding
        self.dilation: tuple[int, ...] = like.dilation
        self.groups = groups
        self.padding_mode = padding_mode
        self.orders = orders
        self._options = ConvOptions(self.stride, per_side, self.dilation, groups, padding_mode)
        self.weight = nn.Parameter(torch.empty(self.weight_shape(), device=device, dtype=dtype))
        self.register_parameter(
            "bias", nn.Parameter(torch.empty(out_channels, device=device, dtype=dtype)) if bias else None
        )
        self._build_tables()
        self.reset_parameters()

    @property
    def pair_shape(self) -> tuple[int, int]:
        """(out_channels, in_channels / groups): one filter of fields for each."""
        return self.out_channels, self.in_channels // self.groups

    def weight_shape(self) -> tuple[int, ...]:
        raise NotImplementedError

    def kernel(self) -> Tensor:
        """(out_channels * orders[1], in_channels / groups * orders[0], *kernel_size). Differentiable."""
        raise NotImplementedError

    def new_tables(self) -> dict[str, Tensor]:
        """The constants of the kernel, beside the weight, by the names of the attributes that keep them."""
        return {}

    def table(self, name: str) -> Tensor:
        """One of these constants."""
        table: Tensor = getattr(self, name)
        like = of_weight(self)
        # Another one if the weight is another network's, as in torch.func's ensembles, or a copy of DataParallel's.
        is_beside_weight = table.device == like.device and table.dtype in (torch.int64, like.dtype)
        return table if is_beside_weight else self.new_tables()[name]

    def _build_tables(self) -> None:
        """Attributes, and no buffers: who averages the buffers of networks must not average constants."""
        for name, table in self.new_tables().items():
            setattr(self, name, table)

    def reset_parameters(self) -> None:
        """Kaiming's normal weights, for the taps that add up to one output."""
        taps = math.prod(self.kernel_size) * self.pair_shape[1] * self.orders[0]
        nn.init.normal_(self.weight, 0.0, math.sqrt(2.0 / taps))
        if self.bias is not None:
            nn.init.zeros_(self.bias)

    def field_bias(self) -> Tensor | None:
        """(out_channels * orders[1],): all components of a field have the same."""
        return None if self.bias is None else self.bias.repeat_interleave(self.orders[1])

    def forward(self, input: Tensor) -> Tensor:
        """(B, in_channels * orders[0], *S) -> (B, out_channels * orders[1], *S')"""
        return dense_conv(input, self.kernel(), self.field_bias(), self._options)

    def _apply(self, fn: Callable[..., Any], recurse: bool = True) -> KernelConv:
        def on_axes_of_maps(tensor: Tensor) -> Any:
            # A filter may have more axes than torch lays out in channels_last: they are one to it.
            if tensor.dim() <= self.dimensions + 2:
                return fn(tensor)
            return fn(tensor.flatten(2)).view(tensor.shape)

        super()._apply(on_axes_of_maps, recurse)  # type: ignore[no-untyped-call]
        self._build_tables()
        return self

    def _load_from_state_dict(self, *args: Any) -> None:
        # With assign=True the weight may have come from another device or dtype than the tables.
        super()._load_from_state_dict(*args)
        self._build_tables()

    def extra_repr(self) -> str:
        parts = [f"{self.in_channels}, {self.out_channels}, kernel_size={self.kernel_size}"]
        defaults: dict[str, object] = {
            "stride": (1,) * self.dimensions,
            "padding": (0,) * self.dimensions,
            "dilation": (1,) * self.dimensions,
            "groups": 1,
            "padding_mode": "zeros",
            "orders": (1, 1),
        }
        parts += [f"{name}={getattr(self, name)!r}" for name, value in defaults.items() if getattr(self, name) != value]
        if self.bias is None:
            parts.append("bias=False")
        return ", ".join(parts)


def check_square(kernel_size: Sequence[int], what: str) -> None:
    """A quarter turn must map the kernel's box onto itself."""
    if len(set(kernel_size)) > 1:
        raise ValueError(f"{what} turns its kernel, so the kernel must be square, got {tuple(kernel_size)}")
