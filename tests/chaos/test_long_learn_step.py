"""A learn step of a minute, three times as long as the library's own patience (case H21)."""

from __future__ import annotations

import pytest

from tests.system.processes import Processes
from tests.system.test_pings import ping_through_a_learn_step

pytestmark = pytest.mark.chaos


def test_nobody_is_disconnected_by_a_learn_step_of_a_minute(processes: Processes, capsys):
    text = ping_through_a_learn_step(processes, learn_s=60.0)
    with capsys.disabled():
        print(f"\n60 s: {text}")
