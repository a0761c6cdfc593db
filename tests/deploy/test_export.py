"""Files for other runtimes compute what the network computes, at sizes they have not seen."""

import json
import subprocess
import sys
import textwrap

import numpy as np
import onnx
import pytest
import torch
from torch import nn

from ringconv import Downsample, GMRConv2d, Upsample, deploy
from ringconv.commands._terminal import UsageError
from ringconv.commands.export import export
from ringconv.conversion.resizing import SizeRule, symmetric_max_pool
from ringconv.deploy.onnx import runner
from ringconv.models import create_model
from ringconv.models.checkpoint import save_model
from ringconv.pooling import DiscView, GlobalDisc

SIZES = ((2, 3, 40, 40), (1, 3, 33, 47), (3, 3, 17, 64))


def every_kind_of_layer():
    """Small, so that it exports in seconds."""
    torch.manual_seed(0)
    return nn.Sequential(
        GMRConv2d(3, 4, 5, padding=2, bias=False),
        nn.BatchNorm2d(4),
        Downsample(2),
        GMRConv2d(4, 4, 3, padding=1, padding_mode="reflect"),
        nn.ReLU(),
        symmetric_max_pool(SizeRule.ceil_division((2, 2))),
        GMRConv2d(4, 4, 3, padding=1, groups=2),
        Upsample(2),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
    ).eval()


def assert_equal_at_all_sizes(model, run):
    for shape in SIZES:
        x = torch.randn(shape)
        with torch.no_grad():
            expected = model(x)
        got = torch.as_tensor(np.asarray(run(x)))
        assert (got - expected).abs().max() <= 1e-4 * expected.abs().max(), shape


def test_onnx_at_every_size(tmp_path):
    model = every_kind_of_layer()
    path = deploy.export_onnx(model, tmp_path / "m.onnx", torch.randn(1, 3, 40, 40), "factored", metadata={"a": "b"})
    run = runner(path)
    assert_equal_at_all_sizes(model, lambda x: run(x.numpy())[0])
    assert run(np.zeros((1, 3, 5, 6), np.float32))[0].shape == (1, 4)  # smaller than anything that was traced
    stored = onnx.load(path)
    assert {p.key: p.value for p in stored.metadata_props}["a"] == "b"
    assert stored.graph.input[0].name == "image"
    assert [file.name for file in tmp_path.iterdir()] == ["m.onnx"]


@pytest.mark.slow
def test_onnx_at_a_fixed_odd_size(tmp_path):
    example = torch.randn(1, 3, 33, 47)
    path = deploy.export_onnx(every_kind_of_layer(), tmp_path / "m.onnx", example, free_sizes=False)
    assert runner(path)(np.zeros((5, 3, 33, 47), np.float32))[0].shape == (5, 4)


