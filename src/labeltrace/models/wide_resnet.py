"""Wide ResNet 28-10 for small images.

Paper: Zagoruyko, Komodakis, "Wide Residual Networks", BMVC 2016 (arXiv 1605.07146), WRN-28-10 of its Tables 1 and 4
with blocks B(3,3) and without dropout: a 3x3 convolution to 16 channels, three groups of four pre-activation blocks of
widths 160, 320 and 640 at strides 1, 2 and 2, BatchNorm-ReLU, average, linear. Where a block changes the width, its
shortcut is a 1x1 convolution of the activated input; elsewhere it carries the raw input.

Ours: the network has three groups where the residual networks have four stages, so the stem counts as the shallowest
stage; layer1 is the stem, layer2..4 are groups 1 to 3. The features are their bare outputs, so all four are of one kind
(none has passed an activation); the closing BatchNorm-ReLU belongs to the head. What differs from the paper:
initialisation is torch's default (the authors' code: He's normal).
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from labeltrace.models.inputs import image_channels
from labeltrace.models.output import Output, check_pooling, pool, walk
from labeltrace.models.preact_resnet import PreActBlock
from labeltrace.models.resnet import conv3x3, make_stage

STEM_WIDTH = 16
GROUP_WIDTHS = (16, 32, 64)  # times the widening factor


class WideBlock(PreActBlock):
    """Pre-activation block: `a = relu(bn(x))`, output `conv(relu(bn(conv(a)))) + shortcut`.

    The shortcut is x, or a 1x1 convolution of a where the shape changes: [B, D, H, W] → [B, D', H/stride, W/stride].

    >>> WideBlock(4, 8, 2)(torch.zeros(2, 4, 6, 6)).shape
    torch.Size([2, 8, 3, 3])
    """

    def forward(self, x: Tensor) -> Tensor:
        """Return the block's output."""
        active = torch.relu(self.bn1(x))
        out = self.conv2(torch.relu(self.bn2(self.conv1(active))))
        return out + (self.shortcut(active) if len(self.shortcut) else x)


class WideResNet(nn.Module):
    """Wide residual network; the features are the outputs of the stem (layer1) and of the groups (layer2..layer4).

    Args:
        depth: number of convolutions on the main path, 6n + 4 for n blocks per group.
        widening: k, the factor on the widths 16, 32 and 64 of the groups.
        num_classes: C.
        in_channels: channels of the images.
        pooling: how stage outputs become features, "gap" or "flatten"; the head always averages.

    Raises:
        InputError: unknown pooling.
        ValueError: a depth that is not 6n + 4.

    >>> network = WideResNet(depth=10, widening=2, num_classes=10)
    >>> output = network(torch.zeros(2, 3, 16, 16))
    >>> output.logits.shape, [feature.shape[1] for feature in output.features]
    (torch.Size([2, 10]), [16, 32, 64, 128])
    """

    def __init__(self, depth: int, widening: int, num_classes: int, in_channels: int = 3, pooling: str = "gap") -> None:
        super().__init__()
        blocks, rest = divmod(depth - 4, 6)
        if blocks < 1 or rest:
            raise ValueError(f"depth is {depth}: a wide residual network has 6n + 4 convolutions, e.g. 28")
        self.pooling = check_pooling(pooling)
        first, second, third = (widening * width for width in GROUP_WIDTHS)
        self.layer1 = conv3x3(in_channels, STEM_WIDTH)
        self.layer2 = make_stage(WideBlock, STEM_WIDTH, first, blocks, stride=1)
        self.layer3 = make_stage(WideBlock, first, second, blocks, stride=2)
        self.layer4 = make_stage(WideBlock, second, third, blocks, stride=2)
        self.bn = nn.BatchNorm2d(third)
        self.fc = nn.Linear(third, num_classes)

    def forward(self, x: Tensor) -> Output:
        """Return logits [B, C] and four features for images [B, channels, H, W]."""
        x, features = walk(x, (self.layer1, self.layer2, self.layer3, self.layer4), self.pooling)
        return Output(self.fc(pool(torch.relu(self.bn(x)), "gap")), features)


def wrn28_10(num_classes: int, input_shape: tuple[int, ...], pooling: str = "gap") -> WideResNet:
    """Build Wide ResNet 28-10: 36,479,194 parameters for 10 classes of colour images (the paper: 36.5 M).

    >>> with torch.device("meta"):  # counts without drawing the parameters
    ...     network = wrn28_10(10, (3, 32, 32))
    >>> sum(parameter.numel() for parameter in network.parameters())
    36479194
    """
    return WideResNet(28, 10, num_classes, image_channels("wrn28_10", input_shape), pooling)
