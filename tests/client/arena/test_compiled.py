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
