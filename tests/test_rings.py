"""The basis against slow, independent computations of its definition."""

import itertools
import json
import math
import warnings
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from ringconv import RingGeometry
from ringconv.rings import clipped_sigma


def radii(geometry: RingGeometry) -> np.ndarray:
    """(*kernel_size): distance of each tap from the kernel's centre, straight from the definition."""
    result = np.zeros(geometry.kernel_size)
    for tap in itertools.product(*map(range, geometry.kernel_size)):
        offsets = [
            (i - (k - 1) / 2) * step for i, k, step in zip(tap, geometry.kernel_size, geometry.pixel, strict=True)
        ]
        result[tap] = math.sqrt(sum(o * o for o in offsets))
    return result


def symmetric_copies(array: torch.Tensor, dimensions: int):
    """The array under all flips and axis exchanges of its last axes."""
    axes = range(-dimensions, 0)
    for order in itertools.permutations(axes):
        for flips in itertools.product((False, True), repeat=dimensions):
            leading = range(array.dim() - dimensions)
            moved = array.permute(*leading, *[array.dim() + axis for axis in order])
            yield moved.flip([axis for axis, flip in zip(axes, flips, strict=True) if flip])


@pytest.mark.parametrize(
    ("size", "rings"), [((9, 9), None), ((5, 5), None), ((4, 4), 2), ((7,), None), ((5, 5, 5), None), ((3, 5), None)]
)
@pytest.mark.parametrize("circular", [True, False])
def test_point_sampling_is_the_papers_formula(size, rings, circular):
    geometry = RingGeometry(size, rings=rings or 0, circular=circular)
    k, n = max(size), geometry.rings
    assert n == (rings or k // 2 + (1 if circular else 2))
    delta = k / (2 * (n - 1))
    r = radii(geometry)
    for i, ring in enumerate(geometry.basis().numpy()):
        expected = np.exp(-((r - i * delta) ** 2) / (2 * (delta / 2.355) ** 2))
        if circular:
            expected[r >= k / 2] = 0
        np.testing.assert_allclose(ring, expected, rtol=1e-13, atol=1e-300)


def test_one_ring_and_one_tap():
    one_ring = RingGeometry((5, 5), rings=1)
    assert one_ring.delta == 2.5
    r = radii(one_ring)
    np.testing.assert_allclose(one_ring.basis()[0], np.exp(-0.5 * (r / (2.5 / 2.355)) ** 2) * (r < 2.5), rtol=1e-13)
    for sampling in ("point", "area", "binned"):
        for circular in (True, False):
            one_tap = RingGeometry((1, 1), sampling=sampling, circular=circular)
            assert one_tap.basis().tolist() == [[[1.0]]]


def test_even_kernels_are_centred_between_pixels():
    basis = RingGeometry((6, 6)).basis()
    for copy in symmetric_copies(basis, 2):
        assert torch.equal(copy, basis)
    assert basis[0].argmax() in (14, 15, 20, 21)  # one of the four middle taps


def test_spacing_scales_the_radius_and_only_its_ratios_matter():
    anisotropic = RingGeometry((3, 9, 9), spacing=(3.0, 1.0, 1.0))
    assert anisotropic.extent == 9
    basis = anisotropic.basis()
    # One slice up is as far as three pixels to the side.
    assert torch.equal(basis[:, 2, 4, 4], basis[:, 1, 4, 7])
    assert torch.equal(RingGeometry((3, 9, 9), spacing=(0.75, 0.25, 0.25)).basis(), basis)
    with pytest.raises(ValueError, match="one value per axis"):
        RingGeometry((3, 3, 3), spacing=(1.0, 2.0))
    with pytest.raises(ValueError, match="positive and finite"):
        RingGeometry((3, 3), spacing=(1.0, 0.0))


@pytest.mark.parametrize("circular", [True, False])
def test_hard_rings_are_indicators_of_equal_bins(circular):
    geometry = RingGeometry((9, 9), circular=circular, gaussian=False)
    edges = np.linspace(0, 4.5, geometry.rings + 1)
    r = radii(geometry)
    for i, ring in enumerate(geometry.basis().numpy()):
        outer = math.inf if not circular and i == geometry.rings - 1 else edges[i + 1]
        np.testing.assert_array_equal(ring, (r >= edges[i]) & (r < outer))
    assert geometry.basis().sum(0).sum() == (81 if not circular else (r < 4.5).sum())


def test_pixels_per_hard_ring():
    counts = {3: [1, 8], 5: [1, 8, 12], 7: [1, 8, 12, 16], 9: [1, 8, 12, 16, 32], 11: [1, 8, 12, 24, 24, 28]}
    for size, expected in counts.items():
        assert RingGeometry((size, size), gaussian=False).basis().sum((1, 2)).int().tolist() == expected
        assert RingGeometry((size,) * 2, gaussian=False, sampling="binned").basis().sum((1, 2)).tolist() == expected


def supersampled(geometry: RingGeometry, per_axis: int) -> np.ndarray:
    """The mean of every ring's function over each pixel, by brute force: (n, *kernel_size)."""
    axes = [
        ((np.arange(k * per_axis) + 0.5) / per_axis - k / 2) * step
        for k, step in zip(geometry.kernel_size, geometry.pixel, strict=True)
    ]
    r = np.sqrt(sum(np.meshgrid(*[axis**2 for axis in axes], indexing="ij")))
    edges = np.linspace(0, geometry.extent / 2, geometry.rings + 1)
    if not geometry.circular:
        edges[-1] = math.inf
    blocks = [size for k in geometry.kernel_size for size in (k, per_axis)]
    rings = []
    for i in range(geometry.rings):
        if geometry.gaussian:
            sigma = geometry.delta / 2.355
            values = np.exp(-0.5 * ((r - i * geometry.delta) / sigma) ** 2)
            values *= (r < geometry.extent / 2) if geometry.circular else 1
        else:
            values = ((r >= edges[i]) & (r < edges[i + 1])).astype(float)
        rings.append(values.reshape(blocks).mean(tuple(range(1, len(blocks), 2))))
    return np.stack(rings)


@pytest.mark.parametrize(
    ("options", "per_axis", "tolerance"),
    [
        ({"kernel_size": (9, 9)}, 300, 1e-4),
        ({"kernel_size": (9, 9), "circular": False}, 300, 1e-4),
        ({"kernel_size": (4, 6)}, 300, 1e-4),
        ({"kernel_size": (5, 5), "gaussian": False}, 500, 5e-4),
        ({"kernel_size": (5, 5), "gaussian": False, "circular": False}, 500, 5e-4),
        ({"kernel_size": (7,)}, 10000, 1e-4),
        ({"kernel_size": (5, 5, 5)}, 50, 5e-4),
        ({"kernel_size": (3, 5, 5), "spacing": (2.5, 1.0, 1.0)}, 50, 1e-3),
    ],
)
def test_area_sampling_is_the_mean_over_each_pixel(options, per_axis, tolerance):
    # The tolerances are those of the brute-force mean itself at its number of points.
    geometry = RingGeometry(sampling="area", **options)
    np.testing.assert_allclose(geometry.basis(), supersampled(geometry, per_axis), atol=tolerance)


def test_area_sampling_resolves_the_narrowest_ring():
    geometry = RingGeometry((9, 9), sampling="area")
    sigma = 1e-2
    basis = geometry.basis(torch.full((5,), math.log(sigma), dtype=torch.float64))
    # A thin ring inside of the circle has the area of a band: 2 pi mu * sqrt(2 pi) sigma.
    for i in (1, 2, 3):
        expected = 2 * math.pi * i * geometry.delta * math.sqrt(2 * math.pi) * sigma
        assert basis[i].sum().item() == pytest.approx(expected, rel=1e-4)


def test_area_sampling_tells_orbits_of_equal_radius_apart():
    point = RingGeometry((11, 11)).basis()
    area = RingGeometry((11, 11), sampling="area").basis()
    assert torch.equal(point[:, 10, 5], point[:, 8, 9])
    assert not torch.allclose(area[:, 10, 5], area[:, 8, 9], rtol=1e-3)


def test_binned_sampling_reproduces_the_authors_package():
    cases = json.loads((Path(__file__).parent / "fixtures" / "release_kernels.json").read_text())
    assert len(cases) == 16
    for case in cases:
        geometry = RingGeometry(
            (case["size"],) * case["dimensions"],
            rings=case["rings"] or 0,
            circular=case["circular"],
            sampling="binned",
        )
        log_sigma = torch.tensor(case["log_sigma"], dtype=torch.float64)
        weights = torch.arange(1.0, geometry.rings + 1, dtype=torch.float64)
        kernel = torch.tensordot(weights, geometry.basis(log_sigma), 1)
        np.testing.assert_allclose(kernel.flatten(), case["weighted_sum"], atol=1e-6)


@settings(deadline=None, max_examples=60)
@given(
    size=st.integers(1, 9),
    dimensions=st.integers(1, 3),
    circular=st.booleans(),
    gaussian=st.booleans(),
    normalize=st.booleans(),
    sampling=st.sampled_from(["point", "area", "binned"]),
    dtype=st.sampled_from([torch.float32, torch.float64]),
)
def test_taps_related_by_a_symmetry_are_bit_equal(size, dimensions, circular, gaussian, normalize, sampling, dtype):
    size = min(size, 5) if dimensions == 3 else size
    geometry = RingGeometry(
        (size,) * dimensions, circular=circular, gaussian=gaussian, normalize=normalize, sampling=sampling
    )
    basis = geometry.basis(torch.randn(geometry.rings, dtype=dtype) * 0.3)
    assert basis.dtype == dtype
    assert basis.isfinite().all()
    for copy in symmetric_copies(basis, dimensions):
        assert torch.equal(copy, basis)


def test_unequal_sides_keep_the_flips():
    basis = RingGeometry((3, 5)).basis()
    assert torch.equal(basis, basis.flip(1))
    assert torch.equal(basis, basis.flip(2))


@pytest.mark.parametrize("sampling", ["point", "area", "binned"])
def test_normalized_rings_have_unit_norm_at_any_width(sampling):
    geometry = RingGeometry((9, 9), sampling=sampling, normalize=True)
    for log_sigma in (-110.0, -4.0, -0.7, 0.0, 2.0, 50.0):
        basis = geometry.basis(torch.full((5,), log_sigma))
        torch.testing.assert_close(basis.flatten(1).norm(dim=1), torch.ones(5), atol=1e-5, rtol=0)


@pytest.mark.parametrize("sampling", ["point", "area", "binned"])
def test_faint_rings_have_finite_gradients(sampling):
    """On an even kernel the first ring has no tap of its own, and in float32 its square would vanish."""
    geometry = RingGeometry((4, 4), sampling=sampling, normalize=True)
    for log_sigma in (-4.0, -2.0, -1.5, -1.0):
        parameter = torch.full((3,), log_sigma, requires_grad=True)
        basis = geometry.basis(parameter)
        basis.square().sum().backward()
        assert basis.isfinite().all()
        assert parameter.grad.isfinite().all()


@pytest.mark.parametrize("options", [{}, {"sampling": "area"}, {"sampling": "binned"}, {"circular": False}])
@pytest.mark.parametrize("normalize", [False, True])
def test_the_gradient_of_sigma(options, normalize):
    geometry = RingGeometry((5, 5), normalize=normalize, **options)
    log_sigma = (torch.randn(geometry.rings, dtype=torch.float64) * 0.3).requires_grad_()
    assert torch.autograd.gradcheck(geometry.basis, log_sigma)
    assert torch.autograd.gradgradcheck(geometry.basis, log_sigma)


def test_sigma_is_clipped_and_comes_back():
    bounds = (1e-2, 10.0)
    log_sigma = torch.tensor([-110.0, 0.5, 200.0], requires_grad=True)
    sigma = clipped_sigma(log_sigma, bounds)
    torch.testing.assert_close(sigma, torch.tensor([1e-2, math.exp(0.5), 10.0]))
    optimizer = torch.optim.SGD([log_sigma], lr=500.0)
    # Wants the first wider and the last narrower.
    loss = -sigma[0] + sigma[2]
    loss.backward()
    optimizer.step()
    assert log_sigma[0] > -110 + 4
    assert log_sigma[2] < 200


def test_empty_rings_are_named():
    with pytest.warns(UserWarning, match=r"9 rings .* 5x5 kernel .* ring 1, 2, 4, 8 "):
        RingGeometry((5, 5), rings=9).warn_of_empty_rings()
    assert RingGeometry((5, 5), rings=9, gaussian=False).empty_rings() == [1, 2, 4, 6]
    assert RingGeometry((9, 9), rings=30, gaussian=False, sampling="binned").empty_rings() != []
    for size in (1, 3, 5, 7, 9, 11, 31):
        for circular in (True, False):
            assert RingGeometry((size, size), circular=circular).empty_rings() == []
        assert RingGeometry((size, size), gaussian=False).empty_rings() == []


@pytest.mark.parametrize("sampling", ["point", "area", "binned"])
@pytest.mark.parametrize(("size", "rings"), [(2, 5), (4, 9), (5, 9)])
def test_rings_without_a_tap_are_the_same_in_single_precision(sampling, size, rings):
    """They are faint everywhere, and scaled to unit norm all the same."""
    geometry = RingGeometry((size, size), rings=rings, sampling=sampling, normalize=True)
    log_sigma = torch.full((rings,), geometry.initial_log_sigma, dtype=torch.float64)
    torch.testing.assert_close(geometry.basis(log_sigma.float()), geometry.basis(log_sigma).float())


@pytest.mark.parametrize(
    ("options", "zero"),
    [
        ({"kernel_size": (4, 4), "gaussian": False}, [0]),
        ({"kernel_size": (3, 3), "gaussian": False, "circular": False}, [1]),
        ({"kernel_size": (2, 2), "normalize": "orthonormal"}, [1]),
        ({"kernel_size": (2, 2), "gaussian": False, "sampling": "binned"}, [1]),
    ],
)
def test_rings_that_do_nothing_are_named_even_if_nobody_chose_them(options, zero):
    geometry = RingGeometry(**options)
    assert geometry.zero_rings() == zero
    with torch.device("meta"):
        assert geometry.zero_rings() == zero
    with pytest.warns(UserWarning, match=f"ring {zero[0]} "):
        geometry.warn_of_empty_rings(chosen=False)


def test_redundant_rings_are_named_to_those_who_chose_them():
    geometry = RingGeometry((2, 2))
    with pytest.warns(UserWarning, match="ring"):
        geometry.warn_of_empty_rings()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        geometry.warn_of_empty_rings(chosen=False)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"kernel_size": (3, 3, 3, 3)}, "1 to 3 sizes"),
        ({"kernel_size": (0, 3)}, "at least 1"),
        ({"kernel_size": (3, 3), "rings": -1}, "at least 1, got -1"),
        ({"kernel_size": (3, 3), "sampling": "points"}, "one of 'point', 'area', 'binned', got 'points'"),
    ],
)
def test_bad_geometry_is_refused(options, message):
    with pytest.raises(ValueError, match=message):
        RingGeometry(**options)


