"""Every check by itself: silent on a run that may start, and telling on a planted fault."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from royale_client.wire.probes import LAYOUT, LEGALITY, WAITING, ProbeAnswer
from royale_server.preflight.check import judge
from royale_server.preflight.client_checks import (
    CLIENT_CHECKS,
    next_legal_minibatch,
    waiting_action,
)
from royale_server.preflight.facts import (
    MIB,
    DeviceProcess,
    MinibatchSetting,
    NamedFile,
    SourceFacts,
)
from royale_server.preflight.finding import Finding, Level, PreflightError, failures, refusal
from royale_server.preflight.ledger import ledger
from royale_server.preflight.report import markdown_table, passed_line, rows, verdict
from royale_server.preflight.start_block import horizon, start_block
from royale_server.preflight.start_checks import START_CHECKS
from tests.preflight.facts import (
    PARTS,
    answers,
    client_facts,
    environment,
    model,
    rehearsal,
    start_facts,
)

LEGAL = np.array([[True] * 5, [True] + [False] * 4])
STATES = ("seat 0, full elixir", "seat 1, no elixir")


def flipped(state: int, action: int) -> ProbeAnswer:
    masks = LEGAL.copy()
    masks[state, action] ^= True
    return ProbeAnswer(states=STATES, masks=masks, verdicts=LEGAL)


def swapped() -> ProbeAnswer:
    layout = PARTS.copy()
    layout[[2, 3]] = layout[[3, 2]]
    return ProbeAnswer(columns=("slot", "tile"), layout=layout)


def told(findings: list[Finding], check: str) -> list[Finding]:
    return [f for f in findings if f.check == check and f.level in (Level.WARN, Level.FAIL)]


def test_a_run_that_may_start_is_told_of_nothing():
    start, client = judge(START_CHECKS, start_facts()), judge(CLIENT_CHECKS, client_facts())
    assert {finding.level for finding in [*start, *client]} == {Level.OK}
    assert len(start) == len(START_CHECKS)
    assert verdict([*start, *client]) == "SAFE TO RUN: YES"


ANOTHER = DeviceProcess(pid=4711, name="python", used_mib=3000)
START_FAULTS = {
    "code": ({"sources": (SourceFacts(name="royale", changed_files=("a.py", "b.py")),)}, "a.py"),
    "code unknown": ({"sources": (SourceFacts(name="royale", problem="git is gone"),)}, "git is"),
    "files": (
        {"files": (NamedFile(flag="--plugin", path=Path("p.py"), digest=None),)},
        "--plugin p.py",
    ),
    "port": ({"address_error": "Address already in use"}, "--port 8000"),
    # 2 x 10 MB wanted, 19.9 there.
    "disk": ({"disk_free_bytes": int(19.9 * MIB)}, "19.9 MB free"),
    "disk unknown": ({"disk_free_bytes": None}, "cannot be told"),
    "foreign-process": ({"device_processes": (ANOTHER,)}, "process 4711 (python)"),
    "foreign-process unknown": ({"device_processes": None}, "cannot be told"),
    "unset": ({"ram_budget_mb": None}, "--doctor.ram-budget-mb"),
    "schedules": ({"total_frames": 2000}, "2,000 frames are beyond the 1,000"),
    "open-files": ({"open_files": 1024}, "a limit of 1,024"),
}
START_WARNS = {"code", "code unknown", "disk unknown", "foreign-process unknown", "unset",
               "schedules", "open-files"}  # fmt: skip


@pytest.mark.parametrize("fault", START_FAULTS)
def test_a_planted_fault_before_listening_is_told_with_what_it_is_about(fault: str):
    changes, fact = START_FAULTS[fault]
    check = fault.split(maxsplit=1)[0]
    (finding,) = told(judge(START_CHECKS, start_facts(**changes)), check)
    assert finding.level is (Level.WARN if fault in START_WARNS else Level.FAIL)
    assert fact in finding.sentence
    assert finding.remedy


def test_a_schedule_that_ends_early_is_cured_by_what_sets_its_length():
    # A horizon comes before the budget, so a larger budget alone stretches nothing.
    (finding,) = told(judge(START_CHECKS, start_facts(total_frames=2000)), "schedules")
    assert "--algo.horizon-frames" in finding.remedy
    assert "--algo.total-timesteps" in finding.remedy


CLIENT_FAULTS = {
    "environment-build": ({"environment": environment(env_digest="")}, "no env_digest"),
    "client-up": (
        {"environment": environment(answers={}, failures={LAYOUT: "no rules"})},
        "it has no answer to layout",
    ),
    "probes": ({"environment": environment(answers_probes=False, answers={})}, "answers no probes"),
    "action-layout": (
        {"environment": environment(answers=answers(**{LAYOUT: swapped()}))},
        "2 of 5 actions",
    ),
    "no-op": (
        {"environment": environment(answers=answers(**{WAITING: flipped(1, 0)}))},
        "waiting (action 0) is not legal in 1 of 2",
    ),
    "mask-agreement": (
        {"environment": environment(answers=answers(**{LEGALITY: flipped(1, 3)}))},
        "disagree about 1 of 10 actions",
    ),
    # 400 + 50 + 60 + 64 slots x 1/64 MB = 511 MB; the optimizer's 100 lie on the GPU.
    "memory": ({"ram_budget_mb": 510}, "511 MB (process 400, learning 50, storage 60, "),
    "memory now": ({"model": model(available_bytes=110 * MIB)}, "111 MB still to come"),
    "memory unknown": ({"model": model(process_bytes=None)}, "cannot be told"),
    # 3,000 + 100 + 256 > 3,355
    "minibatch": (
        {"model": model(rehearsal=rehearsal(
            device_peak_bytes=3000 * MIB, device_free_bytes=3355 * MIB))},
        "a peak of 3,000 MB",
    ),
    "minibatch raises": (
        {"model": model(rehearsal=rehearsal(failure="OutOfMemoryError: 2 GiB"))},
        "OutOfMemoryError: 2 GiB",
    ),
    "ratio-precision": (
        {"model": model(rehearsal=rehearsal(ratio_deviation=2e-4))},
        "off by 0.0002, expected at most 0.0001",
    ),
    "ratio-precision not a number": (
        {"model": model(rehearsal=rehearsal(ratio_deviation=float("nan")))},
        "off by nan",
    ),
    # within a factor of four of 1e-4
    "ratio-precision near": (
        {"model": model(rehearsal=rehearsal(ratio_deviation=3e-5))},
        "nearly disagree",
    ),
    "checkpoint-room": ({"disk_free_bytes": 19 * MIB}, "19.0 MB free"),
}  # fmt: skip
CLIENT_WARNS = {"environment-build", "probes", "memory now", "memory unknown",
                "ratio-precision near"}  # fmt: skip


@pytest.mark.parametrize("fault", CLIENT_FAULTS)
def test_a_planted_fault_of_the_first_client_is_told_with_what_it_is_about(fault: str):
    changes, fact = CLIENT_FAULTS[fault]
    (finding,) = told(judge(CLIENT_CHECKS, client_facts(**changes)), fault.split(maxsplit=1)[0])
    assert finding.level is (Level.WARN if fault in CLIENT_WARNS else Level.FAIL)
    assert fact in finding.sentence
    assert finding.remedy


def test_every_check_has_a_fault_that_makes_it_tell():
    judged_here = {check.name for check in START_CHECKS if not _is_refused_elsewhere(check)}
    assert {fault.split()[0] for fault in START_FAULTS} == judged_here
    assert {fault.split()[0] for fault in CLIENT_FAULTS} == {check.name for check in CLIENT_CHECKS}


def _is_refused_elsewhere(check) -> bool:
    planted = start_facts(refusals={check.name: ("it does not fit; make it fit",)})
    found = told(judge(START_CHECKS, planted), check.name)
    return bool(found) and found[0].remedy == "make it fit"


def test_all_faults_of_a_phase_are_told_at_once():
    changes = [changes for changes, _ in START_FAULTS.values()]
    facts = start_facts(**{key: value for change in changes for key, value in change.items()})
    found = failures(judge(START_CHECKS, facts))
    error = str(PreflightError(found))
    assert len(found) == 2  # files and port; later changes have replaced disk and process
    for finding in found:
        assert f"{finding.check}: " in error
        assert finding.remedy in error


def test_others_on_a_device_that_is_said_to_be_shared_are_only_told_of():
    facts = start_facts(device_processes=(ANOTHER,), device_is_shared=True)
    (finding,) = told(judge(START_CHECKS, facts), "foreign-process")
    assert finding.level is Level.WARN


def test_an_environment_that_could_not_be_asked_fails_with_the_clients_words():
    silent = environment(answers={}, failures={LEGALITY: "ImportError: no module named rules"})
    (finding,) = told(judge(CLIENT_CHECKS, client_facts(environment=silent)), "client-up")
    assert finding.level is Level.FAIL
    assert "client 'lab', duel" in finding.sentence
    assert finding.details == ("ImportError: no module named rules",)


def test_a_disagreement_names_state_action_parts_and_both_verdicts():
    for state, action, says in ((1, 3, "says legal, the environment refused"),
                                (0, 2, "says illegal, the environment carried out")):  # fmt: skip
        facts = client_facts(
            environment=environment(answers=answers(**{LEGALITY: flipped(state, action)}))
        )
        (finding,) = told(judge(CLIENT_CHECKS, facts), "mask-agreement")
        (line,) = finding.details
        slot, tile = PARTS[action]
        assert line.startswith(f"{STATES[state]}: action {action} (slot {slot}, tile {tile})")
        assert says in line


def test_no_more_than_eight_disagreements_are_told():
    answer = ProbeAnswer(states=STATES, masks=~LEGAL, verdicts=LEGAL)
    facts = client_facts(environment=environment(answers=answers(**{LEGALITY: answer})))
    (finding,) = told(judge(CLIENT_CHECKS, facts), "mask-agreement")
    assert "about 10 of 10 actions, in 2 of 2 states" in finding.what
    assert len(finding.details) == 8


def test_a_layout_of_other_parts_is_refused_with_both():
    other = ProbeAnswer(columns=("index",), layout=np.arange(7)[:, None])
    facts = client_facts(environment=environment(answers=answers(**{LAYOUT: other})))
    (finding,) = told(judge(CLIENT_CHECKS, facts), "action-layout")
    assert (finding.got, finding.expected) == ("7 actions of index", "5 actions of 2 parts")


def test_without_a_layout_any_legal_action_will_do():
    answer = ProbeAnswer(states=STATES, masks=LEGAL[:, 1:])
    facts = client_facts(
        model=model(layout=None),
        environment=environment(answers=answers(**{WAITING: answer})),
    )
    (finding,) = told(judge(CLIENT_CHECKS, facts), "no-op")
    assert "no action is legal in 1 of 2" in finding.what
    assert finding.details == (STATES[1],)
    assert waiting_action(np.array([[-1], [-1]])) is None


def test_nothing_is_said_of_a_client_that_has_not_come():
    findings = judge(CLIENT_CHECKS, client_facts(environment=None))
    assert {f.check for f in findings if f.level is Level.SKIP} == {
        "action-layout", "no-op", "mask-agreement"
    }  # fmt: skip
    assert failures(findings) == ()


@pytest.mark.parametrize(
    ("size", "batch", "smaller"),
    # No divisor of 4,096 lies between 256 and 512; 96 = 2 x 48; nothing is below 1.
    [(512, 4096, 256), (96, 96, 48), (7, 7, 1), (1, 8, None)],
)
def test_the_next_legal_minibatch_divides_the_gradient_step(size, batch, smaller):
    assert next_legal_minibatch(size, batch) == smaller


def test_a_minibatch_that_does_not_fit_names_the_next_legal_size():
    tight = model(rehearsal=rehearsal(device_peak_bytes=4000 * MIB))
    (finding,) = told(judge(CLIENT_CHECKS, client_facts(model=tight)), "minibatch")
    assert finding.remedy == "the next legal size is --algo.minibatch-size 256"
    step = MinibatchSetting(size=96, batch=96, is_only_memory=False)
    facts = client_facts(model=tight, minibatch=step)
    (finding,) = told(judge(CLIENT_CHECKS, facts), "minibatch")
    assert (
        "--algo.batch-size 96 --algo.minibatch-size 48, which computes the same" in finding.remedy
    )


def test_without_headroom_or_device_the_minibatch_is_compared_with_nothing():
    tight = rehearsal(device_peak_bytes=9000 * MIB)
    assert not told(
        judge(CLIENT_CHECKS, client_facts(model=model(rehearsal=tight), vram_headroom_mb=0)),
        "minibatch",
    )
    on_cpu = rehearsal(device_peak_bytes=None, device_free_bytes=None)
    assert not told(judge(CLIENT_CHECKS, client_facts(model=model(rehearsal=on_cpu))), "minibatch")


def test_the_ledger_counts_the_optimizer_where_the_policy_lives():
    on_cpu = ledger(client_facts(model=model(device="cpu"), num_clients=2))
    assert on_cpu is not None
    # 50 + 100 for learning; two clients of 64 slots at 1/64 MB
    assert on_cpu.parts == {
        "process": 400 * MIB, "learning": 150 * MIB, "storage": 60 * MIB, "slots": 2 * MIB
    }  # fmt: skip
    assert on_cpu.growth == 212 * MIB


def test_a_structural_look_leaves_the_machine_out():
    findings = judge(START_CHECKS, start_facts(address_error="taken"), structure_only=True)
    assert failures(findings) == ()
    assert next(f for f in findings if f.check == "port").level is Level.SKIP


def test_a_report_has_problems_first_and_folds_what_passed():
    facts = start_facts(address_error="taken", ram_budget_mb=None)
    findings = judge(START_CHECKS, facts)
    lines = rows(findings)
    assert lines[0].startswith("FAIL  port: --host 127.0.0.1 --port 8000: cannot listen there")
    assert any(line.startswith("WARN  unset") for line in lines)
    assert sum(line.startswith("OK ") for line in lines) == 1
    assert verdict(findings) == "SAFE TO RUN: NO"
    assert passed_line(findings).startswith(f"preflight: {len(START_CHECKS) - 2} checks passed")


def test_a_refusal_of_another_part_is_told_word_for_word():
    finding = refusal("identity", "2 things differ; start it as it was\n  seed: 1, 2 now\nor not")
    assert finding.lines() == [
        "2 things differ; start it as it was", "  seed: 1, 2 now", "  or not"
    ]  # fmt: skip


def test_the_block_of_a_start_says_what_was_measured():
    class Algo:
        frames_per_iteration, num_epochs, gamma, gae_lambda = 4096, 3, 0.99, 0.95

    facts = replace(client_facts(), environment=environment())
    text = "\n".join(start_block(facts, Algo, "r-1"))
    for fact in (
        "duel, build aaaaaaaaaaaa, 64 slots",
        "5 actions tried in 2 states",
        "511 MB (process 400, learning 50, storage 60, slots 1), budget 6,500 MB; 8,000 free",
        "peak 1,000 MB of 4,000 free",
        "3 passes in minibatches of 512",
        # 1 / (1 - 0.99) and 1 / (1 - 0.9405)
        "rewards 100 frames ahead count, advantages look 17 frames ahead",
        "r-1",
    ):
        assert fact in text
    assert horizon(1.0) == "without end"


def test_the_table_of_the_documentation_has_a_row_for_every_check():
    table = markdown_table([*START_CHECKS, *CLIENT_CHECKS]).splitlines()
    assert len(table) == 2 + len(START_CHECKS) + len(CLIENT_CHECKS)
    assert all(row.count("|") == 7 for row in table)
