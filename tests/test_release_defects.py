"""What goes wrong for users of the authors' package (GMR-Conv 1.0.3), one test each, in the order of that list."""

import copy
import math

import pytest
import safetensors.torch
import torch
from torch import nn

from ringconv import EquivarianceWarning, GMRConv1d, GMRConv2d, GMRConv3d
from ringconv.models import gmr_resnet


@pytest.fixture
def x():
    return torch.randn(1, 4, 16, 16)


@pytest.fixture
def v():
    return torch.randn(1, 4, 6, 6, 6)


def rot90(x):
    return x.rot90(1, (-2, -1))


def test_01_one_dimension_can_be_built():
    assert GMRConv1d(4, 8, 3)(torch.randn(1, 4, 16)).shape == (1, 8, 14)


def test_02_a_transposed_layer_is_refused_and_the_upsampling_named():
    with pytest.raises(TypeError, match=r"ringconv\.Upsample"):
        GMRConv2d(4, 8, 2, stride=2, output_padding=0)


def test_03_groups(x):
    layer = GMRConv2d(4, 8, 3, groups=2)
    halves = [nn.functional.conv2d(x[:, 2 * g : 2 * g + 2], layer.kernel()[4 * g : 4 * g + 4]) for g in range(2)]
    torch.testing.assert_close(layer(x), torch.cat(halves, 1) + layer.bias[:, None, None], rtol=1e-4, atol=1e-5)


def test_04_padding_modes_differ(x):
    layer = GMRConv2d(4, 8, 3, padding=1, padding_mode="reflect")
    padded = nn.functional.pad(x, (1, 1, 1, 1), mode="reflect")
    torch.testing.assert_close(layer(x), nn.functional.conv2d(padded, layer.kernel(), layer.bias), rtol=1e-4, atol=1e-5)
    zeros = GMRConv2d(4, 8, 3, padding=1)
    zeros.load_state_dict(layer.state_dict())
    assert not torch.allclose(zeros(x), layer(x))


def test_05_sigma_is_clipped_whatever_the_method(x):
    layer = GMRConv2d(4, 8, 5, padding=2)
    layer.log_sigma.data.fill_(-110.0)
    outputs = []
    for method in ("dense", "factored", "fused"):
        layer.method = method
        outputs.append(layer(x))
        assert outputs[-1].isfinite().all()
        outputs[-1].sum().backward()
        assert layer.log_sigma.grad.isfinite().all()
    for output in outputs[1:]:
        torch.testing.assert_close(output, outputs[0], rtol=1e-4, atol=1e-5)


def test_06_one_tap_and_one_ring(x):
    one = GMRConv2d(4, 8, 1)
    assert one.log_sigma is None
    plain = nn.functional.conv2d(x, one.weight.reshape(8, 4, 1, 1), one.bias)
    torch.testing.assert_close(one(x), plain, rtol=1e-5, atol=1e-6)
    assert GMRConv2d(4, 8, 3, rings=1)(x).isfinite().all()


def test_07_unequal_kernel_sides(x):
    assert GMRConv2d(4, 8, (3, 5))(x).shape == (1, 8, 14, 12)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float16, torch.bfloat16])
def test_08_dtype_at_construction(x, dtype):
    assert GMRConv2d(4, 8, 3, dtype=dtype)(x.to(dtype)).dtype == dtype


def test_09_deepcopy_after_eval(x):
    layer = GMRConv2d(4, 8, 3).eval()
    y = layer(x)
    assert torch.equal(copy.deepcopy(layer)(x), y)


def test_10_a_second_backward_in_eval(v):
    layer = GMRConv3d(4, 8, 3).eval()
    layer(v).sum().backward()
    first = layer.weight.grad.clone()
    layer(v).sum().backward()
    torch.testing.assert_close(layer.weight.grad, 2 * first)


@torch.no_grad()
def test_11_loading_in_eval_takes_effect(x):
    layer, other = GMRConv2d(4, 8, 3).eval(), GMRConv2d(4, 8, 3).eval()
    assert not torch.equal(layer(x), other(x))
    layer.load_state_dict(other.state_dict())
    assert torch.equal(layer(x), other(x))


