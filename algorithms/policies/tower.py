"""A stack of linear layers with activations between them: the networks of small policies.

A policy of this size is asked for actions thousands of times a second, and calling each layer as a
module costs as much as the layer does: learning runs the layers by plain function calls. Acting on
a processor runs them on NumPy views of the same weights, where a call costs half as much again.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from typing import NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from algorithms.policies.config import Activation

Matrix: TypeAlias = npt.NDArray[np.float32]

_ACTIVATIONS: Mapping[Activation, Callable[[Tensor], Tensor]] = {
    "tanh": torch.tanh,
    "relu": torch.relu,
    "elu": F.elu,
    "silu": F.silu,
}


def _tanh(rows: Matrix) -> Matrix:
    return np.tanh(rows, out=rows)


def _relu(rows: Matrix) -> Matrix:
    return np.maximum(rows, np.float32(0.0), out=rows)


def _elu(rows: Matrix) -> Matrix:
    low: Matrix = np.expm1(np.minimum(rows, np.float32(0.0)))
    return np.maximum(rows, low)  # for x > 0 the other one is 0, for x < 0 it is above x


def _silu(rows: Matrix) -> Matrix:
    with np.errstate(over="ignore"):  # exp(-x) of a very negative x: the result is -0
        low: Matrix = np.exp(-rows)
    return rows / (np.float32(1.0) + low)


_ON_ARRAYS: Mapping[Activation, Callable[[Matrix], Matrix]] = {
    "tanh": _tanh,
    "relu": _relu,
    "elu": _elu,
    "silu": _silu,
}
"""The same functions, which may write to what they are given."""
_HIDDEN_GAIN = math.sqrt(2.0)


class _Views(NamedTuple):
    """One layer as arrays that share its memory."""

    addresses: tuple[int, int]
    weight: Matrix
    """Shape ``(width_in, width_out)``."""
    bias: Matrix


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
        self._on_arrays = _ON_ARRAYS[activation]
        self._views: list[_Views] = []

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

    def forward_arrays(self, rows: Matrix) -> Matrix:
        """Run the network on a processor, without gradients.

        Args:
            rows: Shape ``(n, widths[0])``; or batches of one size, ``(k, n, widths[0])``: what each
                comes to does not depend on the others, nor on ``k``, to the last bit.

        Returns:
            Shape ``(n, widths[-1])`` or ``(k, n, widths[-1])``, a new array. Equal to `forward` but
            for the rounding of another library: a few units in the last place of a layer's sum.
        """
        product = np.dot if rows.ndim == 2 else np.matmul
        *hidden, last = self._layers()
        for layer in hidden:
            rows = product(rows, layer.weight)
            rows += layer.bias
            rows = self._on_arrays(rows)
        rows = product(rows, last.weight)
        rows += last.bias
        return rows

    def _layers(self) -> list[_Views]:
        """Views of the weights, made again for those that have moved in memory."""
        layers = [*self._hidden, self._last]
        addresses = [(weight.data_ptr(), bias.data_ptr()) for weight, bias in layers]
        if addresses != [views.addresses for views in self._views]:
            self._views = [
                _Views(address, weight.detach().numpy().T, bias.detach().numpy())
                for address, (weight, bias) in zip(addresses, layers, strict=True)
            ]
        return self._views


def _linear(width_in: int, width_out: int, gain: float) -> nn.Linear:
    layer = nn.Linear(width_in, width_out)
    nn.init.orthogonal_(layer.weight, gain)
    nn.init.zeros_(layer.bias)
    return layer
