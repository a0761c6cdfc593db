"""What goes wrong for users of the models in the authors' package (GMR-Conv 1.0.3) does not go wrong here.

The numbers are those of our list of its defects; turning and flipping the input (32, 36) is tested for every model in
test_registry.py, and so are the options of residual networks (34) in test_resnet.py.
"""

import pytest
import torch

from ringconv import GMRConv3d, assert_equivariant
from ringconv.models import create_model, gmr_resnet, list_models


@pytest.mark.parametrize("side", [33, 40, 50])
def test_32_invariant_at_sizes_that_two_does_not_divide(side):
    network = gmr_resnet(width=8).double().eval()
    x = torch.randn(1, 3, side, side, dtype=torch.float64)
    y = network(x)
    for turned in (x.rot90(1, (2, 3)), x.rot90(2, (2, 3)), x.flip(2), x.flip(3), x.transpose(2, 3)):
        torch.testing.assert_close(network(turned), y, rtol=1e-10, atol=0)


def test_33_a_tuple_of_sizes_and_resnet34():
    assert {"resnet34", "gmr_resnet34"} <= set(list_models())
    for sizes in ((9, 9, 5, 5), [9, 9, 5, 5]):
        network = create_model("gmr_resnet34", width=4, kernel_size=sizes)
        assert network.stages[0][0].conv1.kernel_size == (9, 9)


def test_34_dilation_and_groups_change_resnet50():
    plain = create_model("gmr_resnet50", width=8)
    grouped = create_model("gmr_resnet50", width=8, groups=8)
    assert sum(p.numel() for p in grouped.parameters()) < sum(p.numel() for p in plain.parameters())
    dilated = create_model(
        "gmr_resnet50", width=8, features_only=True, replace_stride_with_dilation=(False, False, True)
    )
    assert dilated(torch.randn(2, 3, 32, 32))[-1].shape[2:] == (4, 4)
    with pytest.raises(TypeError, match="unknown option 'width_per_group'"):
        create_model("gmr_resnet50", width_per_group=4)


def test_35_the_stem_of_volumes_is_as_large_as_it_says():
    stem = create_model("gmr_r3d_9").stem.conv
    assert isinstance(stem, GMRConv3d)
    assert stem.kernel().shape == (24, 1, 3, 3, 3)
    with pytest.warns(UserWarning, match="symmetric in its equal axes only"):
        flat = create_model("gmr_r3d_9", stem_kernel_size=(3, 7, 7)).stem.conv.kernel()
    assert (flat[0, 0, :, 3, 0] != 0).any()


def test_36_the_unet_is_equivariant_by_default():
    network = create_model("gmr_unet", width=4).eval()
    assert_equivariant(network, torch.randn(1, 3, 33, 33))


def test_37_the_unet_takes_bias_false_and_prints_nothing(capsys):
    network = create_model("gmr_unet", width=4, bias=False)
    assert capsys.readouterr() == ("", "")
    assert [name for name in network.state_dict() if "conv" in name and name.endswith("bias")] == []