# -- orthonormal rings and the smooth edge


@pytest.mark.parametrize("options", [{}, {"sampling": "area"}, {"sampling": "binned"}, {"edge": "smooth"}], ids=str)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_orthonormal_rings_span_the_same_kernels(options, dtype):
    geometry = RingGeometry((9, 9), normalize="orthonormal", **options)
    log_sigma = (geometry.initial_log_sigma + 0.3 * torch.randn(geometry.rings)).to(dtype)
    basis = geometry.basis(log_sigma).flatten(1)
    tolerance = 100 * torch.finfo(dtype).eps
    torch.testing.assert_close(basis @ basis.T, torch.eye(5, dtype=dtype), atol=tolerance, rtol=0)
    unit = RingGeometry((9, 9), normalize=True, **options).basis(log_sigma).flatten(1)
    # The first ring stays, and ring i is a mixture of the rings up to it in which it counts positively.
    torch.testing.assert_close(basis[0], unit[0], atol=tolerance, rtol=0)
    mixture = unit @ basis.T
    torch.testing.assert_close(mixture @ basis, unit, atol=tolerance, rtol=0)
    assert mixture.triu(1).abs().max() < tolerance
    assert (mixture.diagonal() > 0).all()


def test_orthonormal_is_the_qr_decomposition():
    geometry = RingGeometry((9, 9), normalize="orthonormal", sampling="area")
    unit = RingGeometry((9, 9), normalize=True, sampling="area").basis().flatten(1)
    q, r = torch.linalg.qr(unit.T)
    expected = (q * r.diagonal().sign()).T
    torch.testing.assert_close(geometry.basis().flatten(1), expected, rtol=0, atol=1e-12)


