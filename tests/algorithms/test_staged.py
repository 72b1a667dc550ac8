"""A choice in stages is one masked choice: probabilities, entropies, gradients."""

import math

import numpy as np
import pytest
import torch

from algorithms.distributions import Categorical
from algorithms.policies.staged import (
    StagedCategorical,
    StageOutputs,
    choose_in_stages,
    masked_stages,
)
from tests.algorithms.rollouts import make_noise


def outputs_of(act, slots, tiles):
    return StageOutputs(act=torch.tensor(act), slots=torch.tensor(slots), tiles=torch.tensor(tiles))


def random_outputs(rows=7, slots=3, tiles=4, seed=0):
    torch.manual_seed(seed)
    return StageOutputs(
        act=3 * torch.randn(rows),
        slots=3 * torch.randn(rows, slots),
        tiles=3 * torch.randn(rows, slots, tiles),
    )


def random_mask(rows=7, width=13, seed=0):
    mask = torch.from_numpy(np.random.default_rng(seed).random((rows, width)) < 0.5)
    mask[:, 0] = True
    mask[0, 5:9] = False  # nothing legal in slot 1
    mask[1, 1:] = False  # only waiting
    mask[2, 0] = False  # no waiting
    mask[2, 7] = True
    mask[3] = False
    mask[3, 6] = True  # one action, and it is not waiting
    return mask


def compose(outputs, mask):
    return StagedCategorical(masked_stages(outputs, mask), mask)


def probabilities(distribution, rows, width):
    columns = [distribution.log_prob(torch.full((rows,), action)).exp() for action in range(width)]
    return torch.stack(columns, dim=1)


def flat_logits(outputs, mask):
    """Logits over all actions, written down from the definition, one number after another."""
    rows, slots, tiles = outputs.tiles.shape
    legal = mask[:, 1:].view(rows, slots, tiles)
    logits = torch.full((rows, 1 + slots * tiles), -math.inf, dtype=torch.float64)
    logits[:, 0] = 0.0
    for i in range(rows):
        open_slots = [s for s in range(slots) if legal[i, s].any()]
        of_slots = sum(math.exp(outputs.slots[i, s]) for s in open_slots)
        for s in open_slots:
            open_tiles = [t for t in range(tiles) if legal[i, s, t]]
            of_tiles = sum(math.exp(outputs.tiles[i, s, t]) for t in open_tiles)
            for t in open_tiles:
                logits[i, 1 + s * tiles + t] = (
                    outputs.act[i]
                    + outputs.slots[i, s]
                    - math.log(of_slots)
                    + outputs.tiles[i, s, t]
                    - math.log(of_tiles)
                )
    return logits


def test_probability_is_the_product_of_the_stages():
    # Two slots of two tiles, everything legal. Acting: e**ln 3 against 1, so 3/4. Slots 1 : 4, so
    # 0.2 and 0.8. Tiles of slot 0 are 1 : 1, of slot 1 are 1 : 3.
    # P = 1/4; 3/4 * 0.2 * (0.5, 0.5) = 0.075 each; 3/4 * 0.8 * (0.25, 0.75) = 0.15 and 0.45.
    outputs = outputs_of([math.log(3)], [[0.0, math.log(4)]], [[[0.0, 0.0], [0.0, math.log(3)]]])
    mask = torch.ones(1, 5, dtype=torch.bool)
    found = probabilities(compose(outputs, mask), 1, 5)[0].tolist()
    assert found == pytest.approx([0.25, 0.075, 0.075, 0.15, 0.45], abs=1e-6)


def test_mask_shares_out_within_each_stage():
    # The same with tile 1 of slot 1 forbidden: slot 1 keeps its 0.8, all on tile 0.
    outputs = outputs_of([math.log(3)], [[0.0, math.log(4)]], [[[0.0, 0.0], [0.0, math.log(3)]]])
    mask = torch.tensor([[True, True, True, True, False]])
    found = probabilities(compose(outputs, mask), 1, 5)[0].tolist()
    assert found == pytest.approx([0.25, 0.075, 0.075, 0.6, 0.0], abs=1e-6)


