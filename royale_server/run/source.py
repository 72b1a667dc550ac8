"""The code that a run executes, as git sees it: the commit, and what is not committed.

Asks git and reads Python files; changes none of them, never waits for git longer than a few
seconds. Code that is installed, or lies in no git work tree, has no source here: its version says
what it is.
"""

from __future__ import annotations

import hashlib
import importlib.util
import os
import re
import subprocess
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from royale_client.wire.errors import RoyaleError

UNKNOWN = "unknown"
"""What stands for a commit and for changes that git could not tell."""

MAX_DIFF_BYTES = 1 << 20

_OWN_PACKAGES = ("royale_server", "royale_client", "algorithms", "checkpoints")
_OWN_NAME = "royale"
_INSTALLED = frozenset({"site-packages", "dist-packages"})
_TIMEOUT_S = 10.0
_LOCATE_A_REPOSITORY = frozenset(
    {
        "GIT_DIR",
        "GIT_WORK_TREE",
        "GIT_INDEX_FILE",
        "GIT_COMMON_DIR",
        "GIT_OBJECT_DIRECTORY",
        "GIT_PREFIX",
    }
)


@dataclass(frozen=True, slots=True, kw_only=True)
class CodeRoot:
    """A folder with Python files of the run."""

    name: str
    folder: Path
    is_package: bool
    """Whether folders below it count as well."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """The state of one git work tree, restricted to the code of the run."""

    name: str
    """``royale``, or the plug-in that lies there."""
    commit: str
    changes: str | None = None
    """SHA-256 of the uncommitted Python files; None if there are none."""
    changed_files: tuple[str, ...] = ()
    diff: bytes = b""
    """For people: the changes as a patch, cut at ``MAX_DIFF_BYTES``."""
    problem: str | None = None
    """Why git could not tell; the other fields are unknown then."""


class _GitError(RoyaleError):
    """Git could not tell; the message says why."""


def code_roots(plugins: Iterable[str], providers: Iterable[str] = ()) -> list[CodeRoot]:
    """List the folders whose Python files a run executes.

    Args:
        plugins: What ``--plugin`` was given: modules or files.
        providers: Further modules that bring something, such as those of the settings' classes.
    """
    roots: dict[str, CodeRoot] = {}
    for module in (*_OWN_PACKAGES, *plugins, *providers):
        root = _file_root(Path(module)) if module.endswith(".py") else _module_root(module)
        if root is not None:
            roots.setdefault(root.name, root)
    return list(roots.values())


def read_sources(roots: Iterable[CodeRoot]) -> list[Source]:
    """Ask git about every work tree that one of the folders lies in; Royale's own comes first."""
    trees: dict[Path, list[CodeRoot]] = {}
    problems: list[Source] = []
    for root in roots:
        try:
            top = _work_tree_of(root.folder)
        except _GitError as error:
            problems.append(_unknown(_name([root]), error))
            continue
        if top is not None:
            trees.setdefault(top, []).append(root)
    found: dict[str, Source] = {}
    for source in [*(_read_source(*tree) for tree in trees.items()), *problems]:
        found.setdefault(source.name, source)
    return list(found.values())


def _module_root(module: str) -> CodeRoot | None:
    name = module.partition(".")[0]
    try:
        spec = importlib.util.find_spec(name)
    except ValueError:  # a module that was made by hand, such as __main__
        return None
    if spec is None or spec.origin is None or not spec.has_location:
        return None
    folder = Path(spec.origin).resolve().parent
    return CodeRoot(name=name, folder=folder, is_package=bool(spec.submodule_search_locations))


def _file_root(file: Path) -> CodeRoot:
    return CodeRoot(name=file.stem, folder=file.resolve().parent, is_package=False)


def _name(members: Sequence[CodeRoot]) -> str:
    names = [member.name for member in members]
    return _OWN_NAME if set(names) & set(_OWN_PACKAGES) else names[0]


