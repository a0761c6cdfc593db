"""The U-Net: its output has the size of its input, and every option does something."""

import pytest
import torch

from ringconv.models import create_model


@pytest.mark.parametrize("options", [{}, {"up": "deconv"}])
@pytest.mark.parametrize("size", [(9, 16), (17, 23), (33, 40)])
def test_output_has_the_size_of_the_input(options, size):
    network = create_model("unet", width=4, num_classes=3, in_chans=1, **options)
    assert network(torch.randn(2, 1, *size)).shape == (2, 3, *size)


@pytest.mark.parametrize("name", ["unet", "gmr_unet"])
def test_volumes_of_unequal_sides(name):
    network = create_model(name, dimensions=3, width=4, in_chans=1, kernel_size=3)
    assert network(torch.randn(1, 1, 9, 12, 10)).shape == (1, 1, 9, 12, 10)


def test_anisotropic_volumes():
    network = create_model("gmr_unet", dimensions=3, width=4, in_chans=1, kernel_size=3, spacing=(2.0, 1.0, 1.0))
    x = torch.randn(1, 1, 10, 12, 12)
    torch.testing.assert_close(network(x.rot90(1, (3, 4))), network(x).rot90(1, (3, 4)), rtol=1e-3, atol=1e-4)


def test_impossible_options_are_explained():
    with pytest.raises(
        ValueError, match="up must be \"bilinear\", got 'deconv': a transposed convolution does not turn"
    ):
        create_model("gmr_unet", up="deconv")
    with pytest.raises(ValueError, match="up must be one of 'bilinear', 'deconv', got 'nearest'"):
        create_model("unet", up="nearest")
    with pytest.raises(ValueError, match="norm must be one of 'instance', 'batch', got 'layer'"):
        create_model("gmr_unet", norm="layer")
    with pytest.raises(ValueError, match="dimensions must be 2 or 3, got 1"):
        create_model("unet", dimensions=1)
    with pytest.raises(ValueError, match="kernel_size must be an odd int"):
        create_model("gmr_unet", kernel_size=4)


@pytest.mark.parametrize("name", ["unet", "gmr_unet"])
def test_too_small_images_are_refused(name):
    network = create_model(name, width=4).eval()
    with pytest.raises(ValueError, match=r"takes images of more than 8 pixels, got \(1, 3, 8, 5\)"):
        network(torch.randn(1, 3, 8, 5))
    assert network(torch.randn(1, 3, 9, 5)).shape == (1, 1, 9, 5)
