"""Inception-ResNet-v2 for large images.

Paper: Szegedy, Ioffe, Vanhoucke, Alemi, "Inception-v4, Inception-ResNet and the Impact of Residual Connections on
Learning", AAAI 2017 (arXiv 1602.07261). The widths, the counts 10, 20 and 10 of the blocks and the scales 0.17, 0.10
and 0.20 of their residuals are those of Google's published network, which differs from the paper's figures; so are the
first mixed block in place of the paper's branched stem, the last block without scale and ReLU, and BatchNorm's epsilon
of 0.001. What differs: no dropout before the head (Google: keep 0.8), initialisation is torch's default.

Parameter names are those of the PyTorch port of these weights (Cadene's `inceptionresnetv2`; timm's
`inception_resnet_v2` but for the classifier, `last_linear` here and `classif` there), so that either checkpoint loads
by path, see `load_weights`. Both were trained at 299 pixels with mean and deviation 0.5.

Stages: after the stem (mixed_5b), after the blocks on the 35x35 grid (repeat), after those on the 17x17 grid
(repeat_1), and the end before pooling (conv2d_7b). All four have passed a ReLU.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from labeltrace.errors import InputError
from labeltrace.models.inputs import default_model, image_channels
from labeltrace.models.output import Output, check_pooling, pool

SMALLEST = 75  # pixels: five strides without padding leave one position of 75 pixels and none of 74
EPSILON = 0.001  # of BatchNorm, as the published weights were trained
LAST_WIDTH = 1536

# A step is (width, kernel) or (width, kernel, stride), a branch a tuple of steps, a row of branches a mixed block.
Kernel = int | tuple[int, int]
Step = tuple[int, Kernel] | tuple[int, Kernel, int]
Branch = tuple[Step, ...]

MIXED_5B: tuple[Branch, ...] = (((96, 1),), ((48, 1), (64, 5)), ((64, 1), (96, 3), (96, 3)))
MIXED_6A: tuple[Branch, ...] = (((384, 3, 2),), ((256, 1), (256, 3), (384, 3, 2)))
MIXED_7A: tuple[Branch, ...] = (
    ((256, 1), (384, 3, 2)),
    ((256, 1), (288, 3, 2)),
    ((256, 1), (288, 3), (320, 3, 2)),
)
BLOCK_35: tuple[Branch, ...] = (((32, 1),), ((32, 1), (32, 3)), ((32, 1), (48, 3), (64, 3)))
BLOCK_17: tuple[Branch, ...] = (((192, 1),), ((128, 1), (160, (1, 7)), (192, (7, 1))))
BLOCK_8: tuple[Branch, ...] = (((192, 1),), ((192, 1), (224, (1, 3)), (256, (3, 1))))


class ConvUnit(nn.Module):
    """Convolution, BatchNorm, ReLU; `padded` keeps the size at stride 1, at stride 2 there is never padding.

    >>> ConvUnit(4, 8, (1, 7))(torch.zeros(2, 4, 5, 9)).shape
    torch.Size([2, 8, 5, 9])
    >>> ConvUnit(4, 8, 3, stride=2)(torch.zeros(2, 4, 9, 9)).shape
    torch.Size([2, 8, 4, 4])
    """

    def __init__(self, inputs: int, outputs: int, kernel: Kernel, stride: int = 1, padded: bool = True) -> None:
        super().__init__()
        height, width = (kernel, kernel) if isinstance(kernel, int) else kernel
        padding = (height // 2, width // 2) if padded and stride == 1 else 0
        self.conv = nn.Conv2d(inputs, outputs, (height, width), stride=stride, padding=padding, bias=False)
        self.bn = nn.BatchNorm2d(outputs, eps=EPSILON)

    def forward(self, x: Tensor) -> Tensor:
        """Return [B, outputs, H', W'] for [B, inputs, H, W]."""
        return torch.relu(self.bn(self.conv(x)))


def branch(inputs: int, steps: Branch) -> nn.Module:
    """Return the units of one branch in a row; a branch of one step is that unit itself, as the names want it.

    >>> [name for name, _ in branch(4, ((8, 1),)).named_parameters()]
    ['conv.weight', 'bn.weight', 'bn.bias']
    >>> branch(4, ((8, 1), (6, 3)))(torch.zeros(2, 4, 5, 5)).shape
    torch.Size([2, 6, 5, 5])
    """
    units = []
    for step in steps:
        units.append(ConvUnit(inputs, step[0], step[1], stride=step[2] if len(step) == 3 else 1))
        inputs = step[0]
    return units[0] if len(units) == 1 else nn.Sequential(*units)


class Mixed(nn.Module):
    """Branches beside each other, their outputs appended: branch0, branch1, …, then `pooled`.

    Args:
        inputs: channels that come in.
        branches: the steps of each branch.
        pooled: one more branch, which starts with a pooling.

    >>> Mixed(4, (((8, 1),), ((2, 1), (3, 3))), nn.Identity())(torch.zeros(2, 4, 5, 5)).shape
    torch.Size([2, 15, 5, 5])
    """

    def __init__(self, inputs: int, branches: tuple[Branch, ...], pooled: nn.Module) -> None:
        super().__init__()
        for index, module in enumerate([*(branch(inputs, steps) for steps in branches), pooled]):
            self.add_module(f"branch{index}", module)

    def forward(self, x: Tensor) -> Tensor:
        """Return the outputs of all branches in one tensor [B, sum of widths, H', W']."""
        return torch.cat([module(x) for module in self.children()], dim=1)


class ResidualBlock(nn.Module):
    """`relu(x + scale * conv(branches of x))`, [B, D, H, W] → the same; the 1x1 convolution has a bias, no BatchNorm.

    Args:
        inputs: D.
        branches: the steps of each branch.
        scale: of the residual; below 1 it keeps the training of so wide a network stable (paper, section 3.3).
        activated: whether the ReLU at the end is there.

    >>> ResidualBlock(6, (((2, 1),), ((2, 1), (3, 3))), scale=0.1)(torch.zeros(2, 6, 5, 5)).shape
    torch.Size([2, 6, 5, 5])
    """

    def __init__(self, inputs: int, branches: tuple[Branch, ...], scale: float, activated: bool = True) -> None:
        super().__init__()
        self.scale, self.activated = scale, activated
        self.names = [f"branch{index}" for index in range(len(branches))]
        for name, steps in zip(self.names, branches, strict=True):
            self.add_module(name, branch(inputs, steps))
        self.conv2d = nn.Conv2d(sum(steps[-1][0] for steps in branches), inputs, kernel_size=1)

    def forward(self, x: Tensor) -> Tensor:
        """Return the block's output."""
        mixed = torch.cat([self.get_submodule(name)(x) for name in self.names], dim=1)
        out = x + self.scale * self.conv2d(mixed)
        return torch.relu(out) if self.activated else out


