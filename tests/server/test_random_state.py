"""The global random generators of a process go on in another one where they were."""

from __future__ import annotations

import json
import random
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

from checkpoints.documents import decode, encode
from royale_server.model import random_state

ROOT = Path(__file__).parents[2]

PROGRAM = """
import json, sys
from checkpoints.documents import decode
from royale_server.model import random_state
from tests.server.test_random_state import draws
random_state.restore(decode(sys.stdin.buffer.read()))
print(json.dumps(draws()))
"""


def draws() -> list[object]:
    """A number of every kind of each generator; an odd number of normal ones."""
    return [
        random.random(),
        random.gauss(0, 1),
        random.getrandbits(200),
        np.random.random(),
        np.random.standard_normal(),
        int(np.random.randint(2**62)),
        torch.rand(3).tolist(),
        torch.randn(1).item(),
        torch.randperm(9).tolist(),
    ]


def in_a_new_process(document: bytes) -> list[object]:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], input=document, capture_output=True, check=True, cwd=ROOT
    )
    numbers: list[object] = json.loads(done.stdout)
    return numbers


def test_every_generator_goes_on_in_a_new_process() -> None:
    """An odd number of normal draws before: the second of a pair waits in each generator."""
    before = random_state.capture()
    random.seed(1)
    np.random.seed(2)
    torch.manual_seed(3)
    draws()
    document = encode(random_state.capture())
    expected = draws()
    assert in_a_new_process(document) == expected
    assert draws() != expected
    random_state.restore(decode(document))
    assert draws() == expected
    random_state.restore(before)


def test_capturing_and_restoring_draws_nothing() -> None:
    before = random_state.capture()
    random_state.restore(random_state.capture())
    assert random_state.capture() == before


def test_generators_of_gpus_that_are_not_there_are_left_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    states = random_state.capture()
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 0)
    random_state.restore({**states, "cuda": [states["torch"]]})
    assert random_state.capture()["torch"] == states["torch"]