@pytest.mark.parametrize("seed", range(4))
def test_composition_equals_one_softmax_over_masked_flat_logits(seed):
    outputs, mask = random_outputs(seed=seed), random_mask(seed=seed)
    logits = flat_logits(outputs, mask).masked_fill(~mask, -math.inf)
    expected = torch.softmax(logits, dim=1)
    found = probabilities(compose(outputs, mask), 7, 13)
    assert (found - expected).abs().max() < 1e-6
    assert (found[~mask] == 0.0).all()
    assert found.sum(1).detach().numpy() == pytest.approx(np.ones(7), abs=1e-5)


def test_row_with_one_legal_action_has_log_probability_zero_to_the_last_bit():
    found = compose(random_outputs(), random_mask())
    log_prob = found.log_prob(torch.tensor([0, 0, 7, 6, 0, 0, 0]))
    assert log_prob[1] == 0.0
    assert log_prob[3] == 0.0
    assert found.entropy()[[1, 3]].tolist() == pytest.approx([0.0, 0.0], abs=1e-30)


@pytest.mark.parametrize("seed", range(4))
def test_entropies_of_the_stages_add_up_to_that_of_the_flat_choice(seed):
    outputs, mask = random_outputs(seed=seed), random_mask(seed=seed)
    staged = compose(outputs, mask)
    flat = Categorical(flat_logits(outputs, mask).float(), mask)
    parts = staged.entropy_parts()
    assert list(parts) == ["gate", "slot", "tile"]
    assert torch.allclose(sum(parts.values()), flat.entropy(), atol=1e-5)
    assert torch.allclose(staged.entropy(), flat.entropy(), atol=1e-5)
    assert torch.allclose(staged.noop_entropy(), flat.noop_entropy(), atol=1e-5)


def test_stage_entropies_are_those_worked_out_by_hand():
    # As in the first test. Gate: H(1/4) = 0.56233514. Slots: H(0.2) = 0.50040242, times 0.75 =
    # 0.37530182. Tiles: 0.2 * ln 2 + 0.8 * H(1/4) = 0.13862944 + 0.44986812 = 0.58849755, times
    # 0.75 = 0.44137316.
    outputs = outputs_of([math.log(3)], [[0.0, math.log(4)]], [[[0.0, 0.0], [0.0, math.log(3)]]])
    parts = compose(outputs, torch.ones(1, 5, dtype=torch.bool)).entropy_parts()
    assert parts["gate"].item() == pytest.approx(0.56233514, abs=1e-6)
    assert parts["slot"].item() == pytest.approx(0.37530182, abs=1e-6)
    assert parts["tile"].item() == pytest.approx(0.44137316, abs=1e-6)


def test_gradients_are_finite_and_zero_where_there_is_no_choice():
    outputs = StageOutputs(*(part.requires_grad_() for part in random_outputs()))
    mask = random_mask()
    found = compose(outputs, mask)
    actions = torch.tensor([0, 0, 7, 6, 0, 0, 0])
    (found.log_prob(actions) + found.entropy() + found.noop_entropy()).sum().backward()
    for part in outputs:
        assert part.grad.isfinite().all()
        assert not part.grad[1].any()  # only waiting
        assert not part.grad[3].any()  # only one tile
    assert not outputs.tiles.grad[~mask[:, 1:].view(7, 3, 4)].any()
    assert outputs.act.grad[0] != 0.0


def test_gradients_equal_those_of_the_flat_choice():
    # The gradient of the composition by automatic differentiation of its definition in float64.
    mask = random_mask()
    actions = torch.tensor([0, 0, 7, 6, 0, 0, 0])
    outputs = StageOutputs(*(part.double().requires_grad_() for part in random_outputs()))
    tiles = torch.log_softmax(outputs.tiles.masked_fill(~mask[:, 1:].view(7, 3, 4), -1e30), dim=-1)
    open_slots = mask[:, 1:].view(7, 3, 4).any(-1)
    slots = torch.log_softmax(outputs.slots.masked_fill(~open_slots, -1e30), dim=-1)
    acting = outputs.act[:, None, None] + slots[:, :, None] + tiles
    logits = torch.cat([torch.zeros(7, 1).double(), acting.flatten(1)], dim=1)
    expected = torch.log_softmax(logits.masked_fill(~mask, -1e30), dim=1)
    expected[torch.arange(7), actions].sum().backward()
    own = StageOutputs(*(part.requires_grad_() for part in random_outputs()))
    compose(own, mask).log_prob(actions).sum().backward()
    for part, reference in zip(own, outputs, strict=True):
        assert torch.allclose(part.grad, reference.grad.float(), atol=1e-5)


