"""Action distributions: exact probabilities, masks, joint actions, sampling from keyed noise."""

import math

import numpy as np
import pytest
import torch

from algorithms.distributions import Categorical, DiagGaussian, MultiCategorical
from algorithms.noise import Noise, Purpose, slot_key


def make_noise(num_rows):
    keys = np.full(num_rows, slot_key(3, "client", 0), np.uint64)
    return Noise(keys, np.zeros(num_rows, np.uint64), np.arange(num_rows, dtype=np.uint64))


def rows(*values):
    return torch.tensor(values, dtype=torch.float32)


def bools(*values):
    return torch.tensor(values, dtype=torch.bool)


def test_masked_actions_have_probability_zero_and_finite_entropy():
    # Case H05. Logits 1 and 3 are legal: p = 1 / (1 + e**2) = 0.11920292 and 0.88079708.
    # Entropy 0.11920292 * 2.12692801 + 0.88079708 * 0.12692801 = 0.36533391.
    policy = Categorical(rows([1, 2, 3, 4]), bools([True, False, True, False]))
    probabilities = [policy.log_prob(torch.tensor([a])).exp().item() for a in range(4)]
    assert probabilities == pytest.approx([0.11920291, 0, 0.88079703, 0], abs=1e-6)
    assert probabilities[1] == probabilities[3] == 0.0
    assert policy.entropy().item() == pytest.approx(0.36533391, abs=1e-6)
    assert policy.log_prob(torch.tensor([2])).item() == pytest.approx(-0.12692809, abs=1e-6)


def test_gradients_of_masked_logits_are_zero_and_of_the_others_exact():
    # Case H05. d log p(2) / d logits = [-p0, 0, 1 - p2, 0] = [-0.11920292, 0, 0.11920292, 0];
    # d entropy / d logit 0 = -p0 * (log p0 + H) = -0.11920292 * (-2.12692801 + 0.36533391)
    # = 0.20998716, and minus that for logit 2. The sum is 0.09078423.
    logits = rows([1, 2, 3, 4]).requires_grad_()
    policy = Categorical(logits, bools([True, False, True, False]))
    (policy.log_prob(torch.tensor([2])) + policy.entropy()).sum().backward()
    assert logits.grad[0].tolist() == pytest.approx([0.09078423, 0, -0.09078423, 0], abs=1e-6)
    assert logits.grad[0, 1] == logits.grad[0, 3] == 0.0


def test_two_equal_legal_actions_have_the_entropy_of_a_coin():
    policy = Categorical(rows([0, 0, 50]), bools([True, True, False]))
    assert policy.entropy().item() == pytest.approx(math.log(2), abs=1e-6)


def test_a_million_samples_hold_no_masked_action_and_the_right_shares():
    n = 1_000_000
    logits = rows([1, 2, 3, 4]).expand(n, 4)
    mask = bools([True, False, True, False]).expand(n, 4)
    counts = Categorical(logits, mask).sample(make_noise(n)).bincount(minlength=4)
    assert counts[1] == counts[3] == 0
    # Standard deviation of the share: sqrt(0.119 * 0.881 / 1e6) = 0.00032.
    assert counts[0].item() / n == pytest.approx(0.11920291, abs=0.0015)


@pytest.mark.parametrize("logit", [-1e30, 1e30, float("nan"), float("inf"), float("-inf")])
def test_absurd_logits_still_give_a_legal_action(logit):
    logits = torch.full((50, 4), logit)
    mask = bools([False, True, False, True]).expand(50, 4)
    policy = Categorical(logits, mask)
    assert set(policy.sample(make_noise(50)).tolist()) <= {1, 3}
    assert set(policy.mode().tolist()) == {1}


def test_logits_that_are_not_finite_show_in_the_log_prob_of_their_row_only():
    policy = Categorical(rows([0, float("nan")], [0, 0]))
    log_probs = policy.log_prob(torch.tensor([0, 0]))
    assert log_probs.isnan().tolist() == [True, False]


def test_a_row_that_allows_nothing_is_refused_by_number():
    mask = bools([True, False], [False, False], [True, True])
    with pytest.raises(ValueError, match="allows nothing in row 1 of 3 rows"):
        Categorical(torch.zeros(3, 2), mask)
    parts = bools([True, True, True, True, True], [True, False, False, False, False])
    with pytest.raises(ValueError, match="allows nothing in row 1, part 1 of 2 rows"):
        MultiCategorical(torch.zeros(2, 5), (3, 2), parts)


def test_masks_of_another_shape_or_dtype_are_refused():
    with pytest.raises(ValueError, match=r"must be bool \(2, 3\), got torch\.bool \(3,\)"):
        Categorical(torch.zeros(2, 3), bools(True, True, True))
    with pytest.raises(ValueError, match=r"got torch\.uint8"):
        Categorical(torch.zeros(1, 2), torch.ones(1, 2, dtype=torch.uint8))
    with pytest.raises(ValueError, match=r"mask must be bool \(1, 5\), got .* \(1, 6\)"):
        MultiCategorical(torch.zeros(1, 5), (3, 2), torch.ones(1, 6, dtype=torch.bool))


