"""The networks of the arena policy: residual trunks over planes and a vector, and what reads them.

They know tiles, planes and slots, but no rules: what is legal comes as a mask from outside, what
the planes mean is learnt. Convolutions run channels last, where a processor is up to twice as fast.
Letters: n rows, P planes, V numbers of the vector, C channels, S slots; the trunk has h × w cells,
each of s × s tiles.
"""

from __future__ import annotations

import math
from typing import NamedTuple

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


class Cells(NamedTuple):
    """Observations as the trunks take them: what is the same for every weight is done once."""

    amounts: Tensor
    """What lies on the tiles of each cell, compressed, float32. Shape ``(n, h · w, s² · P)``."""

    names: Tensor
    """Names of cards on them, int32. Shape ``(n, h · w, s² · K)``, K planes of names."""

    vector: Tensor
    """Shape ``(n, V)``."""


def to_cells(planes: Tensor, vector: Tensor, config: ArenaPolicyConfig) -> Cells:
    """Lay observations out by cells.

    Amounts become 4 x / (x + 16): 1 becomes 0.24, 16 becomes 2, 200 is 3.7. A plane's 1 must not
    drown beside another one's 200.

    Args:
        planes: Uint8. Shape ``(n, P, 20, 12)``.
        vector: Float32. Shape ``(n, V)``.
        config: Settings.

    Returns:
        The same, in new memory.
    """
    rows, num_planes, stride = len(planes), planes.shape[1], config.stride
    height, width = HEIGHT // stride, WIDTH // stride
    tiles = planes.view(rows, num_planes, height, stride, width, stride)
    tiles = tiles.permute(0, 2, 4, 3, 5, 1).contiguous()
    cards = tiles[..., list(config.card_planes)]
    # In place, since a processor spends more on new memory than on the arithmetic.
    amounts = tiles.float().add_(16.0).reciprocal_().mul_(-64.0).add_(4.0)
    return Cells(
        amounts=amounts.flatten(3).flatten(1, 2),
        names=cards.int().flatten(3).flatten(1, 2),
        vector=vector,
    )


class Trunk(nn.Module):
    """Features of every cell from its tiles and the vector.

    To a linear map of the amounts are added the names of cards, embedded, the vector, and numbers
    learnt for each cell; convolutions then look around.

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
        self._height, self._width = HEIGHT // stride, WIDTH // stride
        self.amounts = nn.Linear(stride * stride * num_planes, channels)
        self.names = nn.Embedding(_NUM_NAMES, config.card_embedding, padding_idx=_NO_CARD)
        columns = stride * stride * len(config.card_planes) * config.card_embedding
        self.cards = nn.Linear(columns, channels, bias=False) if columns else None
        self.vector = nn.Linear(width, channels)
        self.place = nn.Parameter(torch.zeros(self._height * self._width, channels))
        self.blocks = nn.ModuleList(ResidualBlock(channels) for _ in range(blocks))
        _initialise(self.amounts, _HIDDEN_GAIN)
        if self.cards is not None:
            _initialise(self.cards, 1.0)
        _initialise(self.vector, 1.0)

    def forward(self, cells: Cells) -> Tensor:
        """Return features of the cells, not negative. Shape ``(n, h · w, C)``."""
        features = self.amounts(cells.amounts) + self.vector(cells.vector)[:, None, :] + self.place
        if self.cards is not None:
            features = features + self.cards(self.names(cells.names).flatten(2))
        if not self.blocks:
            return F.relu(features)
        grid = features.unflatten(1, (self._height, self._width)).permute(0, 3, 1, 2)
        for block in self.blocks:
            grid = block(grid)
        return F.relu(grid).permute(0, 2, 3, 1).flatten(1, 2)


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
    """One hidden layer over the mean and the maximum of all cells and the vector.

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
        pooled = [features.mean(1), features.amax(1), vector]
        return F.relu(self.layer(torch.cat(pooled, dim=1)))


