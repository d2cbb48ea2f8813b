"""MobileNetV2 for small images.

Paper: Sandler, Howard, Zhu, Zhmoginov, Chen, "MobileNetV2: Inverted Residuals and Linear Bottlenecks", CVPR 2018 (arXiv
1801.04381), Table 2 at width 1. What differs: the first two strides of 2, those of the stem and of the second row of
the table, are 1, the usual adaptation to CIFAR, so a 32-pixel image reaches the last stage as 4x4. As in the paper, a
block has a shortcut only where it keeps the shape, and it is the identity (some CIFAR codes add a convolution where
the width alone changes). No dropout before the head. Initialisation is torch's default (the paper gives none).

Stages: the inverted residuals are cut where the resolution changes, rows 1-2, 3, 4-5 and 6-7 of the table, so layer1..4
end 24, 32, 96 and 320 wide. Their outputs are linear bottlenecks: no feature has passed an activation. The convolution
to 1,280 channels after them belongs to the head.
"""

from __future__ import annotations

from torch import Tensor, nn

from labeltrace.models.inputs import image_channels
from labeltrace.models.output import Output, check_pooling, pool, walk
from labeltrace.models.resnet import conv3x3

STEM_WIDTH = 32
LAST_WIDTH = 1280
# rows (expansion, width, blocks, stride) of the paper's Table 2, one tuple per stage; row 2 has stride 1 here, not 2
STAGES = (
    ((1, 16, 1, 1), (6, 24, 2, 1)),
    ((6, 32, 3, 2),),
    ((6, 64, 4, 2), (6, 96, 3, 1)),
    ((6, 160, 3, 2), (6, 320, 1, 1)),
)


class InvertedResidual(nn.Module):
    """Expand by a 1x1 convolution, filter each channel by a 3x3 one, project by a linear 1x1 one.

    [B, D, H, W] → [B, D', H/stride, W/stride]; the input is added where the shapes agree. At expansion 1 the first
    convolution is left out.

    >>> import torch
    >>> InvertedResidual(4, 8, stride=2, expansion=6)(torch.zeros(2, 4, 6, 6)).shape
    torch.Size([2, 8, 3, 3])
    """

    def __init__(self, inputs: int, outputs: int, stride: int, expansion: int) -> None:
        super().__init__()
        wide = expansion * inputs
        expand = [nn.Conv2d(inputs, wide, kernel_size=1, bias=False), nn.BatchNorm2d(wide), nn.ReLU6()]
        self.body = nn.Sequential(
            *(expand if expansion > 1 else ()),
            nn.Conv2d(wide, wide, kernel_size=3, stride=stride, padding=1, groups=wide, bias=False),
            nn.BatchNorm2d(wide),
            nn.ReLU6(),
            nn.Conv2d(wide, outputs, kernel_size=1, bias=False),
            nn.BatchNorm2d(outputs),
        )
        self.adds_input = stride == 1 and inputs == outputs

    def forward(self, x: Tensor) -> Tensor:
        """Return the block's output."""
        out: Tensor = self.body(x)
        return x + out if self.adds_input else out


class MobileNetV2(nn.Module):
    """Stack of inverted residuals in four stages; the features are the outputs of layer1..layer4.

    Args:
        num_classes: C.
        in_channels: channels of the images.
        pooling: how stage outputs become features, "gap" or "flatten"; the head always averages.

    Raises:
        InputError: unknown pooling.

    >>> import torch
    >>> output = MobileNetV2(num_classes=10)(torch.zeros(2, 3, 16, 16))
    >>> output.logits.shape, [feature.shape[1] for feature in output.features]
    (torch.Size([2, 10]), [24, 32, 96, 320])
    """

    def __init__(self, num_classes: int, in_channels: int = 3, pooling: str = "gap") -> None:
        super().__init__()
        self.pooling = check_pooling(pooling)
        self.stem = nn.Sequential(conv3x3(in_channels, STEM_WIDTH), nn.BatchNorm2d(STEM_WIDTH), nn.ReLU6())
        width = STEM_WIDTH
        stages = []
        for rows in STAGES:
            blocks = []
            for expansion, outputs, count, stride in rows:
                for index in range(count):
                    blocks.append(InvertedResidual(width, outputs, stride if index == 0 else 1, expansion))
                    width = outputs
            stages.append(nn.Sequential(*blocks))
        self.layer1, self.layer2, self.layer3, self.layer4 = stages
        self.last = nn.Sequential(
            nn.Conv2d(width, LAST_WIDTH, kernel_size=1, bias=False), nn.BatchNorm2d(LAST_WIDTH), nn.ReLU6()
        )
        self.fc = nn.Linear(LAST_WIDTH, num_classes)

    def forward(self, x: Tensor) -> Output:
        """Return logits [B, C] and four features for images [B, channels, H, W]."""
        x = self.stem(x)
        x, features = walk(x, (self.layer1, self.layer2, self.layer3, self.layer4), self.pooling)
        return Output(self.fc(pool(self.last(x), "gap")), features)


def mobilenet_v2(num_classes: int, input_shape: tuple[int, ...], pooling: str = "gap") -> MobileNetV2:
    """Build MobileNetV2 for small images: 2,236,682 parameters for 10 classes of colour images.

    >>> import torch
    >>> with torch.device("meta"):  # counts without drawing the parameters
    ...     network = mobilenet_v2(10, (3, 32, 32))
    >>> sum(parameter.numel() for parameter in network.parameters())
    2236682
    """
    return MobileNetV2(num_classes, image_channels("mobilenet_v2", input_shape), pooling)