def test_logits_of_another_shape_are_refused():
    with pytest.raises(ValueError, match=r"must be \(n, k\), got \(3,\)"):
        Categorical(torch.zeros(3))
    with pytest.raises(ValueError, match=r"must be \(n, 5\), got \(1, 6\)"):
        MultiCategorical(torch.zeros(1, 6), (3, 2))


def test_joint_log_probability_and_entropy_are_sums_over_parts():
    # Case H07. Part 0: log softmax of [0, 1, 2] at 2 = -0.40760596; part 1: of [1, -1] at 1
    # = -2.12692801. Sum -2.53453398; the mean, -1.26726699, is the known mistake.
    # Entropies 0.83239 and 0.36533 sum to 1.19772935.
    policy = MultiCategorical(rows([0, 1, 2, 1, -1]), (3, 2))
    assert policy.log_prob(torch.tensor([[2, 1]])).item() == pytest.approx(-2.53453398, abs=1e-6)
    assert policy.entropy().item() == pytest.approx(1.19772935, abs=1e-6)


def test_on_off_actions_are_parts_with_two_categories():
    # Case H07. Logits 0.5, -2, 1 for «on» against 0 for «off», action (1, 0, 1):
    # log sigmoid(0.5) + log sigmoid(2) + log sigmoid(1) = -0.474077 - 0.126928 - 0.313262.
    policy = MultiCategorical(rows([0, 0.5, 0, -2, 0, 1]), (2, 2, 2))
    action = torch.tensor([[1, 0, 1]])
    assert policy.log_prob(action).item() == pytest.approx(-0.91426677, abs=1e-6)
    assert policy.entropy().item() == pytest.approx(1.61038423, abs=1e-6)


@pytest.mark.parametrize("nvec", [(3, 2), (2, 2), (4,), (1, 5, 2)])
@pytest.mark.parametrize("masked", [False, True])
def test_parts_equal_separate_choices(nvec, masked):
    n, generator = 20, torch.Generator().manual_seed(0)
    logits = torch.randn(n, sum(nvec), generator=generator)
    mask = torch.rand(n, sum(nvec), generator=generator) < 0.5
    starts = np.cumsum([0, *nvec[:-1]])
    mask[:, starts] = True
    joint = MultiCategorical(logits, nvec, mask if masked else None)
    parts = [
        Categorical(logits[:, s : s + k], mask[:, s : s + k] if masked else None)
        for s, k in zip(starts, nvec, strict=True)
    ]

    actions = joint.sample(make_noise(n))

    assert actions.shape == (n, len(nvec))
    assert joint.mode().tolist() == torch.stack([p.mode() for p in parts], dim=1).tolist()
    log_prob = sum(p.log_prob(actions[:, i]) for i, p in enumerate(parts))
    assert log_prob.isfinite().all()  # every sampled action is a legal one of its own part
    torch.testing.assert_close(joint.log_prob(actions), log_prob)
    torch.testing.assert_close(joint.entropy(), sum(p.entropy() for p in parts))


def test_gradients_reach_every_logit_of_unequal_parts():
    logits = torch.zeros(1, 5, requires_grad=True)
    MultiCategorical(logits, (3, 2)).log_prob(torch.tensor([[2, 0]])).sum().backward()
    # One minus the probability for the chosen ones, minus the probability for the others.
    assert logits.grad[0].tolist() == pytest.approx([-1 / 3, -1 / 3, 2 / 3, 1 / 2, -1 / 2])


def test_parts_are_sampled_independently_with_the_right_shares():
    n = 20_000
    logits = rows([0, math.log(3), 0, 0, math.log(2)]).expand(n, 5)
    actions = MultiCategorical(logits, (2, 3)).sample(make_noise(n))
    counts = torch.zeros(2, 3)
    for first, second in actions.tolist():
        counts[first, second] += 1
    # Part 0: 1/4, 3/4. Part 1: 1/4, 1/4, 1/2. Standard deviation of a share below 0.0035.
    expected = torch.tensor([[1, 1, 2], [3, 3, 6]]) / 16
    torch.testing.assert_close(counts / n, expected, atol=0.015, rtol=0)


def test_gaussian_entropy_sums_over_dimensions():
    # Case H07. Log deviations -1, 0, 0.5: -0.5 + 3 * (0.5 + 0.5 * log(2 pi)) = 3.75681560.
    policy = DiagGaussian(torch.zeros(4, 3), torch.tensor([-1, 0, 0.5]))
    assert policy.entropy().tolist() == pytest.approx([3.7568156] * 4, abs=1e-6)


