"""What the driver and torch say of the memory of the policy's device; nothing on a CPU."""

from __future__ import annotations

import torch
from torch import nn

_MB = 1e6


def vram_mb(policy: nn.Module) -> dict[str, float]:
    """Return the device's memory in MB by metric key; empty unless the policy is on CUDA.

    Takes tens of microseconds: once an iteration, never once a batch.
    """
    parameter = next(policy.parameters(), None)
    if parameter is None or parameter.device.type != "cuda":
        return {}
    device = parameter.device
    return {
        "health/vram_driver_free_mb": torch.cuda.mem_get_info(device)[0] / _MB,
        "health/vram_reserved_mb": torch.cuda.memory_reserved(device) / _MB,
        "health/vram_peak_mb": torch.cuda.max_memory_allocated(device) / _MB,
    }