def repeat(count: int, inputs: int, branches: tuple[Branch, ...], scale: float) -> nn.Sequential:
    """Return `count` residual blocks in a row.

    >>> len(repeat(3, 6, (((2, 1),),), scale=0.1))
    3
    """
    return nn.Sequential(*(ResidualBlock(inputs, branches, scale) for _ in range(count)))


class InceptionResNetV2(nn.Module):
    """Inception-ResNet-v2 with four stages; the features are the outputs of mixed_5b, repeat, repeat_1 and conv2d_7b.

    Args:
        num_classes: C.
        in_channels: channels of the images.
        pooling: how stage outputs become features, "gap" or "flatten"; the head always averages.

    Raises:
        InputError: unknown pooling.

    >>> with torch.device("meta"):  # shapes without drawing the parameters
    ...     output = InceptionResNetV2(num_classes=10)(torch.zeros(2, 3, 75, 75))
    >>> output.logits.shape, [feature.shape[1] for feature in output.features]
    (torch.Size([2, 10]), [320, 320, 1088, 1536])
    """

    def __init__(self, num_classes: int, in_channels: int = 3, pooling: str = "gap") -> None:
        super().__init__()
        self.pooling = check_pooling(pooling)
        self.conv2d_1a = ConvUnit(in_channels, 32, 3, stride=2)
        self.conv2d_2a = ConvUnit(32, 32, 3, padded=False)
        self.conv2d_2b = ConvUnit(32, 64, 3)
        self.maxpool_3a = nn.MaxPool2d(3, stride=2)
        self.conv2d_3b = ConvUnit(64, 80, 1)
        self.conv2d_4a = ConvUnit(80, 192, 3, padded=False)
        self.maxpool_5a = nn.MaxPool2d(3, stride=2)
        average = nn.AvgPool2d(3, stride=1, padding=1, count_include_pad=False)
        self.mixed_5b = Mixed(192, MIXED_5B, nn.Sequential(average, ConvUnit(192, 64, 1)))
        self.repeat = repeat(10, 320, BLOCK_35, scale=0.17)
        self.mixed_6a = Mixed(320, MIXED_6A, nn.MaxPool2d(3, stride=2))
        self.repeat_1 = repeat(20, 1088, BLOCK_17, scale=0.10)
        self.mixed_7a = Mixed(1088, MIXED_7A, nn.MaxPool2d(3, stride=2))
        self.repeat_2 = repeat(9, 2080, BLOCK_8, scale=0.20)
        self.block8 = ResidualBlock(2080, BLOCK_8, scale=1.0, activated=False)
        self.conv2d_7b = ConvUnit(2080, LAST_WIDTH, 1)
        self.last_linear = nn.Linear(LAST_WIDTH, num_classes)

    def forward(self, x: Tensor) -> Output:
        """Return logits [B, C] and four features for images [B, channels, H, W], H and W at least 75."""
        x = self.maxpool_3a(self.conv2d_2b(self.conv2d_2a(self.conv2d_1a(x))))
        x = self.maxpool_5a(self.conv2d_4a(self.conv2d_3b(x)))
        stem = self.mixed_5b(x)
        grid35 = self.repeat(stem)
        grid17 = self.repeat_1(self.mixed_6a(grid35))
        grid8 = self.conv2d_7b(self.block8(self.repeat_2(self.mixed_7a(grid17))))
        features = tuple(pool(stage, self.pooling) for stage in (stem, grid35, grid17, grid8))
        return Output(self.last_linear(pool(grid8, "gap")), features)


def inception_resnet_v2(num_classes: int, input_shape: tuple[int, ...], pooling: str = "gap") -> InceptionResNetV2:
    """Build Inception-ResNet-v2, for images of 75 pixels and more: 55,843,464 parameters for 1,000 classes in colour.

    Raises:
        InputError: features, or images with a side below 75 pixels.

    >>> with torch.device("meta"):  # counts without drawing the parameters
    ...     network = inception_resnet_v2(1000, (3, 299, 299))
    >>> sum(parameter.numel() for parameter in network.parameters())
    55843464
    """
    channels = image_channels("inception_resnet_v2", input_shape)
    if min(input_shape[1:]) < SMALLEST:
        raise InputError(
            f"model 'inception_resnet_v2' takes images of at least {SMALLEST} pixels a side, got shape {input_shape}: "
            f"take model {default_model(input_shape)!r}"
        )
    return InceptionResNetV2(num_classes, channels, pooling)
