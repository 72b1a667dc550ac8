"""Memory of the policy's device in a row: there on CUDA, absent elsewhere."""

from types import SimpleNamespace

import pytest
import torch
from torch import nn

from royale_server.model.vram import vram_mb
from royale_server.monitoring.declarations import declared


def test_a_policy_on_the_cpu_or_without_weights_has_no_such_numbers():
    assert vram_mb(nn.Linear(2, 2)) == {}
    assert vram_mb(nn.Identity()) == {}


def test_numbers_are_of_the_device_of_the_policy(monkeypatch: pytest.MonkeyPatch):
    device = torch.device("cuda", 1)
    of_second = {device: (3e9, 8e9)}
    monkeypatch.setattr(torch.cuda, "mem_get_info", of_second.__getitem__)
    monkeypatch.setattr(torch.cuda, "memory_reserved", {device: 2e9}.__getitem__)
    monkeypatch.setattr(torch.cuda, "max_memory_allocated", {device: 1e9}.__getitem__)
    policy = SimpleNamespace(parameters=lambda: iter([SimpleNamespace(device=device)]))
    numbers = vram_mb(policy)
    assert numbers == {
        "health/vram_driver_free_mb": 3000.0,
        "health/vram_reserved_mb": 2000.0,
        "health/vram_peak_mb": 1000.0,
    }
    assert set(numbers) == {key for key in declared(()) if key.startswith("health/vram_")}