def test_a_ring_that_is_a_mixture_of_others_becomes_zero():
    geometry = RingGeometry((3, 3), rings=5, normalize="orthonormal")  # a 3x3 kernel has three orbits
    log_sigma = torch.full((5,), geometry.initial_log_sigma, requires_grad=True)
    basis = geometry.basis(log_sigma)
    norms = basis.flatten(1).norm(dim=1)
    assert ((norms - 1).abs() < 1e-5).sum() == 3
    assert (norms == 0).sum() == 2
    basis.sum().backward()
    assert log_sigma.grad.isfinite().all()


@pytest.mark.parametrize("sampling", ["point", "area", "binned"])
def test_orthonormal_rings_at_any_width(sampling):
    geometry = RingGeometry((9, 9), sampling=sampling, normalize="orthonormal")
    for log_sigma in (-110.0, -4.0, -0.7, 0.0, 0.5):
        parameter = torch.full((5,), log_sigma, requires_grad=True)
        basis = geometry.basis(parameter).flatten(1)
        product = basis @ basis.T
        torch.testing.assert_close(product, product.diagonal().round().diag(), atol=1e-4, rtol=0)
        basis.square().sum().backward()
        assert parameter.grad.isfinite().all()


@pytest.mark.parametrize("options", [{"normalize": "orthonormal"}, {"edge": "smooth"}], ids=str)
@pytest.mark.parametrize("sampling", ["point", "area", "binned"])
def test_the_gradient_of_sigma_with_options(options, sampling):
    geometry = RingGeometry((5, 5), sampling=sampling, **options)
    log_sigma = (geometry.initial_log_sigma + torch.randn(geometry.rings, dtype=torch.float64) * 0.2).requires_grad_()
    assert torch.autograd.gradcheck(geometry.basis, log_sigma)
    assert torch.autograd.gradgradcheck(geometry.basis, log_sigma)


