"""Tiles that do not show."""

import numpy as np
import pytest
import torch
from torch import nn

from ringconv import Downsample, GMRConv2d, Upsample, create_model
from ringconv.evaluation.tiles import sight, tiled


def local_network():
    torch.manual_seed(0)
    return (
        nn.Sequential(
            nn.Conv2d(2, 4, 5, padding=2),
            nn.ReLU(),
            nn.AvgPool2d(4),
            GMRConv2d(4, 3, 5, padding=2),
            nn.Upsample(scale_factor=4),
        )
        .double()
        .float()
    )


@pytest.mark.parametrize("size", [(200, 164), (64, 300), (128, 128), (40, 40)])
def test_the_result_is_that_of_the_whole_image(size):
    network = local_network().eval()
    image = np.random.default_rng(0).normal(size=(2, *size)).astype(np.float32)
    with torch.no_grad():
        whole = network(torch.from_numpy(image)[None])[0].numpy()
    found = tiled(network, image, 64, align=4)
    assert found.shape == whole.shape
    # The same sums in another order.
    np.testing.assert_allclose(found, whole, atol=1e-5)


class _Resized(nn.Module):
    """Its windows depend on the image's size."""

    def __init__(self):
        super().__init__()
        self.first, self.second = GMRConv2d(2, 4, 5, padding=2), GMRConv2d(4, 3, 3, padding=1)
        self.down, self.up = Downsample(2), Upsample(2)

    def forward(self, x):
        return self.up(self.second(self.down(self.first(x))), x.shape[2:])


def test_sides_that_move_the_windows_are_refused():
    network = _Resized().eval()
    image = np.random.default_rng(0).normal(size=(2, 131, 96)).astype(np.float32)
    with pytest.raises(ValueError, match=r"pad the image to \(132, 96\) and cut the map"):
        tiled(network, image, 64, align=2)
    assert tiled(network, image, 64, align=2, margin=8).shape == (3, 131, 96)
    with torch.no_grad():
        whole = network(torch.from_numpy(image[:, :130])[None])[0].numpy()
    np.testing.assert_allclose(tiled(network, image[:, :130], 64, align=2), whole, atol=1e-5)


def test_a_unet_with_batch_norms_is_tiled_exactly():
    network = create_model("gmr_unet", width=4, norm="batch", kernel_size=3).eval()
    image = np.random.default_rng(0).normal(size=(3, 192, 96)).astype(np.float32)
    with torch.no_grad():
        whole = network(torch.from_numpy(image)[None])[0].numpy()
    np.testing.assert_allclose(tiled(network, image, 64, align=8), whole, atol=1e-5 * np.abs(whole).max())


def test_too_small_a_margin_shows():
    network = local_network().eval()
    image = np.random.default_rng(0).normal(size=(2, 128, 128)).astype(np.float32)
    with torch.no_grad():
        whole = network(torch.from_numpy(image)[None])[0].numpy()
    assert np.abs(tiled(network, image, 64, margin=0, align=4) - whole).max() > 1e-2


def test_sight_is_the_receptive_field():
    assert sight(nn.Conv2d(1, 1, 9, padding=4), 1, 2, 64) == 4
    assert sight(nn.Conv3d(1, 1, 3, padding=1), 1, 3, 16) == 1
    assert sight(nn.Identity(), 1, 2, 64) == 0
    wide = nn.Sequential(nn.AvgPool2d(41, 1, 20), nn.Conv2d(1, 1, 5, padding=10, dilation=5))
    assert sight(wide, 1, 2, 64) == 30, "farther than the first try can show"


def test_a_network_that_sees_everything_is_refused_unless_told():
    network = nn.Sequential(nn.Conv2d(1, 2, 3, padding=1), nn.InstanceNorm2d(2))
    image = np.random.default_rng(0).normal(size=(1, 96, 96)).astype(np.float32)
    with pytest.raises(ValueError, match="looks at the whole image"):
        tiled(network, image, 32)
    assert tiled(network, image, 32, margin=16).shape == (2, 96, 96)
    assert tiled(network, image, 96).shape == (2, 96, 96), "one tile is the whole"


def test_from_and_to_memory_maps(tmp_path):
    image = np.lib.format.open_memmap(tmp_path / "in.npy", mode="w+", dtype=np.float32, shape=(2, 96, 80))
    image[:] = np.random.default_rng(0).normal(size=image.shape)
    out = np.lib.format.open_memmap(tmp_path / "out.npy", mode="w+", dtype=np.float32, shape=(3, 96, 80))
    network = local_network()
    steps = []
    assert tiled(network, image, 32, align=4, out=out, progress=lambda *step: steps.append(step)) is out
    assert network.training
    assert steps[-1] == ("tiles", 9, 9)
    np.testing.assert_allclose(np.asarray(out), tiled(network, image, 64, align=4), atol=1e-5)


def test_volumes():
    network = nn.Conv3d(1, 2, 3, padding=1)
    volume = np.random.default_rng(0).normal(size=(1, 20, 33, 18)).astype(np.float32)
    with torch.no_grad():
        whole = network(torch.from_numpy(volume)[None])[0].numpy()
    np.testing.assert_allclose(tiled(network, volume, 16, align=1), whole, atol=1e-5)


@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float64, 1e-12), (torch.bfloat16, 3e-2)])
def test_small_tiles_in_the_networks_own_precision(dtype, tolerance):
    network = nn.Sequential(nn.Conv2d(1, 2, 5, padding=2), nn.Conv2d(2, 1, 3, padding=1)).to(dtype)
    image = torch.randn(1, 40, 30, dtype=torch.float64)
    with torch.no_grad():
        whole = network(image[None].to(dtype))[0].double().numpy()
    np.testing.assert_allclose(tiled(network, image, 8, align=1), whole, atol=tolerance)


def test_what_cannot_be_tiled():
    with pytest.raises(ValueError, match="multiple of align"):
        tiled(nn.Identity(), np.zeros((1, 8, 8), np.float32), 20, align=16)
    with pytest.raises(ValueError, match="must have its image's size"):
        tiled(Downsample(2), np.zeros((1, 8, 8), np.float32), 16)
