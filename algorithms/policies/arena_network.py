"""The networks of the arena policy: residual trunks over planes and a vector, and what reads them.

They know tiles, planes and slots, but no rules: what is legal comes as a mask from outside, what
the planes mean is learnt. Convolutions run channels last, where a processor is up to twice as fast.
Letters: n rows, P planes, V numbers of the vector, C channels, S slots, h × w tiles of the trunk.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from algorithms.policies.config import ArenaPolicyConfig
from algorithms.policies.staged import StageOutputs

HEIGHT, WIDTH = 20, 12
NUM_TILES = HEIGHT * WIDTH
NUM_SLOTS = 4
NUM_ACTIONS = 1 + NUM_SLOTS * NUM_TILES

_NUM_NAMES = 256  # a byte
_NO_CARD = 0
_HIDDEN_GAIN = math.sqrt(2.0)
_HEAD_GAIN = 0.01  # nearly equal logits at the start


class Trunk(nn.Module):
    """Features of every tile from planes and vector.

    Amounts are compressed, since a plane's 1 must not drown beside another one's 200, and go
    through a convolution. To its result are added the names of cards, embedded, the vector, and
    numbers learnt for each tile.

    Args:
        num_planes: P.
        width: V.
        channels: C.
        blocks: Residual blocks.
        config: The other settings.
    """

    def __init__(
        self, num_planes: int, width: int, channels: int, blocks: int, config: ArenaPolicyConfig
    ) -> None:
        super().__init__()
        stride = config.stride
        self._card_planes, self._stride = config.card_planes, stride
        self.amounts = nn.Conv2d(num_planes, channels, 3, stride=stride, padding=1)
        self.names = nn.Embedding(_NUM_NAMES, config.card_embedding, padding_idx=_NO_CARD)
        columns = stride * stride * len(config.card_planes) * config.card_embedding
        self.cards = nn.Linear(columns, channels, bias=False) if columns else None
        self.vector = nn.Linear(width, channels)
        self.place = nn.Parameter(torch.zeros(HEIGHT // stride, WIDTH // stride, channels))
        self.blocks = nn.ModuleList(ResidualBlock(channels) for _ in range(blocks))
        _initialise(self.amounts, _HIDDEN_GAIN)
        if self.cards is not None:
            _initialise(self.cards, 1.0)
        _initialise(self.vector, 1.0)

    def forward(self, tiles: Tensor, vector: Tensor) -> Tensor:
        """Return features of the tiles.

        Args:
            tiles: What lies on them, uint8. Shape ``(n, 20, 12, P)``.
            vector: Shape ``(n, V)``.

        Returns:
            Not negative. Shape ``(n, C, h, w)``, channels last.
        """
        besides = self.vector(vector)[:, None, None, :] + self.place
        if self.cards is not None:
            besides = besides + self.cards(self._embedded(tiles))
        features = self.amounts(_compressed(tiles)) + besides.permute(0, 3, 1, 2)
        for block in self.blocks:
            features = block(features)
        return F.relu(features)

    def _embedded(self, tiles: Tensor) -> Tensor:
        """Return the names on the tiles in each of the trunk's, side by side. ``(n, h, w, …)``."""
        rows, stride, (height, width, _) = len(tiles), self._stride, self.place.shape
        names = torch.stack([tiles[..., plane] for plane in self._card_planes], dim=3)
        grid = names.view(rows, height, stride, width, stride, len(self._card_planes))
        embedded: Tensor = self.names(grid.transpose(2, 3).flatten(3).int())
        return embedded.flatten(3)


def _compressed(tiles: Tensor) -> Tensor:
    """Return 4 x / (x + 16): 1 becomes 0.24, 16 becomes 2, 200 is 3.7. ``(n, P, 20, 12)``."""
    amounts = tiles.float()
    # In place, since a processor spends more on new memory than on the arithmetic.
    return amounts.add_(16.0).reciprocal_().mul_(-64.0).add_(4.0).permute(0, 3, 1, 2)


class ResidualBlock(nn.Module):
    """Two convolutions beside an open road; at the start nothing comes from them.

    Source:
        He et al. 2016, arXiv:1603.05027 (the order); De and Smith 2020, arXiv:2002.10444 (that a
        silent start makes normalisation unnecessary).
    """

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.first = nn.Conv2d(channels, channels, 3, padding=1)
        self.second = nn.Conv2d(channels, channels, 3, padding=1)
        _initialise(self.first, _HIDDEN_GAIN)
        _initialise(self.second, 0.0)

    def forward(self, features: Tensor) -> Tensor:
        """Return features of the same shape."""
        change: Tensor = self.second(F.relu(self.first(F.relu(features))))
        return features + change


