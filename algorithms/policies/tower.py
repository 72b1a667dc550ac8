"""A stack of linear layers with activations between them: the networks of small policies.

Runs its layers by plain function calls. A policy of this size is asked for actions thousands of
times a second, and calling each layer as a module costs as much as the layer does.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from algorithms.policies.config import Activation

_ACTIVATIONS: Mapping[Activation, Callable[[Tensor], Tensor]] = {
    "tanh": torch.tanh,
    "relu": torch.relu,
    "elu": F.elu,
    "silu": F.silu,
}
_HIDDEN_GAIN = math.sqrt(2.0)


class Tower(nn.ModuleList):
    """Linear layers, initialised orthogonally with zero biases.

    Args:
        widths: Numbers of columns, input first and output last; at least two.
        activation: What follows every layer but the last.
        last_gain: Gain of the last layer's weights; the others have sqrt 2.

    Source:
        Huang et al. 2022, «The 37 implementation details of proximal policy optimization».
    """

    def __init__(self, widths: Sequence[int], activation: Activation, last_gain: float) -> None:
        pairs = list(pairwise(widths))
        gains = [_HIDDEN_GAIN] * (len(pairs) - 1) + [last_gain]
        layers = [_linear(*pair, gain) for pair, gain in zip(pairs, gains, strict=True)]
        super().__init__(layers)
        self._activation = _ACTIVATIONS[activation]
        self._hidden = tuple((layer.weight, layer.bias) for layer in layers[:-1])
        self._last = (layers[-1].weight, layers[-1].bias)

    def forward(self, rows: Tensor) -> Tensor:
        """Run the network.

        Args:
            rows: Shape ``(n, widths[0])``.

        Returns:
            Shape ``(n, widths[-1])``.
        """
        activation = self._activation
        for weight, bias in self._hidden:
            rows = activation(F.linear(rows, weight, bias))
        return F.linear(rows, *self._last)


def _linear(width_in: int, width_out: int, gain: float) -> nn.Linear:
    layer = nn.Linear(width_in, width_out)
    nn.init.orthogonal_(layer.weight, gain)
    nn.init.zeros_(layer.bias)
    return layer
