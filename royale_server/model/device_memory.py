"""What a device says of its memory. The one place that asks; CUDA alone has a driver to ask.

Reads counters and waits for the device; allocates nothing.
"""

from __future__ import annotations

from typing import Protocol

import torch


class DeviceMemory(Protocol):
    """Memory of the device that the policy lives on."""

    def free_bytes(self) -> int:
        """What the driver reports free now, whoever uses the rest."""

    def start_measuring(self) -> None:
        """Forget the peak so far."""

    def peak_bytes(self) -> int:
        """Most that this process has reserved since, beyond what it held when measuring began."""


class CudaMemory:
    """A GPU.

    Args:
        device: Which.
    """

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._held = 0

    def free_bytes(self) -> int:
        """See `DeviceMemory`."""
        free, _ = torch.cuda.mem_get_info(self._device)
        return int(free)

    def start_measuring(self) -> None:
        """See `DeviceMemory`."""
        torch.cuda.synchronize(self._device)
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats(self._device)
        self._held = torch.cuda.memory_reserved(self._device)

    def peak_bytes(self) -> int:
        """See `DeviceMemory`."""
        torch.cuda.synchronize(self._device)
        return int(torch.cuda.max_memory_reserved(self._device)) - self._held


def memory_of(device: torch.device) -> DeviceMemory | None:
    """Return the memory of a device; None for the processor, whose memory the ledger covers."""
    return CudaMemory(device) if device.type == "cuda" else None