@torch.no_grad()
def test_12_eval_holds_no_dense_kernels():
    network = gmr_resnet(width=64).eval()
    network(torch.randn(1, 3, 32, 32))

    def floats_in(value):
        if isinstance(value, torch.Tensor):
            return value.numel()
        if isinstance(value, dict):
            return sum(map(floats_in, value.values()))
        return sum(map(floats_in, value)) if isinstance(value, tuple | list) else 0

    held = sum(floats_in(vars(module)) for module in network.modules())
    assert held < 1.1 * sum(p.numel() for p in network.parameters())


def test_13_the_training_flag_set_by_hand(x):
    layer = GMRConv2d(4, 8, 3)
    y = layer(x)
    layer.training = False
    assert torch.equal(layer(x), y)


@pytest.mark.parametrize("sampling", ["point", "area", "binned"])
def test_14_training_never_leaves_the_symmetry(x, sampling):
    layer = GMRConv2d(4, 8, 5, sampling=sampling)
    optimizer = torch.optim.SGD(layer.parameters(), lr=0.1)
    for _ in range(3):
        layer(x).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()
    kernel = layer.kernel()
    for copied in (rot90(kernel), kernel.flip(-1), kernel.flip(-2)):
        assert torch.equal(kernel, copied)


@torch.no_grad()
def test_15_safetensors(x, tmp_path):
    layer, other = GMRConv2d(4, 8, 5).eval(), GMRConv2d(4, 8, 5).eval()
    layer(x)
    safetensors.torch.save_file(layer.state_dict(), tmp_path / "layer.safetensors")
    other.load_state_dict(safetensors.torch.load_file(tmp_path / "layer.safetensors"))
    assert torch.equal(layer(x), other(x))


def test_16_export(x):
    layer = GMRConv2d(4, 8, 5).eval()
    torch.testing.assert_close(torch.export.export(layer, (x,)).module()(x), layer(x), rtol=1e-5, atol=1e-6)


def test_17_unbatched_input(x):
    layer = GMRConv2d(4, 8, 3)
    torch.testing.assert_close(layer(x[0]), layer(x)[0])


@pytest.mark.parametrize("size", [2, 4, 6, 8])
def test_18_even_kernels_are_equivariant(size):
    layer = GMRConv2d(4, 8, size, padding=size // 2, dtype=torch.float64)
    x = torch.randn(1, 4, 16, 16, dtype=torch.float64)
    torch.testing.assert_close(layer(rot90(x)), rot90(layer(x)), rtol=1e-12, atol=1e-12)


def test_19_transposed_is_refused():
    with pytest.raises(TypeError, match=r"unknown option 'transposed'.*ringconv\.Upsample"):
        GMRConv2d(4, 8, 3, transposed=True)


def test_20_more_rings_than_radii_warn():
    with pytest.warns(UserWarning, match=r"no tap belongs to ring 1, 2 \(counted from 0\)"):
        GMRConv2d(4, 8, 3, rings=5, sigma=None)


def test_21_sigma_is_in_pixels_from_the_start():
    layer = GMRConv2d(4, 8, 9, preset="paper")
    geometry = layer.geometry
    sigma = math.exp(geometry.initial_log_sigma)
    torch.testing.assert_close(layer.log_sigma.exp(), torch.full((5,), 1.125 / 2.355))
    # Full width at half maximum = ring distance: halfway between two rings both are at half their height.
    assert math.exp(-((geometry.delta / 2) ** 2) / (2 * sigma**2)) == pytest.approx(0.5, abs=1e-3)
    assert geometry.delta == 4.5 / 4
    ring = geometry.basis()[0, 4]
    assert ring[5] / ring[4] == pytest.approx(math.exp(-1 / (2 * sigma**2)))  # one pixel from the centre


def test_22_a_stride_that_breaks_rot90_warns(x):
    with pytest.warns(EquivarianceWarning, match="stride"):
        GMRConv2d(4, 8, 3, stride=2, padding=1)(x)


def test_23_misspelt_options_are_refused():
    with pytest.raises(TypeError, match="'force_circular'"):
        GMRConv2d(4, 8, 3, force_circular=True)