def test_the_log_probability_is_that_of_the_raw_sample_not_of_the_bounded_one():
    # Case H09. Mean 0.9, deviation 0.3, sample 1.4: z = 5 / 3,
    # -25 / 18 - log 0.3 - 0.5 log(2 pi) = -1.10385454. At the bound 1.0 it would be 0.22947872.
    policy = DiagGaussian(torch.tensor([[0.9]]), torch.tensor([0.3]).log())
    assert policy.log_prob(torch.tensor([[1.4]])).item() == pytest.approx(-1.10385454, abs=1e-5)
    assert policy.log_prob(torch.tensor([[1.0]])).item() == pytest.approx(0.22947872, abs=1e-5)


def test_gaussian_samples_are_mean_plus_scaled_noise_and_never_clipped():
    noise = make_noise(1000)
    mean = torch.arange(2000.0).view(1000, 2)
    sample = DiagGaussian(mean, torch.tensor([0.0, math.log(10)])).sample(noise)
    expected = mean.numpy() + noise.normal(Purpose.ACTION, 2) * [1, 10]
    np.testing.assert_allclose(sample.numpy(), expected, rtol=1e-6, atol=1e-4)
    assert sample.dtype == torch.float32


def test_gaussian_deviations_may_differ_from_row_to_row():
    log_std = torch.tensor([[0.0], [1.0]])
    policy = DiagGaussian(torch.zeros(2, 1), log_std)
    # Density at the mean: -log std - 0.5 log(2 pi).
    log_prob = policy.log_prob(torch.zeros(2, 1))
    assert log_prob.tolist() == pytest.approx([-0.9189385, -1.9189385], abs=1e-6)
    assert policy.mode().tolist() == [[0.0], [0.0]]
    with pytest.raises(ValueError, match=r"got \(2, 1\) and \(2,\)"):
        DiagGaussian(torch.zeros(2, 1), torch.zeros(2))


@pytest.mark.parametrize(
    ("policy", "wrong"),
    [
        (Categorical(torch.zeros(5, 3)), torch.zeros(5, 1, dtype=torch.int64)),
        (MultiCategorical(torch.zeros(5, 4), (2, 2)), torch.zeros(5, dtype=torch.int64)),
        (DiagGaussian(torch.zeros(5, 2), torch.zeros(2)), torch.zeros(5, 1)),
    ],
)
def test_results_have_one_number_per_row_and_broadcasting_is_refused(policy, wrong):
    # Case H07: a ratio has shape (5,), never (5, 5).
    actions = policy.sample(make_noise(5))
    assert (policy.log_prob(actions) - policy.log_prob(policy.mode())).exp().shape == (5,)
    assert policy.entropy().shape == (5,)
    with pytest.raises(ValueError, match="actions must be"):
        policy.log_prob(wrong)


@pytest.mark.parametrize("kind", ["categorical", "masked", "parts", "gaussian"])
def test_a_row_is_sampled_alike_alone_and_in_a_batch(kind):
    n, generator = 17, torch.Generator().manual_seed(1)
    parameters = torch.randn(n, 5, generator=generator)

    def make(chosen):
        match kind:
            case "categorical":
                return Categorical(chosen)
            case "masked":
                return Categorical(chosen, chosen >= chosen.median(-1, keepdim=True).values)
            case "parts":
                return MultiCategorical(chosen, (3, 2))
            case _:
                return DiagGaussian(chosen, torch.full((5,), -0.5))

    noise, whole = make_noise(n), make(parameters)
    actions = whole.sample(noise)
    for row in range(n):
        one = slice(row, row + 1)
        alone = make(parameters[one])
        sample = alone.sample(Noise(noise.keys[one], noise.episodes[one], noise.steps[one]))
        assert torch.equal(sample, actions[one])
        assert torch.equal(alone.log_prob(sample), whole.log_prob(actions)[one])


def test_sampling_takes_other_numbers_for_another_purpose():
    policy = DiagGaussian(torch.zeros(3, 2), torch.zeros(2))
    noise = make_noise(3)
    assert not torch.equal(policy.sample(noise), policy.sample(noise, Purpose.EXPLORE))


def test_samples_carry_no_gradient():
    logits = torch.zeros(2, 3, requires_grad=True)
    assert not Categorical(logits).sample(make_noise(2)).requires_grad
    assert not DiagGaussian(logits, logits[0]).sample(make_noise(2)).requires_grad


def test_parts_first_used_for_acting_can_be_learnt_from():
    nvec = (7, 2, 3)  # used by no other test, so that acting is what fills the caches
    with torch.inference_mode():
        actions = MultiCategorical(torch.zeros(2, 12), nvec).sample(make_noise(2)).numpy()
    logits = torch.zeros(2, 12, requires_grad=True)
    policy = MultiCategorical(logits, nvec)
    (policy.log_prob(torch.from_numpy(actions)) + policy.entropy()).sum().backward()
    assert logits.grad.isfinite().all()
