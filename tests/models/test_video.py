"""Networks of volumes and of video."""

import pytest
import torch

from ringconv import EquivarianceWarning, GMRConv3d
from ringconv.models import create_model


def test_video_kernels_are_split_into_space_and_time():
    for time_kernel_size in (3, 1):
        network = create_model("gmr_r2plus1d", width=4, time_kernel_size=time_kernel_size)
        rings = [layer for layer in network.modules() if isinstance(layer, GMRConv3d)]
        assert {layer.kernel_size for layer in rings} == {(1, 5, 5), (1, 9, 9)}
        assert network.stages[1][1].conv1.time.kernel_size == (time_kernel_size, 1, 1)


def test_with_a_time_kernel_of_one_frames_meet_in_the_pooling_only():
    network = create_model("gmr_r2plus1d", width=4, time_kernel_size=1, features_only=True).eval()
    x = torch.randn(1, 3, 3, 16, 16)
    changed = x.clone()
    changed[:, :, 2] += 1
    before, after = network(x)[0], network(changed)[0]
    torch.testing.assert_close(before[:, :, :2], after[:, :, :2])
    assert not torch.allclose(before[:, :, 2], after[:, :, 2])


def test_clips_keep_their_frames_in_the_stem():
    for name in ("r2plus1d", "gmr_r2plus1d"):
        network = create_model(name, width=4, features_only=True)
        sizes = [tuple(map_.shape[2:]) for map_ in network(torch.randn(1, 3, 5, 20, 22))]
        assert sizes == [(5, 10, 11), (3, 5, 6), (2, 3, 3), (1, 2, 2)]


def test_a_flat_stem_is_said_to_break_the_symmetry():
    with pytest.warns(EquivarianceWarning, match=r"stem_kernel_size=\(3, 7, 7\) is symmetric in its equal axes only"):
        network = create_model("gmr_r3d_9", width=4, stem_kernel_size=(3, 7, 7)).double().eval()
    x = torch.randn(1, 1, 12, 12, 12, dtype=torch.float64)
    torch.testing.assert_close(network(x.rot90(1, (3, 4))), network(x), rtol=1e-9, atol=0)
    assert not torch.allclose(network(x.rot90(1, (2, 3))), network(x), rtol=1e-3)


def test_impossible_options_are_explained():
    with pytest.raises(ValueError, match="time_kernel_size must be an odd int"):
        create_model("gmr_r2plus1d", time_kernel_size=2)
    with pytest.raises(ValueError, match=r"a kernel in space is square, so its size is one int, got \(3, 7, 7\)"):
        create_model("r2plus1d", stem_kernel_size=(3, 7, 7))