class Summary(nn.Module):
    """One hidden layer over the mean and the maximum of all tiles and the vector.

    Args:
        channels: C.
        width: V.
        hidden: Numbers that come out.
    """

    def __init__(self, channels: int, width: int, hidden: int) -> None:
        super().__init__()
        self.layer = nn.Linear(2 * channels + width, hidden)
        _initialise(self.layer, _HIDDEN_GAIN)

    def forward(self, features: Tensor, vector: Tensor) -> Tensor:
        """Return a summary. Shape ``(n, hidden)``, not negative."""
        pooled = [features.mean((2, 3)), features.amax((2, 3)), vector]
        return F.relu(self.layer(torch.cat(pooled, dim=1)))


class ArenaActor(nn.Module):
    """From an observation to the three stages of an action.

    Where to play what is in a slot is an inner product: of what the slot asks for, which the
    summary decides, with what the trunk found on each tile, and with what a tile offers by being
    where it is.

    Args:
        num_planes: P.
        width: V.
        config: Settings.
    """

    def __init__(self, num_planes: int, width: int, config: ArenaPolicyConfig) -> None:
        super().__init__()
        channels, hidden, stride = config.channels, config.hidden_size, config.stride
        self.trunk = Trunk(num_planes, width, channels, config.blocks, config)
        self.summary = Summary(channels, width, hidden)
        self.act = nn.Linear(hidden, 1)
        self.slots = nn.Linear(hidden, NUM_SLOTS)
        self.asks_features = nn.Linear(hidden, NUM_SLOTS * stride * stride * channels)
        self.asks_places = nn.Linear(hidden, NUM_SLOTS * config.keys)
        self.places = nn.Parameter(torch.randn(config.keys, NUM_TILES))
        self._channels, self._keys, self._stride = channels, config.keys, stride
        for layer in (self.act, self.slots, self.asks_features, self.asks_places):
            _initialise(layer, _HEAD_GAIN)
        share = config.act_probability
        nn.init.constant_(self.act.bias, math.log(share / (1.0 - share)))

    def forward(self, tiles: Tensor, vector: Tensor) -> StageOutputs:
        """Return what is said of each stage; arguments as for ``Trunk``."""
        features = self.trunk(tiles, vector)
        summary = self.summary(features, vector)
        return StageOutputs(
            act=self.act(summary)[:, 0],
            slots=self.slots(summary),
            tiles=self._by_feature(features, summary) + self._by_place(summary),
        )

    def _by_feature(self, features: Tensor, summary: Tensor) -> Tensor:
        """Score tiles by the trunk. A tile of the trunk has several of the arena's in it."""
        rows, height, width = len(features), *features.shape[2:]
        inside = (self._stride, self._stride)
        asks = self.asks_features(summary).view(rows, NUM_SLOTS * math.prod(inside), self._channels)
        scores = asks @ features.permute(0, 2, 3, 1).flatten(1, 2).mT / math.sqrt(self._channels)
        grid = scores.view(rows, NUM_SLOTS, *inside, height, width).permute(0, 1, 4, 2, 5, 3)
        in_order: Tensor = grid.reshape(rows, NUM_SLOTS, NUM_TILES)
        return in_order

    def _by_place(self, summary: Tensor) -> Tensor:
        asks = self.asks_places(summary).view(len(summary), NUM_SLOTS, self._keys)
        scores: Tensor = asks @ self.places / math.sqrt(self._keys)
        return scores


class ArenaCritic(nn.Module):
    """From an observation to its value, by a trunk of its own.

    Args:
        num_planes: P.
        width: V.
        config: Settings.
    """

    def __init__(self, num_planes: int, width: int, config: ArenaPolicyConfig) -> None:
        super().__init__()
        channels = config.critic_channels or config.channels
        blocks = config.blocks if config.critic_blocks is None else config.critic_blocks
        self.trunk = Trunk(num_planes, width, channels, blocks, config)
        self.summary = Summary(channels, width, config.hidden_size)
        self.value = nn.Linear(config.hidden_size, 1)
        _initialise(self.value, 1.0)

    def forward(self, tiles: Tensor, vector: Tensor) -> Tensor:
        """Return ``V(s)``; arguments as for ``Trunk``. Shape ``(n,)``."""
        value: Tensor = self.value(self.summary(self.trunk(tiles, vector), vector))
        return value[:, 0]


def _initialise(layer: nn.Conv2d | nn.Linear, gain: float) -> None:
    nn.init.orthogonal_(layer.weight, gain)
    if layer.bias is not None:
        nn.init.zeros_(layer.bias)