def _work_tree_of(folder: Path) -> Path | None:
    """The top folder of the git work tree that a folder is part of."""
    if _INSTALLED & set(folder.parts):  # an environment inside a checkout is no part of it
        return None
    try:
        return Path(os.fsdecode(_git(folder, "rev-parse", "--show-toplevel")).rstrip("\n"))
    except _GitError as error:
        has_repository = any((parent / ".git").exists() for parent in (folder, *folder.parents))
        if not has_repository or "not a git repository" in str(error):
            return None
        raise


def _read_source(top: Path, members: Sequence[CodeRoot]) -> Source:
    name = _name(members)
    files = [_pathspec(top, member) for member in members]
    try:
        commit = _git(top, "rev-parse", "--verify", "HEAD").decode("ascii").strip()
        diff = ("diff", "--no-ext-diff", "--no-textconv", "--no-color", "--no-renames", "HEAD")
        changed = _paths(_git(top, *diff, "--name-only", "-z", "--", *files))
        new = _paths(_git(top, "ls-files", "--others", "--exclude-standard", "-z", "--", *files))
        text = _git(top, *diff, "--binary", "--", *files) if changed else b""
    except _GitError as error:
        return _unknown(name, error)
    names = sorted({*changed, *new})
    return Source(
        name=name,
        commit=commit,
        changes=_digest(top, names) if names else None,
        changed_files=tuple(names),
        diff=_capped(text + b"".join(_as_added(top, path) for path in sorted(new))),
    )


def _unknown(name: str, error: _GitError) -> Source:
    return Source(name=name, commit=UNKNOWN, changes=UNKNOWN, problem=str(error))


def _pathspec(top: Path, root: CodeRoot) -> str:
    relative = root.folder.relative_to(top.resolve()).as_posix()
    escaped = "" if relative == "." else re.sub(r"([*?\[\]\\])", r"\\\1", relative) + "/"
    return f":(top,glob){escaped}{'**/' if root.is_package else ''}*.py"


def _paths(listing: bytes) -> list[str]:
    return [os.fsdecode(path) for path in listing.split(b"\0") if path]


def _digest(top: Path, names: Sequence[str]) -> str:
    """Hash names and contents, so that neither git's version nor its settings play a part."""
    digest = hashlib.sha256()
    for name in names:
        digest.update(os.fsencode(name) + b"\0" + _content_hash(top / name) + b"\n")
    return digest.hexdigest()


def _content_hash(file: Path) -> bytes:
    try:
        return hashlib.sha256(file.read_bytes()).hexdigest().encode()
    except OSError:
        return b"not there"


def _as_added(top: Path, name: str) -> bytes:
    """A patch that adds an untracked file."""
    try:
        data = (top / name).read_bytes()
    except OSError:
        return b""
    lines = data.splitlines()
    path = os.fsencode(name)
    head = b"diff --git a/%b b/%b\nnew file mode 100644\n" % (path, path)
    head += b"--- /dev/null\n+++ b/%b\n@@ -0,0 +1,%d @@\n" % (path, len(lines))
    return head + b"".join(b"+" + line + b"\n" for line in lines)


def _capped(diff: bytes) -> bytes:
    if len(diff) <= MAX_DIFF_BYTES:
        return diff
    kept = diff[: diff.rfind(b"\n", 0, MAX_DIFF_BYTES) + 1]
    return kept + b"cut here: %d more bytes\n" % (len(diff) - len(kept))


def _git(folder: Path, *arguments: str) -> bytes:
    """Run git there and return what it prints."""
    environment = {k: v for k, v in os.environ.items() if k not in _LOCATE_A_REPOSITORY}
    environment["LC_ALL"] = "C"
    try:
        done = subprocess.run(
            ["git", "-C", str(folder), *arguments],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=_TIMEOUT_S,
            check=False,
            env=environment,
        )
    except FileNotFoundError as error:
        raise _GitError("git is not installed") from error
    except (OSError, subprocess.TimeoutExpired) as error:
        raise _GitError(f"git {arguments[0]} did not answer: {error}") from error
    if done.returncode != 0:
        reason = done.stderr.decode("utf-8", "replace").strip() or f"exit code {done.returncode}"
        raise _GitError(f"git {arguments[0]}: {reason.splitlines()[0]}")
    return done.stdout
