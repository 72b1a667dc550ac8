"""The loss terms of PPO against numbers worked out by hand."""

import math

import numpy as np
import pytest
import torch

from algorithms.ppo.losses import explained_variance, kl_divergence, policy_loss, value_loss


def vector(*values):
    return torch.tensor(values, dtype=torch.float64)


def test_policy_loss_takes_the_smaller_objective_of_each_frame():
    # Case H08. Ratios e**0.5 = 1.64872127 and e**-0.5 = 0.60653066, clipped to 1.2 and 0.8.
    # A = 1: min(1.6487, 1.2) = 1.2 and min(0.6065, 0.8) = 0.60653066.
    # A = -1: min(-1.6487, -1.2) = -1.64872127 and min(-0.6065, -0.8) = -0.8.
    # Mean of [1.2, 0.60653066, -1.64872127, -0.8] is -0.16054765; the loss is its negative.
    new, old = vector(-0.5, -1.5, -0.5, -1.5), vector(-1, -1, -1, -1)
    result = policy_loss(new - old, vector(1, 1, -1, -1), clip_coef=0.2)
    assert result.loss.item() == pytest.approx(0.16054765, abs=1e-7)
    assert result.clip_fraction.item() == 1.0


def test_ratio_inside_the_range_is_not_counted_as_clipped():
    # Ratios 1.1 and 1.3 with range 0.2: one of two is outside.
    log_ratio = vector(math.log(1.1), math.log(1.3))
    assert policy_loss(log_ratio, vector(1, 1), clip_coef=0.2).clip_fraction.item() == 0.5


def test_dual_clip_bounds_what_a_negative_advantage_can_cost():
    # Ratio 5, A = -1: the objective is min(-5, -1.2) = -5, bounded by 3 * -1 = -3.
    # Ratio 5, A = +1: min(5, 1.2) = 1.2 stays. Mean (-3 + 1.2) / 2 = -0.9, loss 0.9.
    log_ratio = vector(math.log(5), math.log(5))
    result = policy_loss(log_ratio, vector(-1, 1), clip_coef=0.2, dual_clip=3.0)
    assert result.loss.item() == pytest.approx(0.9)
    assert result.dual_clip_fraction.item() == 0.5


def test_frame_behind_the_dual_clip_pushes_no_longer():
    log_ratio = vector(math.log(5)).requires_grad_()
    policy_loss(log_ratio, vector(-1), clip_coef=0.2, dual_clip=3.0).loss.backward()
    assert log_ratio.grad.item() == 0.0


@pytest.mark.parametrize(("advantage", "sign"), [(2.0, -1.0), (-2.0, 1.0)])
def test_following_the_gradient_makes_good_actions_likelier(advantage, sign):
    # d loss / d log-prob = -ratio * A = -A at ratio 1: descending raises good actions.
    log_ratio = vector(0.0).requires_grad_()
    policy_loss(log_ratio, vector(advantage), clip_coef=0.2).loss.backward()
    assert log_ratio.grad.item() == pytest.approx(sign * 2.0)


def test_clipped_value_loss_takes_the_larger_error():
    # Case H08. Values [2, 1.1] clipped to old 1 +- 0.2: [1.2, 1.1].
    # Squared errors to [3, 0]: max(1, 3.24) = 3.24 and 1.21; half their mean is 1.1125.
    # Unclipped: (1 + 1.21) / 2 / 2 = 0.5525.
    values, old, returns = vector(2, 1.1), vector(1, 1), vector(3, 0)
    assert value_loss(values, old, returns, value_clip=0.2).item() == pytest.approx(1.1125)
    assert value_loss(values, old, returns).item() == pytest.approx(0.5525)


def test_column_beside_a_row_is_refused_instead_of_making_a_table():
    # Case H07: (5, 1) combined with (5,) would broadcast to (5, 5).
    column, row = torch.zeros(5, 1), torch.zeros(5)
    with pytest.raises(ValueError, match=r"log_ratio \(5, 1\), advantages \(5,\)"):
        policy_loss(column, row, clip_coef=0.2)
    with pytest.raises(ValueError, match=r"values \(5, 1\)"):
        value_loss(column, row, row)


def test_kl_estimate_is_the_third_estimator_and_zero_without_movement():
    # k3 = (r - 1) - log r. r = 2: 1 - 0.69314718 = 0.30685282; r = 0.5: -0.5 + 0.69314718
    # = 0.19314718. The mean is 0.25.
    assert kl_divergence(vector(math.log(2), math.log(0.5))).item() == pytest.approx(0.25)
    assert kl_divergence(vector(0.0, 0.0)).item() == 0.0


def test_explained_variance_is_one_for_truth_zero_for_the_mean_and_negative_beyond():
    returns = np.array([1.0, 2.0, 3.0])
    assert explained_variance(returns, returns) == pytest.approx(1.0)
    assert explained_variance(np.full(3, 2.0), returns) == pytest.approx(0.0)
    # Residuals [-2, 0, 2] have 4 times the variance of the returns: 1 - 4 = -3.
    assert explained_variance(np.array([3.0, 2.0, 1.0]), returns) == pytest.approx(-3.0)


def test_explained_variance_is_absent_where_nothing_varies():
    assert explained_variance(np.zeros(3), np.full(3, 7.0)) is None
    assert explained_variance(np.zeros(0), np.zeros(0)) is None
