"""What a fresh interpreter loads: the client, the configurations and ``--help`` have no torch."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
HEAVY = ("torch", "safetensors", "swanlab", "gymnasium")

CONFIG_MODULES = sorted(
    ".".join(path.relative_to(ROOT).with_suffix("").parts)
    for package in ("royale_server", "algorithms")
    for path in (ROOT / package).rglob("config.py")
)


def heavy_modules_after_importing(name: str) -> list[str]:
    program = f"import sys, {name}; print(*(set(sys.modules) & set({HEAVY!r})))"
    answer = subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert answer.returncode == 0, answer.stderr
    return answer.stdout.split()


@pytest.mark.parametrize(
    "name",
    [
        "royale_client",
        "royale_client.wire",
        "royale_client.cli",
        "royale_client.conformance.cli",
    ],
)
def test_client_loads_no_heavy_library(name):
    assert heavy_modules_after_importing(name) == []


@pytest.mark.parametrize(
    "name",
    ["royale_server.cli", "algorithms.spaces", "algorithms.metric_spec", *CONFIG_MODULES],
)
def test_what_help_needs_loads_no_heavy_library(name):
    assert heavy_modules_after_importing(name) == []
