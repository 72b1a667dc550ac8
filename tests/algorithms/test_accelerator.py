"""Acting on a device: sizes, memory that stays and recordings, with the processor as the device."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from algorithms.noise import Noise
from algorithms.policies import accelerator
from algorithms.policies.accelerator import LARGEST_BATCH, DeviceRunner, as_cuda_graph
from algorithms.policies.config import MLPPolicyConfig
from algorithms.policies.mlp import MLPPolicy
from algorithms.policies.tower import Tower
from algorithms.spaces import Spaces
from royale_client.wire.spaces import BoxSpec, DiscreteSpec

CPU = torch.device("cpu")


class Recording:
    """Stands in for a CUDA graph: runs into the same memory again, and counts."""

    def __init__(self) -> None:
        self.sizes: list[int] = []
        self.replays = 0

    def __call__(self, forward):
        outputs = forward()
        self.sizes.append(len(outputs[0]))

        def replay():
            self.replays += 1
            for target, result in zip(outputs, forward(), strict=True):
                target.copy_(result)
            return outputs

        return replay


def run_tower(tower: Tower, rows: torch.Tensor) -> torch.Tensor:
    return tower.forward(rows)


@pytest.fixture
def towers() -> tuple[Tower, Tower]:
    torch.manual_seed(3)
    return Tower([3, 8, 2], "tanh", 1.0), Tower([3, 8, 1], "tanh", 1.0)


def expected(towers, matrix):
    with torch.inference_mode():
        return [tower.forward(torch.from_numpy(matrix)).numpy() for tower in towers]


@torch.inference_mode()
def run(runner, matrix, *towers):
    return runner.run(matrix, *towers)


def rows(n: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=(n, 3)).astype(np.float32)


def test_batches_are_filled_up_to_a_few_sizes_each_recorded_once(towers):
    recording = Recording()
    runner = DeviceRunner(CPU, 3, run_tower, recording)
    for n in (1, 16, 17, 5, 32, 31, 100):
        matrix = rows(n, n)
        outputs = run(runner, matrix, *towers)
        for output, wanted in zip(outputs, expected(towers, matrix), strict=True):
            assert output.shape == wanted.shape
            np.testing.assert_allclose(output, wanted, rtol=1e-5, atol=1e-6)
    # 1, 16 and 5 rows fit into 16; 17, 32 and 31 into 32; 100 into 128.
    assert recording.sizes == [16, 32, 128]
    # Once to learn the shapes of the outputs, for each size, and once a call.
    assert recording.replays == 3 + 7


def test_outputs_are_not_overwritten_by_the_next_batch(towers):
    runner = DeviceRunner(CPU, 3, run_tower, Recording())
    first = run(runner, rows(4, 1), *towers)
    copies = [output.copy() for output in first]
    run(runner, rows(4, 2), *towers)
    for output, copy in zip(first, copies, strict=True):
        np.testing.assert_array_equal(output, copy)


def test_what_a_larger_batch_left_behind_does_not_show_in_a_smaller_one(towers):
    runner = DeviceRunner(CPU, 3, run_tower, Recording())
    run(runner, np.full((16, 3), np.nan, np.float32), *towers)
    outputs = run(runner, rows(2), *towers)
    assert all(np.isfinite(output).all() for output in outputs)


def test_very_large_batches_run_as_they_are(towers):
    recording = Recording()
    runner = DeviceRunner(CPU, 3, run_tower, recording)
    matrix = rows(LARGEST_BATCH + 1)
    outputs = run(runner, matrix, *towers)
    np.testing.assert_allclose(outputs[0], expected(towers, matrix)[0], rtol=1e-5, atol=1e-6)
    assert recording.sizes == []


def test_each_choice_of_towers_has_its_own_recording(towers):
    recording = Recording()
    runner = DeviceRunner(CPU, 3, run_tower, recording)
    both = run(runner, rows(4), *towers)
    (alone,) = run(runner, rows(4), towers[1])
    np.testing.assert_array_equal(alone, both[1])
    assert recording.sizes == [16, 16]


def test_weights_that_move_in_memory_are_recorded_again_and_those_that_change_are_not(towers):
    recording = Recording()
    runner = DeviceRunner(CPU, 3, run_tower, recording)
    run(runner, rows(4), *towers)
    with torch.no_grad():
        towers[0][1].bias.fill_(2.0)
    np.testing.assert_allclose(
        run(runner, rows(4), *towers)[0], expected(towers, rows(4))[0], rtol=1e-5, atol=1e-6
    )
    assert len(recording.sizes) == 1
    towers[0][1].bias.data = torch.full((2,), -3.0)
    np.testing.assert_allclose(
        run(runner, rows(4), *towers)[0], expected(towers, rows(4))[0], rtol=1e-5, atol=1e-6
    )
    assert len(recording.sizes) == 2


def test_a_graph_that_cannot_be_recorded_is_said_and_done_without(monkeypatch, caplog):
    def refuse(forward):
        raise RuntimeError("operation not permitted when stream is capturing")

    monkeypatch.setattr(accelerator, "_record", refuse)
    forward = as_cuda_graph(lambda: [torch.ones(1)])
    assert forward()[0].item() == 1.0
    assert "kernel by kernel: operation not permitted" in caplog.text


SPACES = Spaces(
    observation=BoxSpec(-np.inf, np.inf, (3,), "float32"), action=DiscreteSpec(4), masks=False
)


def test_bfloat16_acts_and_learns_in_the_same_numbers_with_float32_around_them():
    torch.manual_seed(1)
    policy = MLPPolicy(MLPPolicyConfig(precision="bfloat16"), SPACES)
    torch.manual_seed(1)
    exact = MLPPolicy(MLPPolicyConfig(), SPACES)
    matrix = rows(40)
    noise = Noise(np.arange(40, dtype="u8"), np.zeros(40, "u8"), np.zeros(40, "u8"))
    state = policy.act((matrix,), None, noise).complete()
    judged = policy.evaluate_actions(
        policy.prepare((matrix,)), None, torch.from_numpy(state["action"])
    )
    assert judged.log_prob.dtype == judged.values.dtype == torch.float32
    assert state["log_prob"].dtype == state["value"].dtype == np.float32
    # The same rounding to 8 bits on both ways: what differs is the order of sums of float32.
    np.testing.assert_allclose(state["value"], judged.values.detach().numpy(), atol=2e-2)
    np.testing.assert_allclose(state["log_prob"], judged.log_prob.detach().numpy(), atol=2e-2)
    # It is really another precision: 2 ** -8 relative, not 2 ** -24.
    values = exact.values((matrix,))
    assert 1e-4 < np.abs(values - policy.values((matrix,))).max() < 5e-2
    judged.log_prob.sum().backward()
    assert all(p.dtype == torch.float32 for p in policy.parameters())
    assert policy.actor[0].weight.grad.isfinite().all()


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
def test_a_recorded_graph_follows_the_weights_and_equals_the_kernels(precision):
    policy = MLPPolicy(MLPPolicyConfig(precision=precision), SPACES, device="cuda")
    tolerance = 1e-5 if precision == "float32" else 2e-2
    for step in range(3):
        for n in (1, 20, 300):
            matrix = rows(n, step)
            with torch.no_grad():
                tensor = torch.from_numpy(matrix).cuda()
                wanted = policy._forward(policy.critic, tensor)[:, 0].cpu().numpy()
            np.testing.assert_allclose(policy.values((matrix,)), wanted, atol=tolerance)
        with torch.no_grad():
            for parameter in policy.parameters():
                parameter.mul_(1.5)
