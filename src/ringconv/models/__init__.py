"""Networks made of ring convolutions, and their plain counterparts."""

from ringconv.models.resnet import ResNet, gmr_resnet, resnet

__all__ = ["ResNet", "gmr_resnet", "resnet"]
