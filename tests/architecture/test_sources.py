"""Rules that every source file keeps: documented, no pickle, only declared libraries."""

import ast
import re
import sys
import tomllib
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PACKAGES = ("royale_server", "royale_client", "algorithms", "checkpoints")
MODULES = sorted(path for package in PACKAGES for path in (ROOT / package).rglob("*.py"))
TEXT_SUFFIXES = {".py", ".md", ".toml", ".txt", ".js", ".html", ".json"}

# Spelled as patterns, so that this file does not contain what it forbids.
PICKLE_MODULES = r"\b(import|from) (_?c?pickle|dill|cloudpickle|marshal|shelve|joblib)\b"
UNSAFE_LOADING = r"\bpickle\.loads?\(|\btorch\.load\(|\ballow_pickle\s*=\s*True"
PICKLE_WRITING = r"\btorch\.(save|serialization)\b|\bnp\.save\(|\.to_pickle\("

# Distributions whose import name differs from their own.
IMPORT_NAMES = {"ale-py": "ale_py", "opencv-python-headless": "cv2"}


def repository_files() -> Iterator[Path]:
    """Yield the files of the repository: no hidden folder, no run output, no build output."""
    tops = [ROOT / name for name in (*PACKAGES, "tests", "docs", ".ci")]
    yield from (path for path in ROOT.iterdir() if path.is_file())
    yield from (path for top in tops for path in top.rglob("*") if path.is_file())


def imported_libraries(path: Path) -> set[str]:
    """Return the top-level names a module imports, inside functions too."""
    names = set()
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.Import):
            names |= {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module and node.level == 0:
            names.add(node.module.partition(".")[0])
    return names


def declared_libraries(*extras: str) -> set[str]:
    """Return the import names of the base dependencies and of these extras (all, if none)."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    groups = project["optional-dependencies"]
    chosen = extras or tuple(group for group in groups if group != "dev")
    requirements = project["dependencies"] + [line for name in chosen for line in groups[name]]
    distributions = {re.split(r"[^A-Za-z0-9._-]", line)[0] for line in requirements}
    return {IMPORT_NAMES.get(name, name) for name in distributions}


def undeclared_imports(package: str, declared: set[str]) -> dict[str, set[str]]:
    allowed = declared | set(PACKAGES) | set(sys.stdlib_module_names)
    modules = [path for path in MODULES if path.relative_to(ROOT).parts[0] == package]
    found = {str(path.relative_to(ROOT)): imported_libraries(path) - allowed for path in modules}
    return {name: libraries for name, libraries in found.items() if libraries}


@pytest.mark.parametrize("path", [*MODULES, ROOT / "x.py"], ids=lambda p: str(p.relative_to(ROOT)))
def test_module_opens_with_a_docstring(path):
    assert ast.get_docstring(ast.parse(path.read_text("utf-8")))


def files_with(pattern: str, files: Iterable[Path]) -> list[str]:
    texts = [path for path in files if path.suffix in TEXT_SUFFIXES]
    return [str(path) for path in texts if re.search(pattern, path.read_text("utf-8"))]


def test_nothing_in_the_repository_loads_pickles():
    assert files_with(UNSAFE_LOADING, repository_files()) == []


def test_nothing_but_tests_knows_pickle():
    # Tests make pickled bytes to show that they are refused.
    files = (path for path in repository_files() if path.relative_to(ROOT).parts[0] != "tests")
    assert files_with(PICKLE_MODULES, files) == []


def test_no_module_writes_what_only_a_pickle_could_hold():
    assert files_with(PICKLE_WRITING, MODULES) == []


@pytest.mark.parametrize(
    ("pattern", "line"),
    [
        (PICKLE_WRITING, "    torch" + ".save(state, path)"),
        (PICKLE_MODULES, "import " + "pickle"),
        (PICKLE_MODULES, "    from " + "pickle import loads"),
        (UNSAFE_LOADING, "model = torch" + ".load(path)"),
    ],
)
def test_unsafe_loading_is_recognised(tmp_path, pattern, line):
    (tmp_path / "module.py").write_text(line)
    assert files_with(pattern, [tmp_path / "module.py"]) != []


@pytest.mark.parametrize("package", ["algorithms", "checkpoints", "royale_server"])
def test_server_side_imports_only_libraries_of_the_server_extra(package):
    # fast is optional where it is used; gymnasium serves users of the inline mode.
    declared = declared_libraries("server", "fast", "gym")
    assert undeclared_imports(package, declared) == {}


def test_client_imports_only_base_dependencies_and_environment_extras():
    declared = declared_libraries("gym", "arena", "mujoco", "atari", "box2d")
    assert undeclared_imports("royale_client", declared) == {}


def test_setup_script_uses_only_the_standard_library():
    assert imported_libraries(ROOT / "x.py") <= set(sys.stdlib_module_names)
