"""The report of a conversion: every layer, why, how many parameters, and what still breaks equivariance."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from ringconv import EquivarianceWarning, GMRConv2d
from ringconv.convert import convert
from ringconv.models import resnet


def report_of(model, *args, **options):
    return convert(model, *args, return_report=True, **options)[1]


def test_every_layer_with_parameters_and_every_pooling_is_in_it():
    model = resnet(18, width=8)
    model.extra = nn.MaxPool2d(2)
    report = report_of(model, (9, 9, 5, 5))
    told = {row.name for row in report.layers}
    for name, layer in model.named_modules():
        if list(layer.parameters(recurse=False)) or "Pool" in type(layer).__name__:
            assert name in told
    assert report.converted == 17
    assert report.parameters_before == sum(p.numel() for p in model.parameters())
    assert report.parameters_before == sum(row.parameters_before for row in report.layers)
    assert report.parameters_after == sum(row.parameters_after for row in report.layers)


def test_it_fits_a_terminal_and_names_reasons_and_counts():
    model = nn.Sequential(
        nn.Conv2d(3, 64, 7, 2, 3), nn.BatchNorm2d(64), nn.MaxPool2d(3, 2, 1), nn.Conv2d(64, 8, (1, 9))
    )
    model = nn.ModuleDict({"a_long_name_" * 5: model})
    report = report_of(model)
    text = str(report)
    assert all(len(line) <= 100 for line in text.splitlines())
    assert text.startswith("1 of 4 layers became ring convolutions; 14,216 => 5,580 parameters\n")
    for part in (
        "Conv2d 3->64 7x7 /2 => Downsample + GMRConv2d 7x7",
        "9,472 => 836",
        "strided: down-sampling, then a ring convolution of stride 1",
        "overlapping or lopsided maxima depend on where the windows start: average pooling",
        "a kernel along one axis does not turn with the image",
        "with example_input= they are measured",
    ):
        assert part in " ".join(text.split()), part
    row = report.layers[0]
    assert (row.action, row.parameters_before, row.parameters_after) == ("converted", 9472, 836)


class WithPositions(nn.Module):
    def __init__(self):
        super().__init__()
        self.pos_embed = nn.Parameter(torch.zeros(1, 4, 8, 8))
        self.gamma = nn.Parameter(torch.ones(4))


class OwnLayer(nn.Module):
    def __init__(self):
        super().__init__()
        self.mixing = nn.Parameter(torch.ones(4, 4))


class BlurPool2d(nn.Module):
    stride = 2

    def forward(self, x):
        return nn.functional.avg_pool2d(x, 3, 2, 1)


@pytest.mark.parametrize(
    ("layer", "breaks"),
    [
        (nn.Flatten(), "flattens positions into features, unless the map is one pixel"),
        (nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Conv2d(2, 2, 1), nn.Flatten()), ""),
        (nn.Sequential(nn.Conv2d(3, 8, 1), nn.Linear(8 * 49, 10)), "392 features look like a flattened 7x7 map"),
        (nn.Sequential(nn.Conv2d(3, 8, 1), nn.Linear(8, 32), nn.Linear(32, 8)), ""),
        (nn.AdaptiveAvgPool2d((7, 7)), "keeps (7, 7) positions"),
        (nn.ZeroPad2d((0, 1, 0, 1)), "pads one side more than the other"),
        (nn.ReflectionPad2d((1, 1, 2, 2)), "pads one axis more than the other"),
        (nn.ReflectionPad2d(1), ""),
        (nn.PixelShuffle(2), "channels that stand for positions"),
        (nn.Upsample(scale_factor=2), ""),
        (nn.Upsample(size=(7, 7)), 'use mode="nearest-exact"'),
        (nn.Upsample(size=(7, 7), mode="bilinear"), ""),
        (nn.LayerNorm((4, 8, 8)), "has weights of its own for each position"),
        (nn.LayerNorm(4), ""),
        (nn.LSTM(4, 4), "reads positions one after the other"),
        (nn.FractionalMaxPool2d(2, output_size=4), "its windows do not turn with the image"),
        (nn.MultiheadAttention(4, 2), ""),
        (WithPositions(), "pos_embed (1, 4, 8, 8) tells positions apart"),
        (OwnLayer(), "cannot be judged, has mixing (4, 4)"),
        (nn.MaxPool2d((2, 1)), "its axes are not treated alike"),
        (nn.Conv2d(1, 1, 3, padding=(0, 1)), "its axes are not treated alike"),
        (nn.Conv2d(1, 1, 3, stride=(1, 2), padding=1), "its axes are not treated alike"),
        (nn.AvgPool2d(2, divisor_override=3), "the stride does not sample all borders alike"),
        (nn.MaxPool2d(3, 2, 1, return_indices=True), "the stride does not sample all borders alike"),
        (BlurPool2d(), ""),
        (nn.PReLU(4), ""),
        (nn.GroupNorm(2, 4), ""),
    ],
)
def test_what_still_breaks_equivariance(layer, breaks):
    report = report_of(nn.Sequential(layer))
    assert report.layers
    if breaks:
        assert any(breaks in remark for _, remark in report.breaks)
        assert breaks in " ".join(str(report).split())
    else:
        assert not report.breaks
        assert "No layer that is known to break equivariance is left." in str(report)


def test_without_a_report_there_is_a_warning_if_something_is_left():
    with pytest.warns(
        EquivarianceWarning, match=r"equivariant: 1 \(flattens positions.*\)\. convert\(\.\.\., return_report"
    ):
        convert(nn.Sequential(nn.Conv2d(3, 4, 3), nn.Flatten()))
    # No warning of what was asked for.
    convert(nn.Sequential(nn.Conv2d(3, 4, 3, 2), nn.MaxPool2d(3, 2)), strides="keep")


def test_strides_that_are_kept_are_reported():
    report = report_of(nn.Sequential(nn.Conv2d(3, 4, 3, 2, 1), nn.Conv2d(4, 4, 1, 2), nn.MaxPool2d(2)), strides="keep")
    assert [name for name, _ in report.breaks] == ["0", "1", "2"]


def test_a_transformer_is_told_apart():
    model = nn.Sequential(nn.Conv2d(3, 8, 16, 16), nn.LayerNorm(8), nn.Linear(8, 8))
    converted, report = convert(model, return_report=True)
    assert type(converted[0]) is nn.Conv2d
    assert report.converted == 0
    assert "no other spatial convolution in the model: not a convolutional network" in str(report)


# -- measured


class Flattening(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(3, 4, 3, padding=1)
        self.norm = nn.BatchNorm2d(4)
        self.head = nn.Linear(4 * 8 * 8, 5)

    def forward(self, x):
        return self.head(torch.relu(self.norm(self.conv(x))).flatten(1))


def test_a_loss_is_found_where_it_happens():
    x = torch.randn(2, 3, 8, 8)
    report = report_of(Flattening(), example_input=x)
    assert report.measured > 1e-3
    assert [(loss.name, loss.layer) for loss in report.losses] == [("(the model)", "in the forward of Flattening")]
    assert "(the model) (in the forward of Flattening) loses it" in str(report)

    padded = nn.Sequential(nn.Conv2d(3, 4, 3), nn.ZeroPad2d((0, 1, 0, 1)), nn.Conv2d(4, 4, 3), nn.AdaptiveAvgPool2d(1))
    report = report_of(padded, example_input=x)
    assert [loss.name for loss in report.losses] == ["1"]


@pytest.mark.parametrize("zero", [True, False])
def test_a_branch_that_starts_at_zero_is_seen(zero):
    class Residual(nn.Module):
        def __init__(self):
            super().__init__()
            self.branch = nn.Conv2d(3, 3, (1, 3), padding=(0, 1))
            self.scale = nn.Parameter(torch.full((3, 1, 1), 0.0 if zero else 1.0))

        def forward(self, x):
            return x + self.scale * self.branch(x)

    report = report_of(Residual(), example_input=torch.randn(1, 3, 9, 9))
    assert [loss.name for loss in report.losses] == ["branch"]


@pytest.mark.parametrize(("dimensions", "side"), [(1, 9), (2, 9), (3, 6)])
def test_nothing_is_lost_in_a_converted_network(dimensions, side):
    conv, norm = (
        (nn.Conv1d, nn.BatchNorm1d), (nn.Conv2d, nn.BatchNorm2d), (nn.Conv3d, nn.BatchNorm3d)
    )[dimensions - 1]  # fmt: skip
    model = nn.Sequential(conv(1, 4, 3, 2, 1), norm(4), nn.ReLU(inplace=True), conv(4, 4, 3, padding=1), conv(4, 2, 1))
    model.train()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    x = torch.randn(1, 1, *[side] * dimensions)
    converted, report = convert(model, example_input=x, return_report=True, inplace=True, skip="4")
    assert report.measured < 1e-10
    assert report.losses == ()
    assert "no layer loses it" in str(report)
    assert all(module.training for module in converted.modules())
    assert torch.equal(converted[1].running_mean, before["1.running_mean"])


class OfItsOwnDtype(nn.Module):
    """Casts, holds a kernel that is no buffer, and multiplies by a new matrix."""

    def __init__(self, kernel):
        super().__init__()
        self.conv = nn.Conv2d(3, 4, 3, padding=1)
        self.norm = nn.BatchNorm2d(4)
        self.kernel = kernel

    def forward(self, x):
        maps = self.norm(self.conv(x.float() / 255).float())
        return F.conv2d(maps, self.kernel, groups=4).mean((2, 3)) @ torch.eye(4)


@pytest.mark.parametrize("inplace", [True, False])
def test_a_network_of_one_dtype_is_measured_in_it(inplace):
    x = torch.randn(1, 3, 8, 8)
    report = report_of(OfItsOwnDtype(torch.ones(4, 1, 3, 3)), example_input=x, inplace=inplace)
    assert report.losses == ()
    assert report.measured < torch.finfo(torch.float32).eps ** 0.5
    report = report_of(OfItsOwnDtype(torch.rand(4, 1, 3, 3)), example_input=x, inplace=inplace)
    assert [loss.layer for loss in report.losses] == ["in the forward of OfItsOwnDtype"]


@pytest.mark.parametrize("inplace", [True, False])
def test_a_network_that_does_not_run_is_reported_without_a_measurement(inplace):
    model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.Flatten(), nn.Linear(9, 2))
    converted, report = convert(model, inplace=inplace, return_report=True, example_input=torch.randn(1, 3, 8, 8))
    assert isinstance(converted[0], GMRConv2d)
    assert (report.measured, report.losses) == (None, None)
    assert "RuntimeError: mat1 and mat2 shapes cannot be multiplied" in report.unmeasured
    assert "since the model did not run on the example" in " ".join(str(report).split())


def test_channels_last_and_tokens_are_understood():
    class Tokens(nn.Module):
        def __init__(self):
            super().__init__()
            self.conv = nn.Conv2d(3, 8, 3, padding=1)
            self.norm = nn.LayerNorm(8)
            self.attention = nn.MultiheadAttention(8, 2, batch_first=True)

        def forward(self, x):
            maps = self.norm(self.conv(x).permute(0, 2, 3, 1))
            tokens = maps.flatten(1, 2)
            return self.attention(tokens, tokens, tokens, need_weights=False)[0].mean(1)

    report = report_of(Tokens(), example_input=torch.randn(2, 3, 6, 6))
    assert report.measured < 1e-10
    assert not report.losses


@pytest.mark.parametrize(
    ("example", "error", "message"),
    [
        (torch.zeros(1, 3, 8, 8, dtype=torch.int64), TypeError, "must be a floating tensor, got torch.int64"),
        (torch.zeros(3, 8), ValueError, r"must be \(B, C, \*S\) with 1 to 3 axes, got shape \(3, 8\)"),
        (torch.zeros(1, 3, 8, 8, device="meta"), ValueError, "nothing can be measured on the meta device"),
    ],
)
def test_examples_that_cannot_be(example, error, message):
    model = nn.Sequential(nn.Conv2d(3, 4, 3))
    with pytest.raises(error, match=message):
        report_of(model, example_input=example, inplace=True)
    assert type(model[0]) is nn.Conv2d
