"""The argument RUN of ``royale``: a path, a name, a unique beginning of a name, or ``latest``.

Reads directories, changes nothing.
"""

from __future__ import annotations

from pathlib import Path

from royale_server.tools.answers import ToolCode, ToolError

LATEST = "latest"
RUN_FILE = "run.json"
STARTED_FILE = "config.json"
"""Is written anew by every attempt."""


def find_run(argument: str, runs: Path) -> Path:
    """Find the directory of one run.

    Args:
        argument: What a person typed.
        runs: Folder of all runs, for what is not a path.

    Raises:
        ToolError: If there is no such run, or several; they are listed.
    """
    direct = Path(argument)
    if direct.is_dir() and (direct / RUN_FILE).is_file():
        return direct
    found = all_runs(runs)
    if not found:
        raise ToolError(ToolCode.USAGE, f"there is no run in {runs}; --runs DIR looks elsewhere")
    if argument == LATEST:
        return max(found, key=_started)
    matching = _matching(argument.strip("/"), found, runs)
    if len(matching) == 1:
        return matching[0]
    if not matching:
        newest = [str(path.relative_to(runs)) for path in sorted(found, key=_started)[-5:]]
        raise ToolError(
            ToolCode.USAGE,
            f"no run is called {argument!r} in {runs}, and it is no path of one; the last ones:",
            newest,
        )
    names = [str(path.relative_to(runs)) for path in matching]
    raise ToolError(ToolCode.USAGE, f"{argument!r} means {len(names)} runs, write more of:", names)


def all_runs(runs: Path) -> list[Path]:
    """Directories of all runs below a folder, by path; those moved aside are left out."""
    found = (file.parent for file in runs.glob(f"*/*/*/{RUN_FILE}"))
    return sorted(path for path in found if not path.name.startswith("."))


def _matching(text: str, found: list[Path], runs: Path) -> list[Path]:
    """Runs of that very name, else those whose name or path below the folder begins so."""
    paths = {path: str(path.relative_to(runs).as_posix()) for path in found}
    exact = [path for path, place in paths.items() if text in (path.name, place)]
    if exact:
        return exact
    return [p for p, place in paths.items() if p.name.startswith(text) or place.startswith(text)]


def _started(path: Path) -> float:
    file = path / STARTED_FILE
    return (file if file.is_file() else path / RUN_FILE).stat().st_mtime
