"""DenseNet-121 for small images.

Paper: Huang, Liu, van der Maaten, Weinberger, "Densely Connected Convolutional Networks", CVPR 2017 (arXiv 1608.06993),
the 121-layer network of its Table 1: growth 32, dense blocks of 6, 12, 24 and 16 layers with 1x1 bottlenecks of four
times the growth, transitions that halve the width. What differs: the stem is that of the paper's CIFAR networks, one
3x3 convolution of stride 1 to twice the growth, with neither BatchNorm nor max pooling after it, so a 32-pixel image
reaches the last block as 4x4. Initialisation is torch's default (the paper: He's). No dropout.

Stages: layer1..3 are a dense block and the transition after it, layer4 is the last block and the final BatchNorm. The
ReLU after that BatchNorm belongs to the head, so all four features are of one kind (none has passed an activation).
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from labeltrace.errors import InputError
from labeltrace.models.inputs import image_channels
from labeltrace.models.output import Output, check_pooling, pool, walk
from labeltrace.models.resnet import conv3x3

GROWTH = 32
BOTTLENECK = 4  # width of the 1x1 convolution in a layer, times the growth
COMPRESSION = 0.5
SMALLEST = 8  # pixels: the three transitions halve the sides, and 1 cannot be halved


class DenseLayer(nn.Module):
    """BN-ReLU-conv1x1-BN-ReLU-conv3x3, its output appended to its input: [B, D, H, W] → [B, D + growth, H, W].

    >>> DenseLayer(4, growth=2)(torch.zeros(2, 4, 6, 6)).shape
    torch.Size([2, 6, 6, 6])
    """

    def __init__(self, inputs: int, growth: int) -> None:
        super().__init__()
        self.bn1 = nn.BatchNorm2d(inputs)
        self.conv1 = nn.Conv2d(inputs, BOTTLENECK * growth, kernel_size=1, bias=False)
        self.bn2 = nn.BatchNorm2d(BOTTLENECK * growth)
        self.conv2 = conv3x3(BOTTLENECK * growth, growth)

    def forward(self, x: Tensor) -> Tensor:
        """Return the input with `growth` new channels after it."""
        new = self.conv2(torch.relu(self.bn2(self.conv1(torch.relu(self.bn1(x))))))
        return torch.cat([x, new], dim=1)


def transition(inputs: int, outputs: int) -> nn.Sequential:
    """Return BatchNorm, ReLU, 1x1 convolution and 2x2 average, [B, D, H, W] → [B, D', H/2, W/2].

    >>> transition(8, 4)(torch.zeros(2, 8, 6, 6)).shape
    torch.Size([2, 4, 3, 3])
    """
    return nn.Sequential(
        nn.BatchNorm2d(inputs), nn.ReLU(), nn.Conv2d(inputs, outputs, kernel_size=1, bias=False), nn.AvgPool2d(2)
    )


class DenseNet(nn.Module):
    """Densely connected network with four stages; the features are the outputs of layer1..layer4.

    Args:
        blocks: number of layers of each of the four dense blocks.
        num_classes: C.
        in_channels: channels of the images.
        pooling: how stage outputs become features, "gap" or "flatten"; the head always averages.
        growth: channels that a layer adds.

    Raises:
        InputError: unknown pooling.

    >>> network = DenseNet((1, 1, 1, 1), num_classes=10, growth=8)
    >>> output = network(torch.zeros(2, 3, 16, 16))
    >>> output.logits.shape, [feature.shape[1] for feature in output.features]
    (torch.Size([2, 10]), [12, 10, 9, 17])
    """

    def __init__(
        self,
        blocks: Sequence[int],
        num_classes: int,
        in_channels: int = 3,
        pooling: str = "gap",
        growth: int = GROWTH,
    ) -> None:
        super().__init__()
        self.pooling = check_pooling(pooling)
        width = 2 * growth
        self.conv1 = conv3x3(in_channels, width)
        stages = []
        for index, count in enumerate(blocks):
            stage = nn.Sequential(*(DenseLayer(width + layer * growth, growth) for layer in range(count)))
            width += count * growth
            if index < len(blocks) - 1:
                stage.append(transition(width, int(COMPRESSION * width)))
                width = int(COMPRESSION * width)
            else:
                stage.append(nn.BatchNorm2d(width))
            stages.append(stage)
        self.layer1, self.layer2, self.layer3, self.layer4 = stages
        self.fc = nn.Linear(width, num_classes)

    def forward(self, x: Tensor) -> Output:
        """Return logits [B, C] and four features for images [B, channels, H, W], H and W at least 8."""
        x = self.conv1(x)
        x, features = walk(x, (self.layer1, self.layer2, self.layer3, self.layer4), self.pooling)
        return Output(self.fc(pool(torch.relu(x), "gap")), features)


def densenet121(num_classes: int, input_shape: tuple[int, ...], pooling: str = "gap") -> DenseNet:
    """Build DenseNet-121 for small images: 6,956,298 parameters for 10 classes of colour images.

    Raises:
        InputError: features, or images with a side below 8 pixels.

    >>> with torch.device("meta"):  # counts without drawing the parameters
    ...     network = densenet121(10, (3, 32, 32))
    >>> sum(parameter.numel() for parameter in network.parameters())
    6956298
    """
    channels = image_channels("densenet121", input_shape)
    if min(input_shape[1:]) < SMALLEST:
        raise InputError(
            f"model 'densenet121' takes images of at least {SMALLEST} pixels a side, got shape {input_shape}: "
            "take model 'small_cnn'"
        )
    return DenseNet((6, 12, 24, 16), num_classes, channels, pooling)
