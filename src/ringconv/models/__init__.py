"""Networks made of ring convolutions, and their plain counterparts, by name."""

from ringconv.models._timm import offer_to_timm
from ringconv.models.checkpoint import load_model, save_model
from ringconv.models.features import FeatureInfo
from ringconv.models.official import import_official
from ringconv.models.registry import ModelEntry, create_model, list_models, model_entry, register_model
from ringconv.models.resnet import ResNet, gmr_resnet, resnet
from ringconv.models.unet import UNet

__all__ = [
    "FeatureInfo",
    "ModelEntry",
    "ResNet",
    "UNet",
    "create_model",
    "gmr_resnet",
    "import_official",
    "list_models",
    "load_model",
    "model_entry",
    "register_model",
    "resnet",
    "save_model",
]

offer_to_timm()
