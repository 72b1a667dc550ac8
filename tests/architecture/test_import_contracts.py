"""The arrows between the packages hold, and each contract breaks when somebody crosses it."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

# The smallest tree that has every module the contracts name, with imports that are all allowed.
SKELETON = {
    "royale_client/__init__.py": "",
    "royale_client/session.py": "from royale_client.wire import codec",
    "royale_client/loop.py": "import time\nfrom royale_client import session",
    "royale_client/wire/__init__.py": "",
    "royale_client/wire/codec.py": "import msgpack\nimport numpy",
    "royale_server/__init__.py": "",
    "royale_server/config.py": "from royale_client.wire import codec",
    "royale_server/inline.py": "from royale_client import loop",
    "royale_server/run.py": "import torch\nimport algorithms\nimport checkpoints",
    "royale_server/scheduler/__init__.py": "",
    "royale_server/scheduler/core.py": "import dataclasses",
    "royale_server/alarms/__init__.py": "",
    "royale_server/alarms/builtin.py": "",
    "royale_server/alarms/builtin_learning.py": "",
    "royale_server/alarms/builtin_serving.py": "",
    "royale_server/alarms/conditions.py": "import operator",
    "royale_server/alarms/config.py": "import royale_client.wire",
    "royale_server/alarms/declaration.py": "",
    "royale_server/alarms/engine.py": "import logging\nimport math",
    "royale_server/alarms/history.py": "",
    "royale_server/alarms/keeper.py": "import threading",
    "royale_server/alarms/live.py": "import statistics",
    "royale_server/alarms/words.py": "",
    "royale_server/episode_metrics.py": "import royale_client.wire",
    "royale_server/iteration_clock.py": "import numpy",
    "royale_server/model/__init__.py": "",
    "royale_server/model/invariants.py": "import numpy",
    "royale_server/selfplay/__init__.py": "",
    "royale_server/selfplay/book.py": "import numpy\nimport royale_client.wire.codec",
    "royale_server/endpoint/__init__.py": "",
    "royale_server/endpoint/session.py": "import royale_client.wire.codec",
    "royale_server/endpoint/edge.py": "import asyncio",
    "royale_server/preflight/__init__.py": "",
    "royale_server/preflight/check.py": "import dataclasses",
    "royale_server/preflight/client_checks.py": "import numpy",
    "royale_server/preflight/finding.py": "import royale_client.wire",
    "royale_server/preflight/ledger.py": "",
    "royale_server/preflight/machine.py": "import socket",
    "royale_server/preflight/report.py": "",
    "royale_server/preflight/start_block.py": "",
    "royale_server/preflight/start_checks.py": "",
    "algorithms/__init__.py": "import torch\nfrom royale_client.wire import codec",
    "checkpoints/__init__.py": "import safetensors\nimport royale_client.wire",
}

VIOLATIONS = [
    ("layers", "royale_client/loop.py", "import algorithms"),
    ("layers", "algorithms/__init__.py", "import royale_server.config"),
    ("layers", "algorithms/__init__.py", "import checkpoints"),
    ("layers", "checkpoints/__init__.py", "import algorithms"),
    ("light-client", "royale_client/loop.py", "def lazily():\n    import torch"),
    ("light-client", "royale_client/loop.py", "import safetensors.numpy"),
    ("pure-wire", "royale_client/wire/codec.py", "import gymnasium"),
    ("pure-wire", "royale_client/wire/codec.py", "from royale_client import session"),
    ("pure-cores", "royale_client/wire/codec.py", "import socket"),
    ("pure-cores", "royale_client/session.py", "from royale_client import loop"),
    ("pure-cores", "royale_server/scheduler/core.py", "from time import monotonic"),
    ("pure-cores", "royale_server/endpoint/session.py", "import asyncio"),
    ("pure-cores", "royale_server/selfplay/book.py", "import random"),
    ("pure-cores", "royale_server/alarms/live.py", "from time import monotonic"),
    ("pure-cores", "royale_server/alarms/conditions.py", "import os"),
    ("pure-cores", "royale_server/alarms/engine.py", "from royale_server.alarms import keeper"),
    ("selfplay-alone", "royale_server/selfplay/book.py", "import royale_server.scheduler"),
    ("selfplay-alone", "royale_server/selfplay/book.py", "from royale_server import endpoint"),
    ("scheduler-alone", "royale_server/scheduler/core.py", "import royale_server.config"),
    ("pure-checks", "royale_server/preflight/start_checks.py", "import socket"),
    (
        "pure-checks",
        "royale_server/preflight/ledger.py",
        "from royale_server.preflight import machine",
    ),
    ("only-wire", "royale_server/config.py", "from royale_client import session"),
    ("only-wire", "checkpoints/__init__.py", "import royale_client"),
]


def lint_imports(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    program = "from importlinter.cli import lint_imports_command; lint_imports_command()"
    command = [sys.executable, "-c", program, "--no-cache", "--no-logo", *arguments]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)


@pytest.fixture
def skeleton(tmp_path):
    for name, text in SKELETON.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text + "\n")
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    return tmp_path


def test_every_import_contract_holds():
    answer = lint_imports(ROOT)
    assert answer.returncode == 0, answer.stdout + answer.stderr


def test_allowed_imports_keep_every_contract(skeleton):
    answer = lint_imports(skeleton)
    assert answer.returncode == 0, answer.stdout + answer.stderr


@pytest.mark.parametrize(("contract", "module", "planted"), VIOLATIONS)
def test_contract_breaks_on_a_planted_violation(skeleton, contract, module, planted):
    with (skeleton / module).open("a") as file:
        file.write(planted + "\n")
    answer = lint_imports(skeleton, "--contract", contract)
    assert answer.returncode == 1
    assert "1 broken" in answer.stdout, answer.stdout + answer.stderr