class Hand(nn.Module):
    """What each slot of the hand asks for: of the summary, and of which card lies in it.

    All slots share their weights. So what was learnt of a card holds wherever in the hand it
    comes to lie, and is learnt from every play of it.

    Args:
        hidden: Numbers of the summary, and of what a slot asks for.
        config: Says where the vector names the cards.
    """

    def __init__(self, hidden: int, config: ArenaPolicyConfig) -> None:
        super().__init__()
        self._first, self._names = config.hand_start, config.hand_names
        self.cards = nn.Linear(config.hand_names, hidden, bias=False)
        self.state = nn.Linear(hidden, hidden)
        _initialise(self.cards, 1.0)
        _initialise(self.state, 1.0)

    def forward(self, summary: Tensor, vector: Tensor) -> Tensor:
        """Return what is asked for. Shape ``(n, S, hidden)``, not negative."""
        named = vector[:, self._first : self._first + NUM_SLOTS * self._names]
        cards = self.cards(named.reshape(-1, NUM_SLOTS, self._names))
        return F.relu(cards + self.state(summary)[:, None, :])


class Looked(NamedTuple):
    """What an actor makes of an observation before it decides."""

    features: Tensor
    """Of cells. Shape ``(n, h · w, C)``."""

    summary: Tensor
    """Of everything. Shape ``(n, hidden)``."""


class ArenaActor(nn.Module):
    """From an observation to the three stages of an action.

    Where to play what is in a slot is an inner product: of what the slot asks for with what the
    trunk found on each tile, and with what a tile offers by being where it is.

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
        self.hand = Hand(hidden, config)
        self.slots = nn.Linear(hidden, 1, bias=False)
        self.asks_features = nn.Linear(hidden, stride * stride * channels)
        self.asks_places = nn.Linear(hidden, config.keys)
        self.places = nn.Parameter(torch.randn(config.keys, NUM_TILES))
        self._channels, self._keys, self._stride = channels, config.keys, stride
        for layer in (self.act, self.slots, self.asks_features, self.asks_places):
            _initialise(layer, _HEAD_GAIN)
        share = config.act_probability
        nn.init.constant_(self.act.bias, math.log(share / (1.0 - share)))

    def forward(self, cells: Cells) -> StageOutputs:
        """Return what is said of each stage."""
        looked = self.look(cells)
        hand = self.hand(looked.summary, cells.vector)
        return StageOutputs(
            act=self.to_act(looked),
            slots=self.of_slots(hand),
            tiles=self.of_tiles(looked.features, hand),
        )

    def look(self, cells: Cells) -> Looked:
        """Return what all stages are decided by."""
        features = self.trunk(cells)
        return Looked(features, self.summary(features, cells.vector))

    def to_act(self, looked: Looked) -> Tensor:
        """Score acting against waiting, which is 0. Shape ``(n,)``."""
        score: Tensor = self.act(looked.summary)[:, 0]
        return score

    def of_slots(self, hand: Tensor) -> Tensor:
        """Score slots by what they ask for, ``(n, k, hidden)``. Shape ``(n, k)``."""
        scores: Tensor = self.slots(hand)[:, :, 0]
        return scores

    def of_tiles(self, features: Tensor, hand: Tensor) -> Tensor:
        """Score tiles for each of k slots, ``(n, k, hidden)``. Shape ``(n, k, 240)``."""
        return self._by_feature(features, hand) + self._by_place(hand)

    def _by_feature(self, features: Tensor, hand: Tensor) -> Tensor:
        """Score tiles by the trunk. A cell of the trunk has several tiles in it."""
        rows, slots, stride = len(features), hand.shape[1], self._stride
        height, width = HEIGHT // stride, WIDTH // stride
        asks = self.asks_features(hand).view(rows, slots * stride * stride, self._channels)
        scores = asks @ features.mT / math.sqrt(self._channels)
        grid = scores.view(rows, slots, stride, stride, height, width).permute(0, 1, 4, 2, 5, 3)
        in_order: Tensor = grid.reshape(rows, slots, NUM_TILES)
        return in_order

    def _by_place(self, hand: Tensor) -> Tensor:
        scores: Tensor = self.asks_places(hand) @ self.places / math.sqrt(self._keys)
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

    def forward(self, cells: Cells) -> Tensor:
        """Return ``V(s)``. Shape ``(n,)``."""
        value: Tensor = self.value(self.summary(self.trunk(cells), cells.vector))
        return value[:, 0]


def _initialise(layer: nn.Conv2d | nn.Linear, gain: float) -> None:
    nn.init.orthogonal_(layer.weight, gain)
    if layer.bias is not None:
        nn.init.zeros_(layer.bias)
