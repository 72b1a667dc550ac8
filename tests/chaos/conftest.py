"""The fixtures of the system tests."""

from tests.system.conftest import processes, zygote

__all__ = ["processes", "zygote"]
