"""Leaving for other runtimes: ONNX, torch.export, AOTInductor, 8 bits; and predictions as a table."""

from ringconv._network import input_channels
from ringconv.deploy.check import ExportError
from ringconv.deploy.images import find_images
from ringconv.deploy.onnx import check_onnx, export_onnx, latencies
from ringconv.deploy.predict import Prediction, Predictions, predict, write_predictions
from ringconv.deploy.programs import export_aoti, export_program
from ringconv.deploy.quantize import Cost, Quantization, quantization_cost, quantize_onnx

__all__ = [
    "Cost",
    "ExportError",
    "Prediction",
    "Predictions",
    "Quantization",
    "check_onnx",
    "export_aoti",
    "export_onnx",
    "export_program",
    "find_images",
    "input_channels",
    "latencies",
    "predict",
    "quantization_cost",
    "quantize_onnx",
    "write_predictions",
]
