"""How equivariant is it: the measure itself is measured, against exact answers where there are any."""

import math
import re
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from ringconv import GMRConv1d, GMRConv2d, GMRConv3d
from ringconv.equivariance import (
    EquivarianceResult,
    Measurement,
    assert_equivariant,
    band_limited_noise,
    equivariance_error,
    kernel_equivariance_error,
    rotate,
    subregion_error,
    symmetries,
)
from ringconv.report.equivariance_table import COMMAND, drawn_kernels, equivariance_table

SYMMETRIC_3X3 = torch.tensor([[1.0, 2.0, 1.0], [2.0, 5.0, 2.0], [1.0, 2.0, 1.0]], dtype=torch.float64)


def plane_waves(size: tuple[int, ...], cutoff: float, angle: float = 0.0, plane: tuple[int, int] = (0, 1)) -> Tensor:
    """Isotropic noise (1, 1, *size) as a sum of waves, evaluated on the grid turned by ``angle``: always exact."""
    generator = torch.Generator().manual_seed(5)
    direction = torch.randn(300, len(size), generator=generator, dtype=torch.float64)
    magnitude = cutoff * torch.rand(300, 1, generator=generator, dtype=torch.float64) ** (1 / len(size))
    frequency = magnitude * direction / direction.norm(dim=1, keepdim=True)
    phase = 2 * math.pi * torch.rand(300, generator=generator, dtype=torch.float64)
    axes = [torch.arange(side, dtype=torch.float64) - (side - 1) / 2 for side in size]
    position = list(torch.meshgrid(*axes, indexing="ij"))
    a, (first, second) = math.radians(angle), plane
    y, x = position[first], position[second]
    position[first], position[second] = math.cos(a) * y + math.sin(a) * x, math.cos(a) * x - math.sin(a) * y
    return torch.cos(2 * math.pi * torch.stack(position, -1) @ frequency.T + phase).sum(-1)[None, None]


