"""Acting on an accelerator: batches of a few sizes, memory that stays, kernels recorded once.

A small network costs a GPU microseconds and its launches ten times as much. So rows are filled up
to one of a few sizes; for each the memory of both sides is allocated once, copies do not block, and
the kernels are recorded as one CUDA graph. Where recording fails the same is run kernel by kernel.
Knows towers and arrays, no policy. Letters: n rows, D columns.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TypeAlias

import numpy as np
import torch
from torch import Tensor

from algorithms.policies.tower import Matrix, Tower

logger = logging.getLogger(__name__)

Forward: TypeAlias = Callable[[], list[Tensor]]
Recorder: TypeAlias = Callable[[Forward], Forward]

SMALLEST_BATCH = 16
LARGEST_BATCH = 4096
"""Larger batches keep a device busy by themselves: they run as they are."""
_WARM_UP_RUNS = 3


class DeviceRunner:
    """Runs towers without gradients on a device that is not the processor.

    Args:
        device: Where the towers' weights are.
        width: Columns D of a row.
        forward: Runs one tower; called again whenever its weights have moved in memory.
        recorder: Makes a function of launches cheap to repeat; default is `as_cuda_graph` on CUDA
            and nothing elsewhere.
    """

    def __init__(
        self,
        device: torch.device,
        width: int,
        forward: Callable[[Tower, Tensor], Tensor],
        recorder: Recorder | None = None,
    ) -> None:
        self._device = device
        self._width = width
        self._forward = forward
        is_cuda = device.type == "cuda"
        self._recorder = recorder or (as_cuda_graph if is_cuda else as_it_is)
        self._batches: dict[tuple[tuple[Tower, ...], int], _Batch] = {}
        self._addresses: dict[tuple[Tower, ...], list[int]] = {}

    def run(self, matrix: Matrix, *towers: Tower) -> list[Matrix]:
        """Run some towers on the same rows.

        Args:
            matrix: Shape ``(n, D)``.
            towers: What to run.

        Returns:
            Outputs of each tower, new arrays of shape ``(n, …)``.
        """
        rows = len(matrix)
        if rows > LARGEST_BATCH:
            tensor = torch.from_numpy(matrix).to(self._device)
            outputs = [self._forward(tower, tensor) for tower in towers]
            return [output.numpy(force=True) for output in outputs]
        self._forget_moved(towers)
        size = max(SMALLEST_BATCH, 1 << (rows - 1).bit_length())
        batch = self._batches.get((towers, size))
        if batch is None:
            batch = self._batches[towers, size] = self._make_batch(towers, size)
        return batch.run(matrix)

    def _make_batch(self, towers: tuple[Tower, ...], size: int) -> _Batch:
        inputs = torch.zeros(size, self._width, device=self._device)
        forward = self._recorder(lambda: [self._forward(tower, inputs) for tower in towers])
        return _Batch(inputs, forward)

    def _forget_moved(self, towers: tuple[Tower, ...]) -> None:
        """A recording reads weights where they were: weights in a new place need a new one."""
        addresses = [weight.data_ptr() for tower in towers for weight in tower.parameters()]
        if self._addresses.setdefault(towers, addresses) != addresses:
            self._batches.clear()
            self._addresses = {towers: addresses}


class _Batch:
    """Batches of up to one size.

    Args:
        inputs: What ``forward`` reads. Shape ``(size, D)``.
        forward: Launches the towers; its outputs have ``size`` rows, always in the same memory or
            always in new.
    """

    def __init__(self, inputs: Tensor, forward: Forward) -> None:
        self._inputs = inputs
        self._forward = forward
        self._is_cuda = inputs.device.type == "cuda"
        self._host_inputs = self._host(inputs)
        self._host_outputs = [self._host(output) for output in forward()]

    def _host(self, tensor: Tensor) -> Tensor:
        """Memory of the processor that a CUDA device can reach by itself."""
        return torch.zeros(tensor.shape, dtype=tensor.dtype, pin_memory=self._is_cuda)

    def run(self, matrix: Matrix) -> list[Matrix]:
        rows = len(matrix)
        self._host_inputs[:rows].numpy()[...] = matrix
        self._inputs[:rows].copy_(self._host_inputs[:rows], non_blocking=True)
        outputs = self._forward()
        for host, output in zip(self._host_outputs, outputs, strict=True):
            host[:rows].copy_(output[:rows], non_blocking=True)
        if self._is_cuda:
            torch.cuda.current_stream(self._inputs.device).synchronize()
        return [np.array(host[:rows].numpy()) for host in self._host_outputs]


def as_it_is(forward: Forward) -> Forward:
    """Run kernel by kernel."""
    return forward


def as_cuda_graph(forward: Forward) -> Forward:
    """Record what ``forward`` launches as one graph; where CUDA refuses, run kernel by kernel.

    Source:
        torch's documentation of CUDA graphs: warm-up on a stream of its own, then capture.
    """
    try:
        return _record(forward)
    except RuntimeError as error:
        logger.warning("acting without a CUDA graph, kernel by kernel: %s", error)
        return forward


def _record(forward: Forward) -> Forward:
    stream = torch.cuda.Stream()  # type: ignore[no-untyped-call]
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(_WARM_UP_RUNS):
            forward()
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        outputs = forward()

    def replay() -> list[Tensor]:
        graph.replay()
        return outputs

    return replay