@pytest.mark.parametrize("seed", range(3))
def test_gradients_of_entropies_equal_those_of_the_definition(seed):
    # Both gradients of a stage are written by hand: here against automatic ones in float64.
    outputs = StageOutputs(*(part.double().requires_grad_() for part in random_outputs(seed=seed)))
    mask = random_mask(seed=seed)
    weights = torch.linspace(0.5, 2.0, 7).double()
    tiles = outputs.tiles.masked_fill(~mask[:, 1:].view(7, 3, 4), -1e30).log_softmax(-1)
    slots = outputs.slots.masked_fill(~mask[:, 1:].view(7, 3, 4).any(-1), -1e30).log_softmax(-1)
    gate = torch.stack([torch.zeros(7).double(), outputs.act], dim=1)
    legal = torch.stack([mask[:, 0], mask[:, 1:].any(1)], dim=1)
    gate = gate.masked_fill(~legal, -1e30).log_softmax(-1)
    acting = (gate[:, 1:] + slots)[:, :, None] + tiles
    flat = torch.cat([gate[:, :1], acting.flatten(1)], dim=1)
    ((flat.exp() * flat.clamp(min=-1e3)).sum(1) * -weights).sum().backward()
    own = StageOutputs(*(part.requires_grad_() for part in random_outputs(seed=seed)))
    (compose(own, mask).entropy() * weights.float()).sum().backward()
    for part, reference in zip(own, outputs, strict=True):
        assert torch.allclose(part.grad, reference.grad.float(), atol=1e-5)


def test_likeliest_is_decided_stage_by_stage():
    # Acting 0.6 against 0.4, on one of four equally likely tiles: 0.15 each, less than waiting.
    outputs = outputs_of([math.log(1.5)], [[0.0, -9.0]], [[[0.0] * 4, [0.0] * 4]])
    mask = torch.ones(1, 9, dtype=torch.bool)
    found = compose(outputs, mask)
    assert probabilities(found, 1, 9).argmax().item() == 0
    assert found.mode().item() == 1
    assert compose(outputs._replace(act=-outputs.act), mask).mode().item() == 0


def test_samples_have_the_shares_of_the_composed_probabilities():
    # The first test's shares, 20,000 times: within four deviations, 4 sqrt(0.25 / 20000) = 0.014.
    rows = 20_000
    outputs = outputs_of([math.log(3)], [[0.0, math.log(4)]], [[[0.0, 0.0], [0.0, math.log(3)]]])
    many = StageOutputs(*(part.expand(rows, *part.shape[1:]) for part in outputs))
    found = compose(many, torch.ones(rows, 5, dtype=torch.bool)).sample(make_noise(rows))
    shares = np.bincount(found.numpy(), minlength=5) / rows
    assert shares == pytest.approx([0.25, 0.075, 0.075, 0.15, 0.45], abs=0.014)


def test_later_stages_are_only_asked_of_rows_that_act():
    gate = np.log(np.array([[1.0, 1e-30], [1e-30, 1.0], [1e-30, 1.0]], np.float32))
    asked = []

    def slots_of(rows):
        asked.append(rows.tolist())
        return np.log(np.array([[0.5, 0.5], [0.125, 0.875]], np.float32))

    def tiles_of(rows, slots):
        asked.append((rows.tolist(), slots.tolist()))
        return np.log(np.array([[0.25, 0.75], [0.25, 0.75]], np.float32))

    masks = np.ones((3, 5), bool)
    masks[1, 3:] = False  # slot 1 has no tile
    numbers = np.array([[0.5, 0.5, 0.5], [0.5, 0.99, 0.1], [0.5, 0.2, 0.9]])
    found = choose_in_stages(gate, masks, 2, slots_of=slots_of, tiles_of=tiles_of, numbers=numbers)
    assert asked == [[1, 2], ([1, 2], [0, 1])]
    # Slot 0, tile 0 and slot 1, tile 1; 0.5 * 0.25 and 0.875 * 0.75.
    assert found.actions.tolist() == [0, 1, 4]
    assert found.log_probs == pytest.approx(np.log([1.0, 0.125, 0.65625]), abs=1e-6)


def test_mask_that_allows_nothing_is_refused():
    mask = random_mask()
    mask[4] = False
    with pytest.raises(ValueError, match="allows nothing in row 4 of 7 rows"):
        compose(random_outputs(), mask)
