"""The residual skeleton: sizes of its maps, dilation, groups, features for other heads, one to three dimensions."""

import re

import pytest
import torch
from torch import nn

from ringconv import Downsample, GMRConv2d
from ringconv._torchvision import import_torchvision
from ringconv.models import ResNet, create_model, gmr_resnet, resnet
from ringconv.models.factories import PlainLayers, RingLayers
from ringconv.models.resnet import BasicBlock, Bottleneck, PreactivationBlock


@pytest.mark.parametrize("options", [{}, {"stem_pool": False}, {"stem_stride": 2, "stem_kernel_size": 7}])
@pytest.mark.parametrize("size", [(37, 50), (32, 33)])
def test_plain_and_ring_maps_have_equal_sizes(options, size):
    x = torch.randn(2, 3, *size)
    plain, ring = (build(width=4, features_only=True, **options) for build in (resnet, gmr_resnet))
    assert plain.feature_info == ring.feature_info
    reductions = ring.feature_info.reduction()
    for a, b, channels, reduction in zip(plain(x), ring(x), ring.feature_info.channels(), reductions, strict=True):
        assert a.shape == b.shape == (2, channels, *(-(-side // reduction) for side in size))


def test_impossible_sizes_are_explained():
    with pytest.raises(ValueError, match="depth must be one of 18, 34, 50, got 20"):
        resnet(20)
    with pytest.raises(ValueError, match="kernel_size must be an odd int, so that maps keep their size, got 4"):
        gmr_resnet(kernel_size=(9, 9, 4, 5))
    with pytest.raises(ValueError, match="stem_kernel_size must be an odd int"):
        resnet(stem_kernel_size=4)
    for name in ("gmr_densenet121", "gmr_convnext_tiny", "gmr_unet"):
        for size in (None, 3.0, (9, 9, None, 5)):
            with pytest.raises(
                ValueError, match=re.escape(f"kernel_size must be an odd int, so that maps keep their size, got {size}")
            ):
                create_model(name, kernel_size=size)
    with pytest.raises(ValueError, match=r"rings must be one value or one per stage \(4\), got \(3, 3\)"):
        gmr_resnet(rings=(3, 3))
    with pytest.raises(ValueError, match=r"kernel_size must be an int or 2 ints, got 9\.0"):
        create_model("gmr_resnet18", kernel_size=9.0)
    with pytest.raises(ValueError, match=r"one bool for every stage but the first \(3\), got \(True,\)"):
        gmr_resnet(replace_stride_with_dilation=(True,))
    with pytest.raises(ValueError, match="dimensions must be 1, 2 or 3, got 4"):
        create_model("gmr_resnet18", dimensions=4)
    for name in ("gmr_resnet18", "gmr_densenet121", "gmr_convnext_tiny", "gmr_unet"):
        for option in ("width", "in_chans"):
            with pytest.raises(ValueError, match=f"{option} must be an int of at least 1, got 0"):
                create_model(name, **{option: 0})


def test_pooled_features_instead_of_logits():
    network = gmr_resnet(50, width=4, num_classes=0)
    assert network(torch.randn(2, 3, 20, 20)).shape == (2, network.num_features) == (2, 4 * 8 * 4)


@pytest.mark.parametrize("block", [BasicBlock, Bottleneck, PreactivationBlock])
@pytest.mark.parametrize("dimensions", [1, 2, 3])
def test_every_block_in_every_dimension(block, dimensions):
    for layers in (PlainLayers((3, 3), 3, dimensions), RingLayers((3, 3), 3, dimensions)):
        network = ResNet(layers, block, (1, 2), width=4, in_chans=2).double().eval()
        x = torch.randn(1, 2, *(11,) * dimensions, dtype=torch.float64)
        y, flipped = network(x), network(x.flip(-1))
        assert y.shape == (1, 10)
        assert torch.allclose(y, flipped, rtol=1e-10) == isinstance(layers, RingLayers)


@pytest.mark.parametrize("name", ["resnet50", "gmr_resnet50"])
def test_strides_replaced_by_dilation(name):
    """Same weights, larger maps: as in torchvision, the first block of a stage keeps the dilation of the last."""
    strided = create_model(name, width=4, features_only=True)
    dilated = create_model(name, width=4, features_only=True, replace_stride_with_dilation=(False, True, True))
    dilated.load_state_dict(strided.state_dict() if name == "resnet50" else dilated.state_dict())
    assert dilated.feature_info.reduction() == [2, 4, 4, 4]
    assert [tuple(map_.shape[2:]) for map_ in dilated(torch.randn(2, 3, 32, 32))] == [(16, 16), (8, 8), (8, 8), (8, 8)]
    dilations = [
        [getattr(conv, "dilation", (1, 1))[0] for conv in stage.modules() if getattr(conv, "kernel_size", (1,))[0] > 1]
        for stage in dilated.stages
    ]
    assert dilations == [[1] * 3, [1] * 4, [1] + [2] * 5, [2] + [4] * 2]


@pytest.mark.parametrize("name", ["resnet18", "gmr_resnet18", "resnet50", "gmr_resnet50"])
def test_groups_divide_the_spatial_convolutions(name):
    network = create_model(name, width=8, groups=4)
    spatial = [m for m in network.stages.modules() if isinstance(m, (nn.Conv2d, GMRConv2d)) and m.kernel_size[0] > 1]
    assert spatial
    assert {conv.groups for conv in spatial} == {4}
    network(torch.randn(2, 3, 16, 16)).sum().backward()


def test_same_network_as_timm_s_converted():
    """timm's resnet18, converted, against the skeleton with the stem of timm: equal counts, equal logits."""
    import_torchvision()
    timm = pytest.importorskip("timm")
    from ringconv import convert

    converted = convert(timm.create_model("resnet18", num_classes=10), kernel_size=(9, 9, 5, 5)).eval()
    ours = gmr_resnet(18, stem_kernel_size=7, stem_stride=2).eval()
    state = converted.state_dict()
    mapped = {}
    for name in ours.state_dict():
        theirs = name.replace("stem.conv.", "conv1.").replace("stem.norm", "bn1").replace("head", "fc")
        theirs = theirs.replace("norm1", "bn1").replace("norm2", "bn2")
        for stage in range(4):
            theirs = theirs.replace(f"stages.{stage}.", f"layer{stage + 1}.")
        theirs = theirs.replace("shortcut.conv", "downsample.0").replace("shortcut.norm", "downsample.1")
        mapped[name] = state.pop(theirs)
    assert not state
    ours.load_state_dict(mapped)
    for size in ((64, 64), (47, 70)):
        x = torch.randn(2, 3, *size)
        torch.testing.assert_close(ours(x), converted(x))


@pytest.mark.parametrize("name", ["gmr_resnet18", "gmr_wide_resnet16_8", "gmr_densenet121", "gmr_convnext_tiny"])
def test_a_feature_pyramid_turns_with_the_image(name):
    """torchvision's pyramid on an equivariant backbone, its 3x3 output convolutions made of rings as well."""
    import_torchvision()
    ops = pytest.importorskip("torchvision.ops")
    from ringconv import convert

    backbone = create_model(name, width=2 if "wide" in name else 8, kernel_size=3, features_only=True)
    pyramid = convert(ops.FeaturePyramidNetwork(backbone.feature_info.channels(), 8))

    def detect(x):
        maps = backbone(x)
        return pyramid({str(level): map_ for level, map_ in enumerate(maps)})

    for part in (backbone, pyramid):
        part.double().eval()
    x = torch.randn(1, 3, 64, 64, dtype=torch.float64)
    reductions = backbone.feature_info.reduction()
    for (level, upright), turned in zip(detect(x).items(), detect(x.rot90(1, (2, 3))).values(), strict=True):
        assert upright.shape == (1, 8, *(64 // reductions[int(level)],) * 2)
        torch.testing.assert_close(turned, upright.rot90(1, (2, 3)), rtol=1e-9, atol=1e-9 * upright.abs().max().item())


def test_state_dict_names():
    names = set(gmr_resnet(width=4).state_dict())
    assert {
        "stem.conv.weight",
        "stem.conv.log_sigma",
        "stem.norm.running_mean",
        "stages.0.1.conv2.weight",
        "stages.1.0.conv1.conv.weight",
        "stages.1.0.shortcut.conv.conv.weight",
        "stages.3.1.norm2.bias",
        "head.weight",
    } <= names


def test_strided_layers_are_down_sampling_and_a_ring_convolution():
    block = gmr_resnet(width=4).stages[1][0]
    assert [type(layer) for layer in block.conv1] == [Downsample, GMRConv2d]
    assert [type(layer) for layer in block.shortcut.conv] == [Downsample, nn.Conv2d]
