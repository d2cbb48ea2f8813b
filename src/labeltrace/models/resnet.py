"""ResNet-18, -34 and -50 for small images, and ResNet-50 for large ones.

Paper: He, Zhang, Ren, Sun, "Deep Residual Learning for Image Recognition", CVPR 2016 (arXiv 1512.03385), the ImageNet
networks of its Table 1. What differs for small images: the stem is one 3x3 convolution of stride 1 without max pooling,
the variant that noisy-label papers train on CIFAR, so a 32-pixel image reaches the last stage as 4x4. `resnet50_large`
keeps the paper's stem (7x7 convolution of stride 2, 3x3 max pooling of stride 2). In both, shortcuts that change width
are 1x1 convolutions with BatchNorm (the paper's option B), and a bottleneck has its stride on the 3x3 convolution, as
torchvision has it (the paper: on the first 1x1). Parameter names are torchvision's (conv1, bn1, layer1..4,
downsample.0/1, fc), so that its ImageNet checkpoints fit `resnet50_large`, see `load_weights`. Initialisation is
torch's default, as in the noisy-label papers' codes; the last BatchNorm of a block does not start at zero.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import ClassVar

import torch
from torch import Tensor, nn

from labeltrace.models.inputs import image_channels
from labeltrace.models.output import Output, check_pooling, pool, walk

WIDTHS = (64, 128, 256, 512)


def conv3x3(inputs: int, outputs: int, stride: int = 1) -> nn.Conv2d:
    """Return a 3x3 convolution that keeps the size at stride 1; no bias, because BatchNorm follows or precedes it.

    >>> conv3x3(3, 8, stride=2)
    Conv2d(3, 8, kernel_size=(3, 3), stride=(2, 2), padding=(1, 1), bias=False)
    """
    return nn.Conv2d(inputs, outputs, kernel_size=3, stride=stride, padding=1, bias=False)


def projection(inputs: int, outputs: int, stride: int) -> nn.Module:
    """Return the shortcut of a block: the identity, or a 1x1 convolution with BatchNorm where the shape changes.

    >>> projection(64, 64, stride=1)
    Identity()
    >>> len(projection(64, 128, stride=2))
    2
    """
    if stride == 1 and inputs == outputs:
        return nn.Identity()
    return nn.Sequential(nn.Conv2d(inputs, outputs, kernel_size=1, stride=stride, bias=False), nn.BatchNorm2d(outputs))


def make_stage(
    block: Callable[[int, int, int], nn.Module], inputs: int, outputs: int, count: int, stride: int
) -> nn.Sequential:
    """Stack `count` blocks; the first changes width and resolution, the others keep them.

    >>> len(make_stage(BasicBlock, 64, 128, count=3, stride=2))
    3
    """
    blocks = [block(inputs, outputs, stride)]
    blocks += [block(outputs, outputs, 1) for _ in range(count - 1)]
    return nn.Sequential(*blocks)


class BasicBlock(nn.Module):
    """Residual block: `relu(bn(conv(relu(bn(conv(x))))) + shortcut(x))`, [B, D, H, W] → [B, D', H/stride, W/stride].

    >>> BasicBlock(4, 8, 2)(torch.zeros(2, 4, 6, 6)).shape
    torch.Size([2, 8, 3, 3])
    """

    expansion: ClassVar[int] = 1

    def __init__(self, inputs: int, outputs: int, stride: int = 1) -> None:
        super().__init__()
        self.conv1 = conv3x3(inputs, outputs, stride)
        self.bn1 = nn.BatchNorm2d(outputs)
        self.conv2 = conv3x3(outputs, outputs)
        self.bn2 = nn.BatchNorm2d(outputs)
        self.downsample = projection(inputs, outputs, stride)

    def forward(self, x: Tensor) -> Tensor:
        """Return the block's output."""
        out = torch.relu(self.bn1(self.conv1(x)))
        out = self.bn2(self.conv2(out))
        return torch.relu(out + self.downsample(x))


class Bottleneck(nn.Module):
    """Residual block of 1x1, 3x3 and 1x1 convolutions, the first two a quarter as wide as the output.

    [B, D, H, W] → [B, D', H/stride, W/stride]; the stride is that of the 3x3 convolution.

    >>> Bottleneck(4, 8, 2)(torch.zeros(2, 4, 6, 6)).shape
    torch.Size([2, 8, 3, 3])
    """

    expansion: ClassVar[int] = 4

    def __init__(self, inputs: int, outputs: int, stride: int = 1) -> None:
        super().__init__()
        width = outputs // self.expansion
        self.conv1 = nn.Conv2d(inputs, width, kernel_size=1, bias=False)
        self.bn1 = nn.BatchNorm2d(width)
        self.conv2 = conv3x3(width, width, stride)
        self.bn2 = nn.BatchNorm2d(width)
        self.conv3 = nn.Conv2d(width, outputs, kernel_size=1, bias=False)
        self.bn3 = nn.BatchNorm2d(outputs)
        self.downsample = projection(inputs, outputs, stride)

    def forward(self, x: Tensor) -> Tensor:
        """Return the block's output."""
        out = torch.relu(self.bn1(self.conv1(x)))
        out = torch.relu(self.bn2(self.conv2(out)))
        return torch.relu(self.bn3(self.conv3(out)) + self.downsample(x))


class ResNet(nn.Module):
    """Residual network with four stages; the features are the outputs of layer1..layer4, after their last ReLU.

    Args:
        block: `BasicBlock` or `Bottleneck`.
        blocks: number of blocks of each of the four stages.
        num_classes: C.
        in_channels: channels of the images.
        pooling: how stage outputs become features, "gap" or "flatten"; the head always averages.
        large_images: take the stem that divides height and width by four before the first stage.

    Raises:
        InputError: unknown pooling.

    >>> network = ResNet(BasicBlock, (1, 1, 1, 1), num_classes=10)
    >>> output = network(torch.zeros(2, 3, 16, 16))
    >>> output.logits.shape, [feature.shape[1] for feature in output.features]
    (torch.Size([2, 10]), [64, 128, 256, 512])
    """

    def __init__(
        self,
        block: type[BasicBlock] | type[Bottleneck],
        blocks: Sequence[int],
        num_classes: int,
        in_channels: int = 3,
        pooling: str = "gap",
        large_images: bool = False,
    ) -> None:
        super().__init__()
        self.pooling = check_pooling(pooling)
        self.maxpool: nn.Module
        if large_images:
            self.conv1 = nn.Conv2d(in_channels, WIDTHS[0], kernel_size=7, stride=2, padding=3, bias=False)
            self.maxpool = nn.MaxPool2d(kernel_size=3, stride=2, padding=1)
        else:
            self.conv1 = conv3x3(in_channels, WIDTHS[0])
            self.maxpool = nn.Identity()
        self.bn1 = nn.BatchNorm2d(WIDTHS[0])
        first, second, third, fourth = (block.expansion * width for width in WIDTHS)
        self.layer1 = make_stage(block, WIDTHS[0], first, blocks[0], stride=1)
        self.layer2 = make_stage(block, first, second, blocks[1], stride=2)
        self.layer3 = make_stage(block, second, third, blocks[2], stride=2)
        self.layer4 = make_stage(block, third, fourth, blocks[3], stride=2)
        self.fc = nn.Linear(fourth, num_classes)

    def forward(self, x: Tensor) -> Output:
        """Return logits [B, C] and four features for images [B, channels, H, W]."""
        x = self.maxpool(torch.relu(self.bn1(self.conv1(x))))
        x, features = walk(x, (self.layer1, self.layer2, self.layer3, self.layer4), self.pooling)
        return Output(self.fc(pool(x, "gap")), features)


def resnet18(num_classes: int, input_shape: tuple[int, ...], pooling: str = "gap") -> ResNet:
    """Build ResNet-18: two basic blocks per stage, 11,173,962 parameters for 10 classes of colour images.

    >>> sum(parameter.numel() for parameter in resnet18(10, (3, 32, 32)).parameters())
    11173962
    """
    return ResNet(BasicBlock, (2, 2, 2, 2), num_classes, image_channels("resnet18", input_shape), pooling)


def resnet34(num_classes: int, input_shape: tuple[int, ...], pooling: str = "gap") -> ResNet:
    """Build ResNet-34: 3, 4, 6 and 3 basic blocks, 21,282,122 parameters for 10 classes of colour images.

    >>> sum(parameter.numel() for parameter in resnet34(10, (3, 32, 32)).parameters())
    21282122
    """
    return ResNet(BasicBlock, (3, 4, 6, 3), num_classes, image_channels("resnet34", input_shape), pooling)


def resnet50(num_classes: int, input_shape: tuple[int, ...], pooling: str = "gap") -> ResNet:
    """Build ResNet-50 for small images: 3, 4, 6 and 3 bottlenecks, 23,520,842 parameters for 10 classes in colour.

    >>> with torch.device("meta"):  # counts without drawing the parameters
    ...     network = resnet50(10, (3, 32, 32))
    >>> sum(parameter.numel() for parameter in network.parameters())
    23520842
    """
    return ResNet(Bottleneck, (3, 4, 6, 3), num_classes, image_channels("resnet50", input_shape), pooling)


def resnet50_large(num_classes: int, input_shape: tuple[int, ...], pooling: str = "gap") -> ResNet:
    """Build torchvision's ResNet-50, for images of more than 64 pixels: 25,557,032 parameters for 1,000 classes.

    >>> with torch.device("meta"):  # counts without drawing the parameters
    ...     network = resnet50_large(1000, (3, 224, 224))
    >>> sum(parameter.numel() for parameter in network.parameters())
    25557032
    """
    channels = image_channels("resnet50_large", input_shape)
    return ResNet(Bottleneck, (3, 4, 6, 3), num_classes, channels, pooling, large_images=True)