@pytest.mark.parametrize("gaussian", [True, False])
@pytest.mark.parametrize("sampling", ["point", "binned"])
@pytest.mark.parametrize("size", [3, 4, 5, 7, 9])
def test_the_smooth_edge(sampling, gaussian, size):
    hard, smooth = (
        RingGeometry((size, size), sampling=sampling, gaussian=gaussian, edge=edge) for edge in ("hard", "smooth")
    )
    r = radii(smooth)
    uncut, basis = hard.basis().numpy(), smooth.basis().numpy()
    window = (1 + np.cos(np.pi * np.clip(r - (size - 1) / 2, 0, 1))) / 2
    both = r < size / 2
    np.testing.assert_allclose(basis[:, both], (uncut * window)[:, both], atol=1e-12)
    assert (basis[:, r >= (size + 1) / 2] == 0).all()
    # What the hard edge cuts away between k/2 and (k + 1)/2 counts in part; the last taps of the axes count in full.
    assert (basis[-1][(r > size / 2) & (r < (size + 1) / 2)] > 0).all()
    if size % 2:
        np.testing.assert_allclose(basis[:, 0, size // 2], uncut[:, 0, size // 2], atol=1e-12)
    for copy in symmetric_copies(torch.tensor(basis), 2):
        assert torch.equal(copy, torch.tensor(basis))


def test_hard_rings_with_a_smooth_edge_by_area():
    """They add up to the window's mean over each pixel, since every radius belongs to one ring."""
    basis = RingGeometry((7, 7), sampling="area", gaussian=False, edge="smooth").basis().sum(0).numpy()
    steps = (np.arange(200) + 0.5) / 200 - 0.5
    for i, j in ((3, 3), (3, 6), (5, 5), (6, 6)):
        r = np.hypot((i - 3 + steps)[:, None], (j - 3 + steps)[None, :])
        assert basis[i, j] == pytest.approx((0.5 * (1 + np.cos(np.pi * np.clip(r - 2.5, 0, 1)))).mean(), abs=1e-5)


def test_area_sampling_with_a_smooth_edge_is_the_mean_over_each_pixel():
    geometry = RingGeometry((7, 7), sampling="area", edge="smooth")
    steps = (np.arange(200) + 0.5) / 200 - 0.5
    sigma = math.exp(geometry.initial_log_sigma)
    for i, j in ((3, 3), (3, 6), (5, 5), (6, 5), (6, 6)):
        r = np.hypot((i - 3 + steps)[:, None], (j - 3 + steps)[None, :])
        window = 0.5 * (1 + np.cos(np.pi * np.clip(r - 2.5, 0, 1)))
        for ring, value in enumerate(geometry.basis()[:, i, j]):
            expected = (np.exp(-0.5 * ((r - ring * geometry.delta) / sigma) ** 2) * window).mean()
            assert value.item() == pytest.approx(expected, abs=1e-5)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"normalize": "unit"}, "normalize must be one of False, True, 'orthonormal', got 'unit'"),
        ({"edge": "soft"}, "edge must be one of 'hard', 'smooth', got 'soft'"),
        ({"edge": "smooth", "circular": False}, 'edge="smooth" ends the kernel at a circle: it needs circular=True'),
    ],
)
def test_bad_options_are_refused(options, message):
    with pytest.raises(ValueError, match=message):
        RingGeometry((5, 5), **options)
