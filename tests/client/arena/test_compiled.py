"""Machine code is kept on disk by the sources it came from; decorating leaves no trace."""

import os
from pathlib import Path

import numba

from royale_client.envs.arena import compiled as compiled_module
from royale_client.envs.arena.compiled import compiled, source_digest
from royale_client.envs.arena.kernels import step_rows


def test_machine_code_lies_in_a_folder_named_by_the_package_s_sources():
    assert f"arena-{source_digest()}" in step_rows.stats.cache_path


def test_any_changed_module_changes_the_digest(tmp_path, monkeypatch):
    for name in ("a.py", "b.py"):
        (tmp_path / name).write_text("X = 1\n")
    monkeypatch.setattr(compiled_module, "__file__", str(tmp_path / "a.py"))
    digests = []
    for text in ("X = 1\n", "X = 2\n", "X = 1\n"):
        (tmp_path / "b.py").write_text(text)
        digests.append(source_digest.__wrapped__())
    assert digests[0] == digests[2] != digests[1]


def test_only_machine_code_that_is_old_and_not_among_the_newest_is_removed(tmp_path, monkeypatch):
    monkeypatch.setattr(compiled_module._CONFIG, "CACHE_DIR", str(tmp_path))
    day = compiled_module.UNUSED_S
    now = 100 * day
    own = tmp_path / f"arena-{source_digest()}"
    ages = {own.name: 50, "arena-a": 0.5, "arena-b": 2, "arena-c": 3, "arena-d": 4, "other": 90}
    for name, age in ages.items():
        (tmp_path / name / "inside").mkdir(parents=True)
        os.utime(tmp_path / name, (now - age * day,) * 2)
    compiled_module.tend_caches(now)
    # Three of other sources stay: a, b and c. The own one counts as used from now on.
    assert {path.name for path in tmp_path.iterdir()} == set(ages) - {"arena-d"}
    assert own.stat().st_mtime == now


def test_what_others_may_be_writing_stays_however_many_there_are(tmp_path, monkeypatch):
    monkeypatch.setattr(compiled_module._CONFIG, "CACHE_DIR", str(tmp_path))
    now = 100 * compiled_module.UNUSED_S
    for number in range(9):
        (tmp_path / f"arena-{number}").mkdir()
        os.utime(tmp_path / f"arena-{number}", (now - 3600.0,) * 2)
    compiled_module.tend_caches(now)
    assert len(list(tmp_path.iterdir())) == 9


def test_decorating_leaves_the_settings_of_numba_as_they_were():
    before = numba.config.CACHE_DIR

    @compiled
    def doubled(x):
        return 2 * x

    assert doubled(4) == 8
    assert before == numba.config.CACHE_DIR


def test_a_folder_that_the_user_names_is_used_and_a_read_only_package_is_not(monkeypatch):
    assert compiled_module._cache_root("/chosen") == Path("/chosen")
    monkeypatch.setattr(os, "access", lambda path, mode: False)
    assert compiled_module._cache_root("") == Path.home() / ".cache" / "royale"
