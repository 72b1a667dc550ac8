"""Settings of the whole test run: reproducible property tests, one torch thread, slow suites."""

import os
import signal
from pathlib import Path

# A shell that starts the tests in the background makes them, and all they start, deaf to Ctrl-C.
signal.signal(signal.SIGINT, signal.default_int_handler)
# Runs of the tests must not take notice of what is edited in this checkout meanwhile.
os.environ["GIT_CEILING_DIRECTORIES"] = str(Path(__file__).resolve().parents[1])
# Before anything imports torch or numpy: on shared cores more threads make small networks slower.
os.environ.setdefault("OMP_NUM_THREADS", "1")

import pytest  # noqa: E402 - after what it must find in place
from hypothesis import HealthCheck, settings  # noqa: E402

# The same examples in every run, and no verdict that depends on how busy the machine is.
settings.register_profile(
    "royale",
    derandomize=True,
    deadline=None,
    database=None,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("royale")

SLOW_SUITE_TIMEOUT_S = 1800


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Give the slow suites their time, and skip GPU tests on a machine without one."""
    for item in items:
        is_slow = item.get_closest_marker("learning") or item.get_closest_marker("chaos")
        if is_slow and not item.get_closest_marker("timeout"):
            item.add_marker(pytest.mark.timeout(SLOW_SUITE_TIMEOUT_S))
        if item.get_closest_marker("gpu") and not has_cuda():
            item.add_marker(pytest.mark.skip(reason="no CUDA device on this machine"))


def has_cuda() -> bool:
    """Ask torch, imported only where a collected test wants a GPU."""
    import torch

    return torch.cuda.is_available()
