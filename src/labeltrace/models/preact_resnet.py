"""PreAct ResNet-18 in the variant of DivideMix, the backbone of DivideMix, RoLR and most noisy-label papers on CIFAR.

Paper: He, Zhang, Ren, Sun, "Identity Mappings in Deep Residual Networks", ECCV 2016 (arXiv 1603.05027). What the
network published with DivideMix changes, kept here: the stem is conv-BN-ReLU (the paper: a bare convolution); no
BatchNorm-ReLU before the head; every shortcut, the identity too, starts from the pre-activated input (the paper: the
identity carries the raw input). What differs from that network: the head averages over whatever size is left instead of
a fixed 4x4 window, which is the same thing for 32-pixel images. Parameter names (shortcut.0, linear) and torch's
default initialisation are its own.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from labeltrace.models.inputs import image_channels
from labeltrace.models.output import Output, check_pooling, pool, walk
from labeltrace.models.resnet import WIDTHS, conv3x3, make_stage


class PreActBlock(nn.Module):
    """Pre-activation block: `a = relu(bn(x))`, output `conv(relu(bn(conv(a)))) + shortcut(a)`.

    [B, D, H, W] → [B, D', H/stride, W/stride].

    >>> PreActBlock(4, 8, 2)(torch.zeros(2, 4, 6, 6)).shape
    torch.Size([2, 8, 3, 3])
    """

    def __init__(self, inputs: int, outputs: int, stride: int = 1) -> None:
        super().__init__()
        self.bn1 = nn.BatchNorm2d(inputs)
        self.conv1 = conv3x3(inputs, outputs, stride)
        self.bn2 = nn.BatchNorm2d(outputs)
        self.conv2 = conv3x3(outputs, outputs)
        self.shortcut = nn.Sequential()
        if stride != 1 or inputs != outputs:
            self.shortcut.append(nn.Conv2d(inputs, outputs, kernel_size=1, stride=stride, bias=False))

    def forward(self, x: Tensor) -> Tensor:
        """Return the block's output."""
        active = torch.relu(self.bn1(x))
        out = self.conv2(torch.relu(self.bn2(self.conv1(active))))
        return out + self.shortcut(active)


class PreActResNet(nn.Module):
    """Pre-activation residual network with four stages; the features are the outputs of layer1..layer4.

    Args:
        blocks: number of blocks of each of the four stages.
        num_classes: C.
        in_channels: channels of the images.
        pooling: how stage outputs become features, "gap" or "flatten"; the head always averages.

    Raises:
        InputError: unknown pooling.

    >>> network = PreActResNet((1, 1, 1, 1), num_classes=10)
    >>> output = network(torch.zeros(2, 3, 16, 16))
    >>> output.logits.shape, [feature.shape[1] for feature in output.features]
    (torch.Size([2, 10]), [64, 128, 256, 512])
    """

    def __init__(self, blocks: Sequence[int], num_classes: int, in_channels: int = 3, pooling: str = "gap") -> None:
        super().__init__()
        self.pooling = check_pooling(pooling)
        self.conv1 = conv3x3(in_channels, WIDTHS[0])
        self.bn1 = nn.BatchNorm2d(WIDTHS[0])
        self.layer1 = make_stage(PreActBlock, WIDTHS[0], WIDTHS[0], blocks[0], stride=1)
        self.layer2 = make_stage(PreActBlock, WIDTHS[0], WIDTHS[1], blocks[1], stride=2)
        self.layer3 = make_stage(PreActBlock, WIDTHS[1], WIDTHS[2], blocks[2], stride=2)
        self.layer4 = make_stage(PreActBlock, WIDTHS[2], WIDTHS[3], blocks[3], stride=2)
        self.linear = nn.Linear(WIDTHS[3], num_classes)

    def forward(self, x: Tensor) -> Output:
        """Return logits [B, C] and four features for images [B, channels, H, W]."""
        x = torch.relu(self.bn1(self.conv1(x)))
        x, features = walk(x, (self.layer1, self.layer2, self.layer3, self.layer4), self.pooling)
        return Output(self.linear(pool(x, "gap")), features)


def preact_resnet18(num_classes: int, input_shape: tuple[int, ...], pooling: str = "gap") -> PreActResNet:
    """Build DivideMix's PreAct ResNet-18: 11,171,274 parameters for 10 classes, 11,217,444 for 100.

    >>> sum(parameter.numel() for parameter in preact_resnet18(10, (3, 32, 32)).parameters())
    11171274
    """
    return PreActResNet((2, 2, 2, 2), num_classes, image_channels("preact_resnet18", input_shape), pooling)
