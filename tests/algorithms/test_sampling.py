"""Acting in NumPy gives what the tensor half of the same distribution says of it."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pytest
import torch
from torch import nn

from algorithms import sampling
from algorithms.distributions import Categorical, DiagGaussian, Distribution, MultiCategorical
from algorithms.noise import Noise, Purpose
from algorithms.policies.tower import Tower

ROWS = 200
NVEC = (3, 1, 5)


class Chosen(NamedTuple):
    actions: np.ndarray
    log_prob: np.ndarray


def make_noise(n: int = ROWS) -> Noise:
    return Noise(np.arange(n, dtype="u8") * 7, np.zeros(n, "u8"), np.arange(n, dtype="u8"))


def pair(kind: str, masked: bool) -> tuple[list[Chosen], Distribution]:
    """A sample and the mode with their log-probs, and the tensor distribution of the same."""
    generator = np.random.default_rng(3)
    outputs = generator.normal(size=(ROWS, sum(NVEC)), scale=3).astype(np.float32)
    legal = generator.random(outputs.shape) < 0.4
    legal[:, [0, 3, 4]] = True  # one of each part
    mask = legal if masked else None
    tensors = torch.from_numpy(outputs)
    tensor_mask = None if mask is None else torch.from_numpy(mask)
    noise = make_noise()
    chosen = []
    for how in (False, True):
        match kind:
            case "choice":
                actions = sampling.categorical(outputs, mask, noise, deterministic=how)
                log_prob = sampling.categorical_log_prob(outputs, mask, actions)
                distribution: Distribution = Categorical(tensors, tensor_mask)
            case "choices":
                actions = sampling.multi_categorical(outputs, NVEC, mask, noise, deterministic=how)
                log_prob = sampling.multi_categorical_log_prob(outputs, NVEC, mask, actions)
                distribution = MultiCategorical(tensors, NVEC, tensor_mask)
            case _:
                log_std = np.linspace(-1, 1, sum(NVEC), dtype=np.float32)
                actions = sampling.diag_gaussian(outputs, log_std, noise, deterministic=how)
                log_prob = sampling.diag_gaussian_log_prob(outputs, log_std, actions)
                distribution = DiagGaussian(tensors, torch.from_numpy(log_std))
        chosen.append(Chosen(actions, log_prob))
    return chosen, distribution


@pytest.mark.parametrize(
    ("kind", "masked"),
    [
        ("choice", False),
        ("choice", True),
        ("choices", False),
        ("choices", True),
        ("numbers", False),
    ],
)
def test_samples_modes_and_log_probabilities_are_those_of_the_tensor_distribution(kind, masked):
    (sample, mode), distribution = pair(kind, masked)
    expected = distribution.sample(make_noise())
    # Numbers are rounded to 24 bits by either library; choices must be the same.
    tolerance = {"rtol": 1e-6, "atol": 1e-6} if kind == "numbers" else {"rtol": 0, "atol": 0}
    np.testing.assert_allclose(sample.actions, expected.numpy(), **tolerance)
    assert sample.actions.dtype == expected.numpy().dtype
    np.testing.assert_array_equal(mode.actions, distribution.mode().numpy())
    for chosen in (sample, mode):
        wanted = distribution.log_prob(torch.from_numpy(chosen.actions))
        np.testing.assert_allclose(chosen.log_prob, wanted.numpy(), rtol=1e-5, atol=1e-5)
        assert chosen.log_prob.dtype == np.float32
        assert chosen.log_prob.shape == (ROWS,)


def test_a_row_of_absurd_logits_has_no_log_probability_and_the_others_keep_theirs():
    logits = np.array([[np.nan, 0], [0, 0], [np.inf, np.inf]], np.float32)
    actions = sampling.categorical(logits, None, make_noise(3))
    log_prob = sampling.categorical_log_prob(logits, None, actions)
    # A fair coin: log(1/2).
    assert log_prob[1] == pytest.approx(-0.6931472)
    assert np.isnan(log_prob[[0, 2]]).all()


@pytest.mark.parametrize("activation", ["tanh", "relu", "elu", "silu"])
@pytest.mark.parametrize("rows", [1, 7, 300])
def test_a_tower_on_arrays_is_the_tower_of_tensors(activation, rows):
    torch.manual_seed(5)
    tower = Tower([6, 32, 16, 3], activation, 1.0)
    matrix = np.random.default_rng(1).normal(size=(rows, 6), scale=4).astype(np.float32)
    before = matrix.copy()
    with torch.inference_mode():
        expected = tower.forward(torch.from_numpy(matrix)).numpy()
    np.testing.assert_allclose(tower.forward_arrays(matrix), expected, rtol=1e-5, atol=1e-5)
    np.testing.assert_array_equal(matrix, before)


@pytest.mark.parametrize("activation", ["tanh", "relu", "elu", "silu"])
def test_huge_numbers_pass_through_every_activation_without_a_warning(activation):
    torch.manual_seed(5)
    tower = Tower([2, 4, 1], activation, 1.0)
    matrix = np.array([[1e30, -1e30], [-1e30, 1e30]], np.float32)
    with torch.inference_mode():
        expected = tower.forward(torch.from_numpy(matrix)).numpy()
    np.testing.assert_allclose(tower.forward_arrays(matrix), expected, rtol=1e-5)


def test_arrays_follow_the_weights_when_they_change_in_place_and_when_they_are_replaced():
    tower = Tower([2, 3, 1], "tanh", 1.0)
    rows = np.ones((1, 2), np.float32)
    tower.forward_arrays(rows)
    with torch.no_grad():
        for parameter in tower.parameters():
            parameter.zero_()
    assert tower.forward_arrays(rows).item() == 0.0
    last = tower[1]
    assert isinstance(last, nn.Linear)
    last.bias.data = torch.tensor([4.0])
    assert tower.forward_arrays(rows).item() == 4.0
    last.weight.data = torch.ones(1, 3)
    tower[0].bias.data = torch.full((3,), 50.0)  # tanh 50 is 1
    assert tower.forward_arrays(rows).item() == 7.0


def log_shares(*shares: float) -> np.ndarray:
    with np.errstate(divide="ignore"):
        return np.log(np.array([shares], np.float32))


@pytest.mark.parametrize(
    ("number", "expected"),
    [(1e-16, 1), (0.24, 1), (0.26, 3), (0.99, 3), (1.0 - 2.0**-53, 3)],
)
def test_inversion_takes_the_stretch_that_the_number_falls_into(number, expected):
    # Shares 0, 0.25, 0, 0.75, 0: the numbers below 0.25 belong to 1, all others to 3.
    legal = np.array([[False, True, True, True, False]])
    shares = log_shares(0.0, 0.25, 0.0, 0.75, 0.0)
    assert sampling.categorical_by_inversion(shares, legal, np.array([number])) == [expected]


def test_inversion_gives_legal_categories_their_shares_and_others_none():
    # A hundred categories, every third legal, shares in proportion to 1, 2, 3, ...
    n, k = 200_000, 100
    legal = np.arange(k) % 3 == 1
    shares = np.where(legal, np.arange(1, k + 1), 0.0)
    shares /= shares.sum()
    logits = np.tile(log_shares(*shares), (n, 1))
    numbers = make_noise(n).uniform(Purpose.ACTION, 1)[:, 0]
    chosen = sampling.categorical_by_inversion(logits, np.tile(legal, (n, 1)), numbers)
    counts = np.bincount(chosen, minlength=k)
    assert counts[~legal].sum() == 0
    # The largest share is 0.058; its deviation is sqrt(0.058 * 0.942 / 200000) = 0.0005.
    assert counts / n == pytest.approx(shares, abs=0.0025)


def test_inversion_of_absurd_numbers_is_the_first_legal_category():
    legal = np.array([[False, True, True], [False, False, True], [True, True, True]])
    absurd = np.array([[np.nan, np.nan, 0.0], [0.0, 0.0, np.inf], [-np.inf] * 3], np.float32)
    chosen = sampling.categorical_by_inversion(absurd, legal, np.full(3, 0.5))
    assert chosen.tolist() == [1, 2, 0]


def test_likeliest_by_inversion_is_the_first_of_the_largest_legal_ones():
    legal = np.array([[False, True, True, True]])
    shares = log_shares(0.6, 0.1, 0.15, 0.15)
    chosen = sampling.categorical_by_inversion(shares, legal, None)
    assert chosen.tolist() == [2]