def convolution(kernel: Tensor) -> nn.Conv2d:
    layer = nn.Conv2d(1, 1, kernel.shape[-1], padding=kernel.shape[-1] // 2, bias=False, dtype=torch.float64)
    layer.weight.data.copy_(kernel)
    return layer


def central_disc(side: int, border: float) -> Tensor:
    axis = torch.arange(side, dtype=torch.float64) - (side - 1) / 2
    return (axis[:, None] ** 2 + axis**2).sqrt() <= side / 2 - border


# -- symmetries and rotation


@pytest.mark.parametrize(("dimensions", "count"), [(1, 2), (2, 8), (3, 48)])
def test_symmetries_are_a_group_of_distinct_named_maps(dimensions: int, count: int) -> None:
    x = torch.arange(3.0**dimensions).reshape((3,) * dimensions)
    group = symmetries(dimensions)
    images = {tuple(s(x).flatten().tolist()) for s in group}
    assert len(group) == len(images) == len({s.name for s in group}) == count
    assert group[0].name == "identity"
    assert torch.equal(group[0](x), x)
    assert {tuple(a(b(x)).flatten().tolist()) for a in group[:8] for b in group} == images
    assert sum(s.is_rotation for s in group) == count // 2


def test_symmetries_carry_the_names_of_torch() -> None:
    x = torch.randn(2, 3, 4, 5)
    named = {s.name: s(x) for s in symmetries(2)}
    for quarters in (1, 2, 3):
        assert torch.equal(named[f"rotation by {90 * quarters} degrees"], x.rot90(quarters, (-2, -1)))
    assert torch.equal(named["vertical flip"], x.flip(-2))
    assert torch.equal(named["horizontal flip"], x.flip(-1))
    assert torch.equal(named["transposition"], x.mT)


@pytest.mark.parametrize("angle", [-90, 0, 90, 180, 270, 450])
def test_quarter_turns_are_exact_for_unequal_sides(angle: int) -> None:
    x = torch.randn(2, 4, 7)
    assert torch.equal(rotate(x, angle), x.rot90(angle // 90, (-2, -1)))


@pytest.mark.parametrize("angle", [1, 20, 45, 100, 215, -30])
@pytest.mark.parametrize("side", [64, 65])
def test_rotation_agrees_with_waves_on_the_turned_grid(angle: float, side: int) -> None:
    x, truth = (plane_waves((side, side), 0.3, a) for a in (0, angle))
    error = (rotate(x, angle) - truth)[..., central_disc(side, 16)].norm() / truth[..., central_disc(side, 16)].norm()
    assert error < 3e-5


def test_rotation_in_a_volume_turns_slices_about_the_axis() -> None:
    x, truth = (plane_waves((3, 64, 64), 0.3, a, plane=(1, 2)) for a in (0, 35))
    disc = central_disc(64, 16)
    assert (rotate(x, 35) - truth)[..., disc].norm() < 3e-5 * truth[..., disc].norm()
    moved = rotate(x.movedim(2, 4), 35, (2, 3)).movedim(4, 2)
    torch.testing.assert_close(moved, rotate(x, 35))


def test_rotation_keeps_constants_and_dtype() -> None:
    ones = torch.ones(1, 12, 12)
    assert rotate(ones, 33).dtype == torch.float32
    torch.testing.assert_close(rotate(ones.double(), 33), ones.double(), rtol=0, atol=1e-12)


def test_rotation_does_not_depend_on_the_batch_it_is_in(monkeypatch: pytest.MonkeyPatch) -> None:
    x = torch.randn(5, 3, 20, 20, dtype=torch.float64)
    whole = rotate(x, 25)
    monkeypatch.setattr("ringconv._rotate._CHUNK", 10_000)
    torch.testing.assert_close(rotate(x, 25), whole, rtol=0, atol=1e-13)


# -- noise


@pytest.mark.parametrize("size", [(4096,), (128, 128), (48, 48, 48)])
def test_noise_is_white_below_the_cutoff_and_zero_above(size: tuple[int, ...]) -> None:
    x = band_limited_noise(size, 0.2, batch=2, channels=3)
    assert x.shape == (2, 3, *size)
    assert abs(float(x.var()) - 1) < 0.1
    # A window, since the crop is not periodic; its own spectrum is two bins wide on each side.
    for axis, side in enumerate(size, start=2):
        x = x * torch.hann_window(side, dtype=x.dtype).reshape(-1, *[1] * (x.ndim - axis - 1))
    spectrum = torch.fft.fftn(x, dim=tuple(range(2, x.ndim))).abs().square().mean((0, 1))
    frequency = torch.meshgrid(*[torch.fft.fftfreq(side, dtype=torch.float64) for side in size], indexing="ij")
    radius = torch.stack(frequency).norm(dim=0)
    margin = 3 / min(size)
    assert spectrum[radius > 0.2 + margin].mean() < 1e-4 * spectrum[radius < 0.2 - margin].mean()
    inner, outer = spectrum[radius < 0.1].mean(), spectrum[(radius > 0.1) & (radius < 0.2 - margin)].mean()
    # The mean of N independent bins scatters by 1/sqrt(N). The spectrum of a real field holds every bin twice, and the
    # window spreads each over 1.5 per axis.
    scatter = math.sqrt(2 * 1.5 ** len(size) / (6 * int((radius < 0.1).sum())))
    assert abs(float(inner / outer) - 1) < 5 * scatter


def test_noise_is_reproducible() -> None:
    assert torch.equal(band_limited_noise((9, 9), seed=3), band_limited_noise((9, 9), seed=3))
    assert not torch.equal(band_limited_noise((9, 9), seed=3), band_limited_noise((9, 9), seed=4))
    assert band_limited_noise((9,), dtype=torch.float32).dtype == torch.float32


# -- errors that are known


@pytest.mark.parametrize(
    "module",
    [nn.Identity(), nn.AvgPool2d(2), nn.AvgPool2d(3, 1, 1), convolution(SYMMETRIC_3X3), nn.Upsample(scale_factor=2)],
    ids=lambda m: type(m).__name__,
)
def test_symmetric_modules_are_exact_at_quarter_turns_and_flips(module: nn.Module) -> None:
    x = torch.randn(2, 1, 16, 12, dtype=torch.float64)
    result = equivariance_error(module, x, range(0, 360, 90))
    assert result.max < 1e-14
    assert list(result.per_angle) == [0, 90, 180, 270]
    assert list(result.reflections) == ["vertical flip", "horizontal flip"]
    assert_equivariant(module, x, tolerance=1e-14)


def test_a_pointwise_module_is_equivariant_down_to_its_floor() -> None:
    result = equivariance_error(nn.Conv2d(1, 3, 1).double(), band_limited_noise((64, 64)), [10, 20, 45, 100])
    for angle, error in result.per_angle.items():
        assert error <= result.floor[angle] < 1e-3


def test_the_error_of_an_asymmetric_kernel_is_the_known_one() -> None:
    # A shift by one pixel to the left, turned by 180 degrees, is a shift to the right.
    shift = convolution(torch.tensor([[0.0, 0, 0], [0, 0, 1], [0, 0, 0]]))
    x = torch.randn(1, 1, 8, 8, dtype=torch.float64)
    left, right = (nn.functional.pad(x, pad)[..., 1:-1] for pad in ((0, 2), (2, 0)))
    expected = float((left - right).norm() / left.norm())
    assert equivariance_error(shift, x, [180], False).max == pytest.approx(expected, rel=1e-12)
    assert equivariance_error(shift, x, []).reflections == pytest.approx(
        {"vertical flip": 0.0, "horizontal flip": expected}, rel=1e-12
    )


@pytest.mark.parametrize("kernel", ["ring", "random"])
@pytest.mark.parametrize("angle", [20, 45])
def test_transfer_function_sampled_noise_and_waves_agree(kernel: str, angle: float) -> None:
    """The same error in three ways: in closed form, by interpolation, and by waves on a turned grid."""
    weights = drawn_kernels(9, "point", draws=1) if kernel == "ring" else torch.randn(1, 1, 5, 5, dtype=torch.float64)
    layer = convolution(weights)
    closed_form = kernel_equivariance_error(layer.weight, [angle])[angle]

    noise = band_limited_noise((128, 128), batch=8)
    measured = equivariance_error(layer, noise, [angle], False)
    assert measured.max == pytest.approx(closed_form, rel=0.05)  # eight images of noise
    assert measured.floor[angle] < 2e-3

    upright, turned = (plane_waves((96, 96), 0.3, a) for a in (0, angle))
    error = equivariance_error(layer, upright, [angle], False, border=24)
    with torch.no_grad():
        disc = central_disc(96, 24)
        exact = float(
            (layer(turned) - rotate(layer(upright), angle))[..., disc].norm() / layer(upright)[..., disc].norm()
        )
    assert error.max == pytest.approx(exact, rel=1e-3)


def test_transfer_function_error_equals_the_closed_form_by_bessel_functions() -> None:
    kernel = torch.randn(3, 2, 5, 7, dtype=torch.float64)
    cutoff, angle = 0.35, 25.0
    taps = torch.cartesian_prod(torch.arange(5.0) - 2, torch.arange(7.0) - 3).double()
    a = math.radians(angle)
    turned = taps @ torch.tensor([[math.cos(a), -math.sin(a)], [math.sin(a), math.cos(a)]], dtype=torch.float64)

    def correlation(left: Tensor, right: Tensor) -> float:
        """E over f of the two responses' product: the mean of a wave over the disc is 2 J1(z) / z."""
        z = 2 * math.pi * cutoff * torch.cdist(left, right, compute_mode="donot_use_mm_for_euclid_dist")
        t = torch.arange(64, dtype=torch.float64) * (2 * math.pi / 64)
        j1 = torch.cos(t - z[..., None] * torch.sin(t)).mean(-1)  # torch's own is only good to 1e-7
        mean = torch.where(z > 1e-9, 2 * j1 / z.clamp(min=1e-9), 1.0)
        flat = kernel.flatten(-2).flatten(0, -2)
        return float(torch.einsum("cu,uv,cv->", flat, mean, flat))

    expected = math.sqrt(2 - 2 * correlation(taps, turned) / correlation(taps, taps))
    assert kernel_equivariance_error(kernel, [angle], cutoff)[angle] == pytest.approx(expected, rel=1e-9)


def test_transfer_function_error_knows_the_exact_symmetries() -> None:
    assert kernel_equivariance_error(SYMMETRIC_3X3, [90, 180])[90] < 1e-14
    assert kernel_equivariance_error(torch.ones(1, 1, dtype=torch.float64), [33])[33] == 0
    assert kernel_equivariance_error(torch.zeros(3, 3), [33])[33] == 0
    errors = kernel_equivariance_error(torch.randn(4, 4, 5, 5), [90, 180])
    assert min(errors.values()) > 0.5


# -- the result


def test_result_summarises_its_measurements() -> None:
    result = EquivarianceResult(
        (
            Measurement("30 degrees about D", 0.2, 0.01, 30),
            Measurement("30 degrees about H", 0.4, 0.03, 30),
            Measurement("90 degrees about D", 0.0, 0.0, 90),
            Measurement("flip of D", 0.6, 0.0),
        ),
        reach=2.0,
        border=10.0,
    )
    assert result.mean == pytest.approx(0.3)
    assert result.max == 0.6
    assert result.worst.name == "flip of D"
    assert result.per_angle == pytest.approx({30: 0.3, 90: 0.0})
    assert result.floor == pytest.approx({30: 0.02, 90: 0.0})
    assert result.reflections == {"flip of D": 0.6}
    text = str(result)
    assert "mean 3.00e-01, max 6.00e-01 (flip of D)" in text
    assert re.search(r"30 degrees about H +4\.00e-01 +3\.00e-02", text)
    assert re.search(r"90 degrees about D +0\.00e\+00 +exact", text)


def test_not_a_number_is_the_worst_of_all() -> None:
    result = equivariance_error(lambda x: x / 0 * 0, torch.ones(1, 1, 4, 4), [90])
    assert math.isnan(result.max)
    with pytest.raises(AssertionError, match="nan"):
        assert_equivariant(lambda x: x / 0 * 0, torch.ones(1, 1, 4, 4))


def test_default_angles_are_every_ten_degrees() -> None:
    result = equivariance_error(nn.Identity(), band_limited_noise((24, 24)))
    assert list(result.per_angle) == list(range(0, 360, 10))
    assert len(result.measurements) == 38


def test_angles_in_a_tensor() -> None:
    layer, x = GMRConv2d(1, 1, 3, padding=1, dtype=torch.float64), band_limited_noise((32, 32))
    result = equivariance_error(layer, x, angles=torch.tensor([30.0, 90.0]))
    assert result.per_angle == equivariance_error(layer, x, angles=[30, 90]).per_angle
    of_kernel = kernel_equivariance_error(layer.kernel(), torch.tensor([30.0]))
    assert of_kernel == kernel_equivariance_error(layer.kernel(), [30])


# -- layers and models


@pytest.mark.parametrize(
    ("layer", "size"),
    [(GMRConv1d, (15,)), (GMRConv2d, (12, 12)), (GMRConv2d, (9, 14)), (GMRConv3d, (6, 6, 6)), (GMRConv3d, (4, 5, 6))],
)
@pytest.mark.parametrize("sampling", ["point", "area", "binned"])
def test_ring_layers_commute_with_every_symmetry(
    layer: Callable[..., nn.Module], size: tuple[int, ...], sampling: str
) -> None:
    module = layer(2, 3, 5, padding=2, sampling=sampling)
    assert_equivariant(module, torch.randn(2, 2, *size), tolerance=1e-5)
    assert_equivariant(module.double(), torch.randn(2, 2, *size, dtype=torch.float64), tolerance=1e-12)


def test_area_sampling_has_at_most_three_tenths_of_the_error_of_binned() -> None:
    errors = {kind: kernel_equivariance_error(drawn_kernels(9, kind), [45])[45] for kind in ("area", "binned")}
    assert errors["area"] <= 0.3 * errors["binned"]
    # The same with an independent measure: turned noise through the layers.
    noise = band_limited_noise((64, 64), batch=2)
    measured = {}
    for kind in errors:
        layer = nn.Conv2d(1, 100, 9, padding=4, bias=False, dtype=torch.float64)
        layer.weight.data.copy_(drawn_kernels(9, kind))
        result = equivariance_error(layer, noise, [45], False)
        measured[kind] = result.max
        assert result.floor[45] < 0.02 * result.max
    assert measured["area"] <= 0.3 * measured["binned"]


def test_volumes_turn_about_each_axis() -> None:
    layer = GMRConv3d(1, 2, 5, padding=2, bias=False, sampling="area", dtype=torch.float64)
    x = band_limited_noise((32, 32, 32))
    result = equivariance_error(layer, x, [30, 90])
    assert [m.name for m in result.measurements[:3]] == [f"30 degrees about {axis}" for axis in "DHW"]
    assert result.per_angle[90] < 1e-14
    assert result.floor[30] < 5e-3
    assert 1e-3 < result.per_angle[30] < 0.1
    assert len(equivariance_error(layer, x[..., :8, :8, :8], [90, 180], False, axes=[1]).measurements) == 2


def test_a_volume_kernel_that_is_flat_is_only_equivariant_about_its_axis() -> None:
    flat = nn.Conv3d(1, 1, (1, 3, 3), padding=(0, 1, 1), bias=False, dtype=torch.float64)
    flat.weight.data.copy_(SYMMETRIC_3X3)
    result = equivariance_error(flat, torch.randn(1, 1, 6, 6, 6, dtype=torch.float64), [90])
    errors = {m.name: m.error for m in result.measurements}
    assert errors["90 degrees about D"] < 1e-14
    assert errors["90 degrees about H"] > 0.05
    assert errors["90 degrees about W"] > 0.05


def test_a_line_has_a_half_turn_and_a_reflection() -> None:
    x = torch.randn(2, 1, 20, dtype=torch.float64)
    result = equivariance_error(nn.AvgPool1d(3, 1, 1), x)
    assert list(result.per_angle) == [0, 180]
    assert result.reflections == {"reflection": pytest.approx(0, abs=1e-14)}
    with pytest.raises(AssertionError):
        assert_equivariant(nn.Conv1d(1, 1, 3).double(), x)
    with pytest.raises(ValueError, match="nothing to measure"):
        equivariance_error(nn.Identity(), x, [10], False)


def test_without_a_batch() -> None:
    x = band_limited_noise((32, 32), channels=2)
    layer = GMRConv2d(2, 3, 3, padding=1, dtype=torch.float64)
    batched, single = equivariance_error(layer, x, [45, 90]), equivariance_error(layer, x[0], [45, 90], dimensions=2)
    assert single.per_angle == pytest.approx(batched.per_angle, rel=1e-6)


def test_a_classifier_must_not_change_at_all() -> None:
    x = band_limited_noise((48, 48), 0.2, batch=4)
    features = GMRConv2d(1, 6, 5, padding=2, sampling="area", dtype=torch.float64)
    pooled = nn.Sequential(features, nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(6, 3).double())
    result = equivariance_error(pooled, x, [30, 45, 90])
    assert result.border is None
    assert result.per_angle[90] < 1e-13
    assert result.max < 0.02
    assert max(result.floor.values()) < 1e-3
    assert_equivariant(pooled, x, angles=[30], angle_tolerance=0.02)
    # A map of one pixel is a vector too.
    assert equivariance_error(pooled[:3], x, [30]).border is None

    flat = nn.Sequential(features, nn.ReLU(), nn.Flatten(), nn.Linear(6 * 48 * 48, 3).double())
    assert equivariance_error(flat, x, [30, 90]).per_angle[90] > 0.1
    with pytest.raises(AssertionError, match="Flatten"):
        assert_equivariant(flat, x)


def test_a_classifier_sees_only_the_disc_at_interpolated_angles() -> None:
    x = band_limited_noise((32, 32), 0.2)
    seen: list[Tensor] = []

    def mean(images: Tensor) -> Tensor:
        seen.append(images)
        return images.mean((-2, -1)) + 1

    equivariance_error(mean, x, [45])
    upright, faded, *_ = seen
    corner = (..., slice(0, 4), slice(0, 4))
    assert torch.equal(upright, x)
    assert faded[corner].abs().max() == 0
    assert torch.equal(faded[..., 12:20, 12:20], x[..., 12:20, 12:20])


def test_the_disc_is_an_option_for_maps() -> None:
    """Global statistics let the corners into the disc, unless they are faded out."""
    x = band_limited_noise((48, 48), 0.2)
    x[..., :6, :6] += 30
    norm = nn.InstanceNorm2d(1).double()
    errors = [equivariance_error(norm, x, [45], False, disc=disc).max for disc in (False, True)]
    assert errors[1] < 2e-3 < 0.1 * errors[0]


@pytest.mark.parametrize("size", [(40, 56), (41, 50)])
@pytest.mark.parametrize("angle", [20, 80, 135, 200])
def test_unequal_sides_at_any_angle(size: tuple[int, int], angle: float) -> None:
    x = band_limited_noise(size, 0.25)
    result = equivariance_error(nn.Conv2d(1, 2, 1).double(), x, [angle], False)
    assert result.max < 2e-3
    pooled = equivariance_error(lambda v: v.square().mean((-2, -1)), x, [angle], False)
    assert pooled.max < 2e-3


def test_maps_of_another_size_turn_about_their_own_centre() -> None:
    x = band_limited_noise((144, 144), 0.1, batch=4)
    for module in (nn.AvgPool2d(2), nn.AvgPool2d(3), nn.AvgPool2d(5, 1)):
        box = torch.ones(module.kernel_size, module.kernel_size)  # not round: this is all that is to be seen
        result = equivariance_error(module, x, [45], False, border=48)
        assert result.max == pytest.approx(kernel_equivariance_error(box, [45], 0.1)[45], rel=0.1)
        assert result.floor[45] < 0.2 * result.max
    assert equivariance_error(nn.Upsample(scale_factor=2, mode="bilinear"), x, [45], False).max < 5e-3
    # Dropping the last row and column moves the centre by half a pixel.
    assert equivariance_error(nn.AvgPool2d(2, 2), x[..., :143, :143], [30], False).max > 0.02


@pytest.mark.parametrize(("side", "exact"), [(15, True), (16, False)])
def test_a_stride_is_exact_on_the_sizes_that_it_fits(side: int, exact: bool) -> None:
    kernel = convolution(SYMMETRIC_3X3).weight
    strided = nn.Conv2d(1, 1, 3, stride=2, padding=1, bias=False, dtype=torch.float64)
    strided.weight = kernel
    x = torch.randn(1, 1, side, side, dtype=torch.float64)
    if exact:
        assert_equivariant(strided, x, tolerance=1e-14)
    else:
        with pytest.raises(AssertionError, match=r"stride \(2, 2\)"):
            assert_equivariant(strided, x)


def test_the_reach_sets_the_border() -> None:
    x = band_limited_noise((64, 64))
    for kernel_size in (1, 3, 9):
        layer = nn.Conv2d(1, 2, kernel_size, padding=kernel_size // 2, dtype=torch.float64)
        result = equivariance_error(layer, x, [45], False)
        assert result.reach == pytest.approx(math.sqrt(2) * (kernel_size // 2))
        assert result.border == pytest.approx(result.reach + 8)
    assert equivariance_error(nn.InstanceNorm2d(1).double(), x, [45], False).border == 16
    given = equivariance_error(nn.Identity(), x, [45], False, border=5)
    assert (given.border, given.reach) == (5, None)
    assert equivariance_error(lambda v: v * 0 + 1, x, [45], False).reach == 0


def test_padding_is_felt_within_the_reach_only() -> None:
    """A wide round blur: with a border less than its reach the zeros outside of the image show."""
    x = band_limited_noise((64, 64), 0.1) + 3
    profile = torch.exp(-(torch.arange(-4.0, 5.0) ** 2) / 4)
    blur = convolution(profile[:, None] * profile)
    near, far = (equivariance_error(blur, x, [45], False, border=border).max for border in (0, 12))
    assert far < 1e-3 < 0.1 * near


# -- assertions


def test_assertion_names_the_worst_and_the_reasons() -> None:
    model = nn.Sequential(nn.Conv2d(1, 2, 3), nn.ReLU(), nn.MaxPool2d(3, 2, 1), nn.ConvTranspose2d(2, 2, 2, 2))
    with pytest.raises(AssertionError) as caught:
        assert_equivariant(model, torch.randn(1, 1, 16, 16))
    message = str(caught.value)
    worst = equivariance_error(model, torch.randn(1, 1, 16, 16), [90])
    assert worst.max > 0.1
    assert "the tolerance is 0.001 (float32)" in message
    assert "7 of 7 transformations" in message
    assert "0 (Conv2d) has kernels without symmetry" in message
    assert "2 (MaxPool2d) has stride 2" in message
    assert "3 (ConvTranspose2d) is a transposed convolution" in message


@pytest.mark.filterwarnings("ignore:Using padding='same' with even kernel")
def test_assertion_finds_the_even_kernel() -> None:
    layer = nn.Conv2d(1, 1, 2, padding="same", bias=False)
    nn.init.ones_(layer.weight)
    with pytest.raises(AssertionError, match="even kernel with padding='same'"):
        assert_equivariant(layer, torch.randn(1, 1, 8, 8))


def test_assertion_without_a_suspect_lists_the_usual_ones() -> None:
    with pytest.raises(AssertionError, match="position codes"):
        assert_equivariant(lambda x: x + torch.arange(8.0), torch.randn(1, 1, 8, 8))


def test_assertion_says_when_the_shape_differs() -> None:
    with pytest.raises(AssertionError, match="an output of another shape"):
        assert_equivariant(nn.AvgPool2d((1, 2)), torch.randn(1, 1, 8, 8))
    assert equivariance_error(nn.AvgPool2d((1, 2)), torch.randn(1, 1, 8, 8), [90], False).max == math.inf


@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float64, 1e-9), (torch.float32, 1e-3)])
def test_tolerance_follows_the_dtype(dtype: torch.dtype, tolerance: float) -> None:
    x = torch.randn(1, 1, 8, 8, dtype=dtype)
    ramp = torch.linspace(-1, 1, 8, dtype=dtype) * x.norm() / 8
    assert_equivariant(lambda v: v + 0.1 * tolerance * ramp, x)
    with pytest.raises(AssertionError, match=f"tolerance is {tolerance:g}"):
        assert_equivariant(lambda v: v + 10 * tolerance * ramp, x)


def test_angles_have_a_tolerance_of_their_own() -> None:
    layer, x = convolution(SYMMETRIC_3X3), band_limited_noise((48, 48))
    error = equivariance_error(layer, x, [45], False).max
    assert_equivariant(layer, x, angles=[45], angle_tolerance=1.01 * error)
    with pytest.raises(AssertionError, match=r"45 degrees .* the interpolation alone"):
        assert_equivariant(layer, x, angles=[45], angle_tolerance=0.99 * error)
    with pytest.raises(ValueError, match="angle_tolerance"):
        assert_equivariant(layer, x, angles=[45])


# -- sub-regions


@pytest.mark.parametrize("center", [(30, 27), (30.5, 27.5)])
@pytest.mark.parametrize("angle", [90, 180, 270])
def test_a_ring_layer_turns_with_a_part_of_the_image(center: tuple[float, float], angle: float) -> None:
    layer = GMRConv2d(2, 3, 5, padding=2, dtype=torch.float64)
    result = subregion_error(layer, torch.randn(1, 2, 64, 60, dtype=torch.float64), angle, center, 17)
    assert result.inside < 1e-14
    assert result.outside < 1e-14
    assert result.floor == 0


def test_a_plain_layer_does_not_turn_with_a_part_of_the_image() -> None:
    x = torch.randn(1, 2, 64, 60, dtype=torch.float64)
    result = subregion_error(nn.Conv2d(2, 3, 5, padding=2).double(), x, 90, (30, 27), 17)
    assert result.inside > 0.3
    assert result.outside < 1e-14


def test_a_module_with_a_global_view_feels_the_part_outside() -> None:
    x = band_limited_noise((64, 64)) + torch.linspace(0, 3, 64)
    result = subregion_error(lambda v: v - v[..., 20, 40].mean(), x, 90, (32, 32), 16, reach=2)
    assert result.outside > 1e-3


def test_sub_regions_turn_by_any_angle() -> None:
    x = band_limited_noise((80, 80), 0.25)
    layer = GMRConv2d(1, 4, 5, padding=2, sampling="area", bias=False, dtype=torch.float64)
    result = subregion_error(layer, x, 30, (38, 41), 24)
    whole = equivariance_error(layer, x, [30], False)
    assert result.floor < 1e-3 < result.inside
    assert result.inside == pytest.approx(whole.max, rel=0.3)
    assert result.outside < 1e-14


def test_sub_regions_of_lines_and_volumes() -> None:
    line = torch.randn(1, 1, 30, dtype=torch.float64)
    assert subregion_error(GMRConv1d(1, 1, 3, padding=1).double(), line, 180, (14,), 8).inside < 1e-14
    with pytest.raises(ValueError, match="180"):
        subregion_error(nn.Identity(), line, 90, (14,), 8)
    volume = torch.randn(1, 1, 14, 15, 16, dtype=torch.float64)
    layer = GMRConv3d(1, 1, 3, padding=1).double()
    for axis in (0, 1, 2):
        result = subregion_error(layer, volume, 90, (7, 7, 7), 5, axis=axis)
        assert result.inside < 1e-14
        assert result.outside < 1e-14


@pytest.mark.parametrize(
    ("center", "radius", "message"),
    [
        ((16,), 5, "one index per spatial axis"),
        ((16, 16.5), 5, "all whole or all half"),
        ((16.2, 16.2), 5, "all whole or all half"),
        ((4, 16), 5, "the radius can be up to 4.5"),
        ((16, 16), -1, "must lie within"),
        ((16, 16), 2, "no pixel lies inside the disc"),
        ((15.5, 15.5), 16, "no pixel lies outside the disc"),
    ],
)
def test_bad_sub_regions_are_refused(center: tuple[float, ...], radius: float, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        subregion_error(nn.AvgPool2d(11, 1, 5), torch.randn(1, 1, 32, 32), 90, center, radius)


def test_sub_regions_need_the_size_kept() -> None:
    with pytest.raises(ValueError, match="keeps the map's size"):
        subregion_error(nn.AvgPool2d(2), torch.randn(1, 1, 32, 32), 90, (16, 16), 8)


# -- the module is left alone, bad input is refused


def test_the_module_is_left_as_it_was() -> None:
    model = nn.Sequential(GMRConv2d(1, 4, 3, padding=1), nn.BatchNorm2d(4), nn.Dropout(0.5), nn.ReLU())
    model.train()
    model[1].eval()  # a frozen norm in a model that trains
    model[0].weight.requires_grad_(False)
    x = torch.randn(2, 1, 24, 24, requires_grad=True)
    before = {name: value.clone() for name, value in model.state_dict().items()}
    modes = [m.training for m in model.modules()]
    random_state = torch.get_rng_state()
    result = equivariance_error(model, x, [45, 90])
    assert_equivariant(model, x)
    subregion_error(model, x, 90, (11.5, 11.5), 8)
    assert result.per_angle[90] < 1e-5  # dropout was off
    assert [m.training for m in model.modules()] == modes
    assert all(torch.equal(before[name], value) for name, value in model.state_dict().items())
    assert all(p.grad is None for p in model.parameters())
    assert x.grad is None
    assert torch.equal(torch.get_rng_state(), random_state)
    assert torch.is_grad_enabled()


def test_the_mode_is_restored_after_an_error() -> None:
    class Broken(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            raise RuntimeError("broken")

    model = nn.Sequential(nn.Dropout(), Broken()).train()
    with pytest.raises(RuntimeError, match="broken"):
        equivariance_error(model, torch.randn(1, 1, 8, 8))
    assert all(m.training for m in model.modules())


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
def test_the_module_gets_the_dtype_of_x(dtype: torch.dtype) -> None:
    seen = set()

    def module(x: Tensor) -> Tensor:
        seen.add(x.dtype)
        return x

    x = band_limited_noise((32, 32), dtype=dtype)
    equivariance_error(module, x, [30, 90])
    assert_equivariant(module, x)
    assert seen == {dtype}


@pytest.mark.parametrize(
    ("x", "options", "error", "message"),
    [
        (torch.ones(1, 1, 8, 8, dtype=torch.int64), {}, TypeError, "floating tensor, got torch.int64"),
        (torch.ones(1, 1, 8, 8, dtype=torch.complex64), {}, TypeError, "floating tensor, got torch.complex64"),
        ([[1.0]], {}, TypeError, "floating tensor, got list"),
        (torch.ones(8, 8), {}, ValueError, r"shape \(8, 8\)"),
        (torch.ones(1, 1, 1, 8, 8, 8), {}, ValueError, r"\(B, C, D, H, W\)"),
        (torch.ones(1, 1, 8, 8), {"dimensions": 1}, ValueError, "dimensions=1"),
        (torch.ones(0, 1, 8, 8), {}, ValueError, "empty"),
        (torch.ones(1, 1, 8, 8), {"angles": [math.nan]}, ValueError, "finite"),
        (torch.ones(1, 1, 8, 8), {"axes": [0]}, ValueError, "axes are for 3 dimensions"),
        (torch.ones(1, 1, 8, 8, 8), {"axes": [3]}, ValueError, "axes must be of 0"),
        (torch.ones(1, 1, 6, 6), {"angles": [45]}, ValueError, "leaves no disc"),
        (torch.ones(1, 1, 32, 32), {"angles": [45], "border": 15}, ValueError, "leaves no disc"),
        (torch.ones(1, 1, 32, 32), {"angles": [45], "border": -1}, ValueError, "at least 0, got -1"),
        (torch.ones(1, 1, 8, 8), {"angles": [], "reflections": False}, ValueError, "nothing to measure"),
    ],
)
def test_bad_input_is_refused(x: Tensor, options: dict[str, object], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        equivariance_error(nn.Identity(), x, **options)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("module", "error", "message"),
    [
        (lambda x: (x, x), TypeError, "got tuple"),
        (lambda x: x.argmax(1), TypeError, "got torch.int64"),
        (lambda x: x.flatten(2), ValueError, "a vector or a map"),
        (lambda x: x[None], ValueError, "a vector or a map"),
    ],
)
def test_outputs_that_cannot_be_compared_are_refused(
    module: Callable[[Tensor], Tensor], error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        equivariance_error(module, torch.ones(1, 1, 8, 8), [90])


@pytest.mark.parametrize("cutoff", [0, -0.1, 0.6])
def test_a_cutoff_beyond_the_grid_is_refused(cutoff: float) -> None:
    with pytest.raises(ValueError, match="cycles per pixel"):
        band_limited_noise((8, 8), cutoff)
    with pytest.raises(ValueError, match="cycles per pixel"):
        kernel_equivariance_error(torch.ones(3, 3), [45], cutoff)


def test_other_bad_arguments_are_refused() -> None:
    with pytest.raises(ValueError, match="1, 2 or 3, got 4"):
        symmetries(4)
    with pytest.raises(ValueError, match="1 to 3 sides"):
        band_limited_noise((8, 0))
    with pytest.raises(ValueError, match=r"\(\.\.\., k, k\)"):
        kernel_equivariance_error(torch.ones(3))


# -- the page


def test_the_page_in_docs_holds_what_the_command_computes() -> None:
    page = (Path(__file__).parents[1] / "docs" / "equivariance.md").read_text(encoding="utf-8")
    assert COMMAND in page
    sections = dict(re.findall(r"^## (\d+) degrees\n+((?:\|.*\n)+)", page, re.MULTILINE))
    for kind, by_size in equivariance_table().items():
        for k, by_angle in by_size.items():
            for angle, error in by_angle.items():
                rows = [
                    [cell.strip() for cell in line.strip("|").split("|")] for line in sections[str(angle)].splitlines()
                ]
                column = rows[0].index(f"k = {k}")
                (row,) = (row for row in rows if row[0] == kind)
                assert float(row[column]) == pytest.approx(error, abs=6e-4), (kind, k, angle)
