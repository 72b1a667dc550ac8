"""A bundle: what is in it, which episode, and that writing it never raises."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from royale_server import bundle
from royale_server.alarms.builtin import BUILT_IN_ALARMS
from royale_server.alarms.engine import Change
from royale_server.bundle import Incident, write_bundle
from royale_server.model.invariants import BrokenBatchError
from royale_server.recorder import Answered, Ended, Recording
from royale_server.run.layout import RunLayout
from royale_server.run.records import to_line
from royale_server.tools.main import main

ALARMS = {alarm.name: alarm for alarm in BUILT_IN_ALARMS}


def change(name: str) -> Change:
    alarm = ALARMS[name]
    values = dict.fromkeys(alarm.keys, 1.0)
    limits = {limit: 0.5 for limit in alarm.when.limits if isinstance(limit, str)}
    return Change(
        kind="raise", alarm=alarm, iteration=60, consecutive=1, values=values, limits=limits
    )


def answered(episodes: list[int], steps: list[int], actions: list[int]) -> Answered:
    """Make one batch, its rows the slots 0, 1 and so on."""
    slots = np.arange(len(episodes))
    return Answered(slots, np.array(episodes), np.array(steps), ((np.array(actions),),))


def recording() -> Recording:
    """Two slots, episodes of two decisions; slot 1 is illegal in its second episode."""
    batches = (
        answered([0, 0], [0, 0], [1, 5]),
        answered([0, 0], [1, 1], [2, 6]),
        answered([1, 1], [0, 0], [3, 7]),
        answered([1, 1], [1, 1], [4, 8]),
    )
    ended = [
        Ended({"client": "a", "slot": slot, "metrics/illegal_action_rate": [bad, 2]}, slot, at)
        for slot, at, bad in ((0, 2, 0), (1, 2, 0), (0, 4, 0), (1, 4, 1))
    ]
    return Recording(batches, 0, tuple(ended))


@pytest.fixture
def layout(tmp_path: Path) -> RunLayout:
    made = RunLayout(base=tmp_path, algorithm="ppo", policy="mlp", name="run")
    made.directory.mkdir(parents=True)
    rows = [{"run/iteration": i, "env/illegal_action_rate": i / 100} for i in range(60)]
    made.metrics.write_bytes(b"".join(to_line(row) for row in rows))
    made.alarms.write_bytes(to_line(change("illegal_actions").record()))
    made.episodes.write_bytes(b"".join(to_line({"return": i}) for i in range(30)))
    for name in bundle.COPIED:
        (made.directory / name).write_text("{}\n")
    return made


def incident(layout: RunLayout, name: str = "illegal_actions") -> Incident:
    return Incident(
        layout=layout,
        seed=3,
        resume_command="royale-server … --resume",
        iteration=60,
        changes=(change(name),),
        refusal=None,
        checkpoint=layout.checkpoint(128),
        recording=recording(),
        worst_ratios=({"ratio": 1.5, "cell": 4},),
    )


def test_everything_that_was_known_is_in_it(layout: RunLayout):
    directory = write_bundle(incident(layout))
    assert directory == layout.bundles / "000060"
    assert {path.name for path in directory.iterdir()} == {
        *(bundle.HALT, bundle.ROWS_FILE, bundle.ALARMS_FILE, bundle.EPISODES_FILE),
        *(bundle.EPISODE, bundle.RATIOS, bundle.SUMMARY),
        *bundle.COPIED,
    }
    assert len((directory / bundle.ROWS_FILE).read_bytes().splitlines()) == 50
    assert len((directory / bundle.EPISODES_FILE).read_bytes().splitlines()) == 20
    (alarm,) = json.loads((directory / bundle.HALT).read_text())["alarms"]
    assert alarm["last_values"] == {"env/illegal_action_rate": [0.55, 0.56, 0.57, 0.58, 0.59]}
    assert json.loads((directory / bundle.SUMMARY).read_text())["notes"] == []


def test_the_episode_is_the_worst_by_what_the_alarm_read_with_all_its_actions(layout: RunLayout):
    directory = write_bundle(incident(layout))
    assert directory is not None
    episode = json.loads((directory / bundle.EPISODE).read_text())
    assert (episode["slot"], episode["ordinal"], episode["actions"]) == (1, 1, [[7], [8]])
    (beside,) = episode["beside"]
    assert (beside["slot"], beside["actions"]) == (0, [[3], [4]])


def test_without_a_number_to_go_by_it_is_the_last_episode_that_is_whole(layout: RunLayout):
    directory = write_bundle(incident(layout, "kl_high"))
    assert directory is not None
    assert json.loads((directory / bundle.EPISODE).read_text())["actions"] == [[7], [8]]


def test_an_episode_whose_beginning_is_no_longer_kept_has_no_actions():
    kept = recording()
    late = Recording(kept.answered[1:], 1, kept.ended)
    assert late.episode(kept.ended[0]) is None
    whole = late.episode(kept.ended[2])
    assert whole is not None
    assert whole.actions == ([3], [4])


def test_a_second_bundle_of_an_iteration_leaves_the_first_alone(layout: RunLayout):
    first, second = write_bundle(incident(layout)), write_bundle(incident(layout))
    assert first is not None
    assert second == first.with_name("000060-2")


@pytest.mark.parametrize("part", [bundle.HALT, bundle.EPISODE, bundle.SUMMARY])
def test_a_part_that_cannot_be_written_is_named_and_the_others_are_written(
    layout: RunLayout, monkeypatch: pytest.MonkeyPatch, part: str, caplog
):
    write_json = bundle._write_json

    def refuse(path: Path, document: object) -> None:
        if path.name == part:
            raise OSError(28, "No space left on device")
        write_json(path, document)

    monkeypatch.setattr(bundle, "_write_json", refuse)
    directory = write_bundle(incident(layout))
    assert directory is not None
    assert not (directory / part).exists()
    assert (directory / bundle.ROWS_FILE).exists()
    assert f"{part}: OSError" in caplog.text


def test_where_not_even_the_folder_can_be_made_it_is_said(layout: RunLayout, caplog):
    layout.bundles.write_text("in the way")
    assert write_bundle(incident(layout)) is None
    assert "no bundle" in caplog.text


def test_a_run_without_episodes_and_files_still_leaves_a_bundle(tmp_path: Path):
    bare = RunLayout(base=tmp_path, algorithm="ppo", policy="mlp", name="bare")
    empty = Incident(
        layout=bare,
        seed=0,
        resume_command=None,
        iteration=1,
        changes=(change("nonfinite"),),
        refusal=None,
        checkpoint=None,
        recording=Recording((), 0, ()),
        worst_ratios=(),
    )
    directory = write_bundle(empty)
    assert directory is not None
    notes = json.loads((directory / bundle.SUMMARY).read_text())["notes"]
    assert any("no episode has ended" in note for note in notes)
    assert sum("FileNotFoundError" in note for note in notes) == len(bundle.COPIED)


def test_it_is_read_back_for_a_person(layout: RunLayout, capsys):
    directory = write_bundle(incident(layout))
    assert main(["bundle", "show", str(directory)]) == 0
    shown = capsys.readouterr().out
    for text in (
        "alarm [halt] illegal_actions",
        "last values of env/illegal_action_rate: 0.55, 0.56, 0.57, 0.58, 0.59",
        "resume with: royale-server … --resume",
        "ratio ratio=1.5, cell=4",
        "2 recorded actions",
    ):
        assert text in shown


def test_one_about_a_refused_batch_says_which_invariant_it_broke(layout: RunLayout, capsys):
    refusal = BrokenBatchError("action_legal", "cell 3 holds action 7, expected 0 to 1")
    directory = write_bundle(replace(incident(layout), changes=(), refusal=refusal))
    assert directory is not None
    halt = json.loads((directory / bundle.HALT).read_text())
    assert halt["alarms"] == []
    assert halt["refused_batch"] == {"invariant": "action_legal", "message": str(refusal)}
    assert main(["bundle", "show", str(directory)]) == 0
    assert f"batch refused: {refusal}" in capsys.readouterr().out
