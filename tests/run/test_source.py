"""The code of a run as git sees it: the commit, and Python files that are not committed."""

import shutil
import subprocess
from pathlib import Path

import pytest

from royale_server.run import source as source_module
from royale_server.run.source import UNKNOWN, CodeRoot, code_roots, read_sources

needs_git = pytest.mark.skipif(shutil.which("git") is None, reason="git is not installed")


def git(folder, *arguments):
    identity = ("-c", "user.name=a", "-c", "user.email=a@b", "-c", "commit.gpgsign=false")
    done = subprocess.run(
        ["git", *identity, *arguments], cwd=folder, check=True, capture_output=True, text=True
    )
    return done.stdout.strip()


@pytest.fixture
def tree(tmp_path):
    """A work tree with one commit of a package, a plug-in and notes."""
    top = tmp_path / "tree"
    (top / "package" / "inner").mkdir(parents=True)
    (top / "plugins" / "other").mkdir(parents=True)
    for name in ("package/a.py", "package/inner/b.py", "plugins/mine.py", "notes.txt"):
        (top / name).write_text(f"# {name}\n")
    git(top, "init", "-q")
    git(top, "add", ".")
    git(top, "commit", "-q", "-m", "one")
    return top


def read(top, *, plugin=False):
    roots = [CodeRoot(name="package", folder=top / "package", is_package=True)]
    if plugin:
        roots.append(CodeRoot(name="mine", folder=top / "plugins", is_package=False))
    (source,) = read_sources(roots)
    return source


@needs_git
def test_committed_code_is_its_commit(tree):
    source = read(tree)
    assert source.commit == git(tree, "rev-parse", "HEAD")
    assert (source.changes, source.changed_files, source.diff) == (None, (), b"")
    assert source.problem is None
    assert source.name == "package"


@needs_git
def test_uncommitted_changes_have_a_digest_of_their_contents_and_a_patch(tree):
    (tree / "package" / "a.py").write_text("x = 1\n")
    (tree / "package" / "inner" / "new.py").write_text("y = 2\nz = 3\n")
    first = read(tree)
    assert first.changed_files == ("package/a.py", "package/inner/new.py")
    assert b"-# package/a.py\n+x = 1\n" in first.diff
    assert b"+++ b/package/inner/new.py\n@@ -0,0 +1,2 @@\n+y = 2\n+z = 3\n" in first.diff

    assert read(tree).changes == first.changes
    (tree / "package" / "a.py").write_text("x = 2\n")
    assert read(tree).changes != first.changes
    (tree / "package" / "a.py").write_text("x = 1\n")
    assert read(tree).changes == first.changes
    (tree / "package" / "a.py").unlink()
    assert read(tree).changes not in (first.changes, None)


@needs_git
def test_the_patch_restores_the_code(tree, tmp_path):
    (tree / "package" / "a.py").write_text("x = 1\n")
    (tree / "package" / "new.py").write_text("y = 2\n")
    (tmp_path / "source.diff").write_bytes(read(tree).diff)
    clone = tmp_path / "clone"
    git(tmp_path, "clone", "-q", str(tree), str(clone))
    git(clone, "apply", str(tmp_path / "source.diff"))
    assert read(clone).changes == read(tree).changes


@needs_git
def test_only_python_files_of_the_run_count(tree):
    (tree / "notes.txt").write_text("changed")
    (tree / "package" / "table.csv").write_text("new")
    (tree / "plugins" / "mine.py").write_text("changed = True\n")
    (tree / "plugins" / "other" / "else.py").write_text("not imported\n")
    assert read(tree).changes is None
    assert read(tree, plugin=True).changed_files == ("plugins/mine.py",)


@needs_git
def test_ignored_files_do_not_count(tree):
    (tree / ".gitignore").write_text("made.py\n")
    (tree / "package" / "made.py").write_text("generated\n")
    assert read(tree).changes is None


@needs_git
def test_a_folder_with_characters_that_mean_something_to_git(tree):
    (tree / "pack[a]*").mkdir()
    (tree / "pack[a]*" / "c.py").write_text("new\n")
    root = CodeRoot(name="odd", folder=tree / "pack[a]*", is_package=True)
    (source,) = read_sources([root])
    assert source.changed_files == ("pack[a]*/c.py",)


@needs_git
def test_a_huge_patch_is_cut_and_says_so(tree, monkeypatch):
    monkeypatch.setattr(source_module, "MAX_DIFF_BYTES", 400)
    (tree / "package" / "new.py").write_text("line\n" * 1000)
    diff = read(tree).diff
    assert len(diff) < 450
    assert diff.splitlines()[-1].startswith(b"cut here: ")


@needs_git
def test_an_environment_inside_a_checkout_is_no_part_of_it(tree):
    installed = tree / "venv" / "lib" / "site-packages" / "package"
    installed.mkdir(parents=True)
    (installed / "a.py").write_text("installed\n")
    assert read_sources([CodeRoot(name="package", folder=installed, is_package=True)]) == []


def test_code_outside_any_work_tree_has_no_source(tmp_path, monkeypatch):
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path.parent))
    assert read_sources([CodeRoot(name="x", folder=tmp_path, is_package=True)]) == []


def test_without_git_a_checkout_is_unknown_and_says_why(tmp_path, monkeypatch):
    (tmp_path / ".git").mkdir()
    monkeypatch.setenv("PATH", "")
    (source,) = read_sources([CodeRoot(name="x", folder=tmp_path, is_package=True)])
    assert (source.commit, source.changes) == (UNKNOWN, UNKNOWN)
    assert source.problem == "git is not installed"
    # Without git and without a repository there is nothing to wonder about.
    (tmp_path / ".git").rmdir()
    assert read_sources([CodeRoot(name="x", folder=tmp_path, is_package=True)]) == []


@needs_git
def test_a_repository_without_a_commit_is_unknown(tmp_path):
    git(tmp_path, "init", "-q")
    (source,) = read_sources([CodeRoot(name="x", folder=tmp_path, is_package=True)])
    assert source.commit == UNKNOWN
    assert source.problem is not None


@needs_git
def test_git_variables_of_a_hook_do_not_mislead(tree, tmp_path, monkeypatch):
    monkeypatch.setenv("GIT_DIR", str(tmp_path / "elsewhere"))
    monkeypatch.setenv("GIT_INDEX_FILE", str(tmp_path / "index"))
    source = read(tree)
    assert source.problem is None
    assert source.changes is None


def test_the_roots_are_the_four_packages_the_plug_ins_and_who_provides_the_settings(tmp_path):
    (tmp_path / "mine.py").write_text("")
    roots = code_roots([str(tmp_path / "mine.py")], ["algorithms.ppo.config", "builtins"])
    own = ["royale_server", "royale_client", "algorithms", "checkpoints"]
    assert [root.name for root in roots] == [*own, "mine"]
    assert all(root.is_package for root in roots[:4])
    assert roots[0].folder == Path(source_module.__file__).parents[1]
    assert (roots[4].folder, roots[4].is_package) == (tmp_path, False)


@needs_git
def test_the_work_tree_of_royale_itself_is_called_so(tree):
    roots = [
        CodeRoot(name="royale_server", folder=tree / "package", is_package=True),
        CodeRoot(name="mine", folder=tree / "plugins", is_package=False),
    ]
    assert [source.name for source in read_sources(roots)] == ["royale"]
