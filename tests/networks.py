"""GMR-ResNet-18 built from the layers alone, for tests that need a whole network."""

from torch import nn

from ringconv import Downsample, GMRConv2d


class Block(nn.Module):
    def __init__(self, in_channels, out_channels, stride, kernel_size, **options):
        super().__init__()
        padding = kernel_size // 2
        self.main = nn.Sequential(
            Downsample(stride),
            GMRConv2d(in_channels, out_channels, kernel_size, padding=padding, bias=False, **options),
            nn.BatchNorm2d(out_channels),
            nn.ReLU(),
            GMRConv2d(out_channels, out_channels, kernel_size, padding=padding, bias=False, **options),
            nn.BatchNorm2d(out_channels),
        )
        self.shortcut = nn.Identity()
        if stride != 1 or in_channels != out_channels:
            self.shortcut = nn.Sequential(
                Downsample(stride), nn.Conv2d(in_channels, out_channels, 1, bias=False), nn.BatchNorm2d(out_channels)
            )

    def forward(self, x):
        return nn.functional.relu(self.main(x) + self.shortcut(x))


def gmr_resnet18(kernel_size=(9, 9, 5, 5), rings=(None,) * 4, width=64, num_classes=10, **options):
    # The stem keeps its three rings in every configuration but the one that is not circular.
    layers = [GMRConv2d(3, width, 5, padding=2, bias=False, **options), nn.BatchNorm2d(width), nn.ReLU(), Downsample(2)]
    channels = width
    for stage, (size, n) in enumerate(zip(kernel_size, rings, strict=True)):
        for block in range(2):
            stride = 2 if stage > 0 and block == 0 else 1
            layers.append(Block(channels, width * 2**stage, stride, size, rings=n, **options))
            channels = width * 2**stage
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(channels, num_classes))