def test_sizes_are_divided_as_python_does(tmp_path):
    class Halved(nn.Module):
        def forward(self, x):
            height, width = x.shape[2:]
            return nn.functional.interpolate(x, size=(-(-height // 2), -(-width // 2)))

    # The export checks its own values, at odd sizes too.
    deploy.export_onnx(nn.Sequential(nn.Conv2d(3, 4, 1), Halved()), tmp_path / "m.onnx", torch.randn(1, 3, 33, 40))


class PooledToFixedSizes(nn.Module):
    """Its outputs are nested, as those of networks that segment or detect."""

    def __init__(self):
        super().__init__()
        self.conv, self.pool = nn.Conv2d(3, 4, 3), nn.AdaptiveAvgPool2d((2, 3))

    def forward(self, x):
        x = self.conv(x)
        maxima = nn.functional.adaptive_max_pool2d(x, (1, 3))
        return {"mean": self.pool(x), "max": [maxima, (nn.functional.adaptive_avg_pool2d(x, (None, 1)),)]}


@pytest.mark.parametrize("traced", [False, True])
def test_pooling_to_fixed_sizes_is_right_at_every_size(tmp_path, traced):
    model = torch.fx.symbolic_trace(PooledToFixedSizes()) if traced else PooledToFixedSizes()
    path = deploy.export_onnx(model.eval(), tmp_path / "m.onnx", torch.randn(1, 3, 32, 32))
    sizes = ((9, 12), (64, 64), (150, 211))
    assert deploy.check_onnx(path, model, [torch.randn(2, 3, *size) for size in sizes]) < 1e-4


def test_a_program_pools_to_fixed_sizes_as_torch_does(tmp_path):
    model = torch.fx.symbolic_trace(PooledToFixedSizes()).eval()
    program = torch.export.load(deploy.export_program(model, tmp_path / "m.pt2", torch.randn(1, 3, 64, 64))).module()
    x = torch.randn(1, 3, 200, 210)  # more than twice what is traced
    torch.testing.assert_close(program(x), model(x))


def test_indices_of_maxima_are_refused(tmp_path):
    model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.AdaptiveMaxPool2d(2, return_indices=True))
    with pytest.raises(ValueError, match="returns the indices of its maxima cannot be exported"):
        deploy.export_onnx(model, tmp_path / "m.onnx", torch.randn(1, 3, 32, 32))


def test_a_size_that_the_model_does_not_take_is_not_tried(tmp_path):
    class Placed(nn.Module):
        def __init__(self):
            super().__init__()
            self.conv, self.places = nn.Conv2d(3, 4, 3), nn.Parameter(torch.randn(4, 80, 80))

        def forward(self, x):
            x = self.conv(x)
            return x + self.places[:, : x.shape[2], : x.shape[3]]

    assert deploy.export_onnx(Placed(), tmp_path / "m.onnx", torch.randn(1, 3, 50, 50)).exists()


@pytest.mark.parametrize("dimensions", [1, 2, 3])
def test_discs_at_every_size(tmp_path, dimensions):
    conv = {1: nn.Conv1d, 2: nn.Conv2d, 3: nn.Conv3d}[dimensions](3, 4, 3)
    model = nn.Sequential(DiscView(dimensions), conv, GlobalDisc(dimensions))
    deploy.export_onnx(model, tmp_path / "m.onnx", torch.randn(1, 3, *[12] * dimensions))  # which checks it


def test_what_onnx_does_not_have_is_said(tmp_path):
    class Eigenvalues(nn.Module):
        def forward(self, x):
            return torch.linalg.eigvalsh(x @ x.mT)

    with pytest.raises(deploy.ExportError, match=r"torch cannot write this model as ONNX.*export_program"):
        deploy.export_onnx(Eigenvalues(), tmp_path / "m.onnx", torch.randn(1, 1, 5, 5), free_sizes=False)
    assert not list(tmp_path.iterdir())


def test_a_program_that_cannot_run_at_the_examples_size_is_not_written(tmp_path):
    model = create_model("gmr_resnet18", width=2, kernel_size=3).eval()
    example = torch.randn(1, 3, 16, 16)
    with pytest.raises(deploy.ExportError, match=r"\(1, 3, 16, 16\) fails in the program.*free_sizes=False"):
        deploy.export_program(model, tmp_path / "m.pt2", example)
    assert not list(tmp_path.iterdir())
    program = torch.export.load(deploy.export_program(model, tmp_path / "m.pt2", example, free_sizes=False)).module()
    torch.testing.assert_close(program(example), model(example), rtol=1e-4, atol=1e-5)


def test_programs_in_half_precision_may_round(tmp_path):
    model = nn.Sequential(GMRConv2d(3, 8, 5, padding=2), nn.BatchNorm2d(8), nn.ReLU(), GMRConv2d(8, 4, 5)).bfloat16()
    assert deploy.export_program(model, tmp_path / "m.pt2", torch.randn(1, 3, 20, 20).bfloat16()).exists()


def test_signals_and_other_precisions_are_exported_by_the_command(tmp_path):
    model = create_model("gmr_resnet18", dimensions=1, width=2, kernel_size=3, num_classes=2).double()
    export(save_model(tmp_path / "one.safetensors", model), latency=False)
    assert runner(tmp_path / "one.onnx")(np.zeros((1, 3, 64), np.float32))[0].shape == (1, 2)


def test_a_wrong_file_is_noticed(tmp_path):
    model = nn.Sequential(GMRConv2d(3, 4, 3))
    path = deploy.export_onnx(model, tmp_path / "m.onnx", torch.randn(1, 3, 9, 9), free_sizes=False)
    assert deploy.check_onnx(path, model, [torch.randn(5, 3, 9, 9)]) < 1e-5
    with pytest.raises(deploy.ExportError, match=r"\(1, 3, 12, 9\) fails in onnxruntime.*free_sizes=False"):
        deploy.check_onnx(path, model, [torch.randn(1, 3, 12, 9)])
    model[0].weight.data.mul_(1.01)
    with pytest.raises(deploy.ExportError, match="differs from the model by"):
        deploy.check_onnx(path, model, [torch.randn(1, 3, 9, 9)])


@pytest.mark.slow
def test_program_at_every_size_without_ringconv(tmp_path):
    model = every_kind_of_layer()
    path = deploy.export_program(model, tmp_path / "m.pt2", torch.randn(1, 3, 40, 40))
    examples = [(x := torch.randn(shape), model(x).detach()) for shape in SIZES]
    torch.save(examples, tmp_path / "examples")
    script = """
        import sys, torch
        sys.modules["ringconv"] = None  # importing it fails from here on
        module = torch.export.load(sys.argv[1]).module()
        for x, expected in torch.load(sys.argv[2]):
            assert (module(x) - expected).abs().max() <= 1e-4 * expected.abs().max(), x.shape
        print("equal")
    """
    command = [sys.executable, "-c", textwrap.dedent(script), str(path), str(tmp_path / "examples")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.stdout.strip() == "equal", done.stderr


@pytest.mark.slow
def test_aoti_at_every_size(tmp_path):
    model = every_kind_of_layer()
    path = deploy.export_aoti(model, tmp_path / "m.aoti.pt2", torch.randn(1, 3, 40, 40))
    run = torch._inductor.aoti_load_package(str(path))
    assert_equal_at_all_sizes(model, run)


def checkpoint_of(tmp_path, **preprocessing):
    model = create_model("gmr_resnet18", num_classes=2, width=4, kernel_size=3)
    model(torch.randn(8, 3, 32, 32))
    return model.eval(), save_model(
        tmp_path / "net.safetensors", model, class_names=("a", "b"), preprocessing=preprocessing
    )


def data_of(tmp_path):
    draw = np.random.default_rng(0)
    parts = {f"{split}_images": draw.integers(0, 256, (20, 32, 32, 3), dtype=np.uint8) for split in ("train", "test")}
    labels = {f"{split}_labels": np.arange(20)[:, None] % 2 for split in ("train", "test")}
    np.savez(tmp_path / "data.npz", **parts, **labels)
    return tmp_path / "data.npz"


def test_what_cannot_be_done_is_said_first(tmp_path):
    with pytest.raises(UsageError, match="there is no checkpoint"):
        export(tmp_path / "none")
    with pytest.raises(UsageError, match="quantisation is for onnx, not for pt2"):
        export(tmp_path / "none", format="pt2", quantize="static")
    with pytest.raises(UsageError, match="give --data or --images"):
        export(tmp_path / "none", quantize="static")


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["dynamic", "static"])
def test_command_with_quantisation(tmp_path, capsys, monkeypatch, mode):
    monkeypatch.setenv("RINGCONV_CACHE", str(tmp_path / "cache"))
    _, checkpoint = checkpoint_of(tmp_path, size=32)
    export(checkpoint, quantize=mode, data=str(data_of(tmp_path)), out=tmp_path / "out" / "net.onnx")
    printed = capsys.readouterr().out
    assert "factored (written)" in printed
    assert "of 20 images keep their class" in printed
    assert "accuracy" in printed
    files = {file.name for file in (tmp_path / "out").iterdir()}
    assert files == {"net.onnx", "net.int8.onnx"}
    about = {p.key: p.value for p in onnx.load(tmp_path / "out" / "net.onnx").metadata_props}
    assert json.loads(about["ringconv"])["class_names"] == ["a", "b"]
    run = runner(tmp_path / "out" / "net.int8.onnx")
    kinds = {node.op_type for node in onnx.load(tmp_path / "out" / "net.int8.onnx").graph.node}
    assert kinds & {"ConvInteger", "QuantizeLinear"}
    assert run(np.zeros((4, 3, 35, 32), np.float32))[0].shape == (4, 2)


@pytest.mark.slow
@pytest.mark.parametrize("fixed_size", [False, True])
def test_command_for_programs(tmp_path, capsys, fixed_size):
    model, checkpoint = checkpoint_of(tmp_path)
    export(checkpoint, format="pt2", form="dense", size=40, fixed_size=fixed_size)
    assert "net.pt2" in capsys.readouterr().out
    module = torch.export.load(tmp_path / "net.pt2").module()
    for shape in ((1, 3, 40, 40), (3, 3, 40, 40)) if fixed_size else SIZES:
        x = torch.randn(shape)
        torch.testing.assert_close(module(x), model(x), rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("mode", ["dynamic", "static"])
def test_quantisation_costs_no_more_than_its_steps(tmp_path, mode):
    torch.manual_seed(2)
    model, x = nn.Sequential(GMRConv2d(3, 4, 3)).eval(), torch.rand(8, 3, 9, 9)
    path = deploy.export_onnx(model, tmp_path / "m.onnx", x[:1], free_sizes=False)
    small = deploy.quantize_onnx(path, tmp_path / "s.onnx", mode, [x.numpy()])
    with torch.no_grad():
        expected, kernel = model(x), model[0].kernel()
    # Half a step of the image (8 bits of 0 to 1) at every tap, of the kernel at every pixel, and of the output.
    steps = {"dynamic": (kernel.max() - kernel.min()) / 255, "static": kernel.abs().max() / 63}
    image = kernel.abs().sum((1, 2, 3)).max() / 255 / 2
    weights = x.unfold(2, 3, 1).unfold(3, 3, 1).sum((1, 4, 5)).max() * steps[mode] / 2
    outputs = (expected.max() - expected.min()) / 255 / 2
    error = np.abs(runner(small)(x.numpy())[0] - expected.numpy()).max()
    assert 0 < error <= image + weights + outputs
    cost = deploy.quantization_cost(path, path, [x.numpy()] * 2)
    assert (cost.images, cost.agreement, cost.accuracy) == (16, 1, None)


def test_quantisation_is_checked(tmp_path):
    with pytest.raises(ValueError, match="got none"):
        deploy.quantize_onnx(tmp_path / "m.onnx", tmp_path / "o.onnx", "static")
    with pytest.raises(ValueError, match="got 'int4'"):
        deploy.quantize_onnx(tmp_path / "m.onnx", tmp_path / "o.onnx", "int4")


def test_exporting_leaves_the_mode_of_the_model(tmp_path):
    model = create_model("gmr_resnet18", width=4, num_classes=3).train()
    deploy.export_onnx(model, tmp_path / "net.onnx", torch.zeros(1, 3, 32, 32), free_sizes=False)
    assert all(module.training for module in model.modules())
