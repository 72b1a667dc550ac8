"""The registry: what a name means, who may provide it, and what is imported when."""

import subprocess
import sys
from importlib import metadata
from pathlib import Path

import pytest

from royale_client.wire.errors import ConfigError
from royale_server.builtin_components import ALGORITHMS, POLICIES, builtin_registry
from royale_server.registry import (
    PolicyEntry,
    Registry,
    load_path,
)

PLUGIN = """
from dataclasses import dataclass

from royale_server.registry import PolicyEntry


@dataclass(frozen=True, kw_only=True)
class TinyConfig:
    width: int = 3


VARIANTS = {"default": TinyConfig()}


def register(registry):
    registry.add_policy(
        PolicyEntry(
            uid="UID",
            summary="tiny",
            config=f"{__name__}:TinyConfig",
            variants=f"{__name__}:VARIANTS",
            implementation="nowhere:Tiny",
            fits=("ppo",),
        )
    )
"""

TINY_PLUGIN = PLUGIN.replace("UID", "tiny-policy")

ENTRY = """
from royale_server.registry import PolicyEntry

ENTRY = PolicyEntry(
    uid="tiny",
    summary="from a package",
    config="nowhere:Config",
    variants="nowhere:VARIANTS",
    implementation="nowhere:Tiny",
)
"""


def policy_entry(uid="tiny", **changes):
    facts = {
        "uid": uid,
        "summary": "a policy",
        "config": "algorithms.policies.config:MLPPolicyConfig",
        "variants": "algorithms.policies.config:MLP_VARIANTS",
        "implementation": "nowhere:Tiny",
    }
    return PolicyEntry(**{**facts, **changes})


@pytest.fixture
def plugin_file(tmp_path, monkeypatch):
    """A function that writes a plug-in file; what importing it leaves behind is undone."""
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    before = set(sys.modules)

    def write(name, text=TINY_PLUGIN) -> Path:
        file = tmp_path / f"{name}.py"
        file.write_text(text)
        return file

    yield write
    for module in set(sys.modules) - before:
        del sys.modules[module]


def test_every_built_in_entry_points_at_torch_free_settings_of_its_config_class():
    for entry in (*POLICIES, *ALGORITHMS):
        variants = entry.load_variants()
        assert next(iter(variants)) == "default"
        assert all(type(variant) is entry.load_config_class() for variant in variants.values())


def test_every_built_in_implementation_can_be_imported():
    for entry in (*POLICIES, *ALGORITHMS):
        assert isinstance(entry.load_implementation(), type)


def test_built_in_pairs_are_ppo_and_eval_with_every_network_and_dummy_with_every_policy():
    built_in = {entry.uid for entry in (*POLICIES, *ALGORITHMS)}
    pairs = [pair for pair in builtin_registry().pairs() if set(pair) <= built_in]
    networks = ("mlp-policy", "arena-policy")
    expected = {
        (policy, algorithm) for policy in networks for algorithm in ("ppo", "dummy", "eval")
    }
    assert sorted(pairs) == sorted(expected | {("dummy-policy", "dummy")})


def test_either_side_may_say_that_a_pair_fits():
    registry = builtin_registry()
    registry.add_policy(policy_entry(fits=("ppo",)))
    assert registry.fits(registry.policies.get("tiny"), registry.algorithms.get("ppo"))
    assert not registry.fits(registry.policies.get("tiny"), registry.algorithms.get("dummy"))
    assert ("tiny", "ppo") in registry.pairs()


def test_an_unknown_name_is_refused_with_the_near_ones_and_all_known_ones():
    with pytest.raises(ConfigError, match=r"'mlp-polcy' is unknown \(did you mean mlp-policy\?\)"):
        builtin_registry().policies.get("mlp-polcy")
    with pytest.raises(ConfigError, match="algorithm 'x' is unknown; known: ppo, dummy, eval"):
        builtin_registry().algorithms.get("x")


def test_a_name_that_is_taken_is_refused_naming_both_providers(plugin_file):
    file = plugin_file("second_mlp", PLUGIN.replace("UID", "mlp-policy"))
    with pytest.raises(ConfigError) as refused:
        builtin_registry().load_plugin(str(file))
    assert f"policy 'mlp-policy' is provided twice: by royale and by --plugin {file}" in str(
        refused.value
    )


def test_two_installed_providers_are_refused_when_their_name_is_chosen():
    registry = Registry()
    point = metadata.EntryPoint("twin", "some.module:ENTRY", "royale.policies")
    other = metadata.EntryPoint("twin", "other.module:ENTRY", "royale.policies")
    registry.policies.add_entry_points([point, other])
    assert registry.policies.names() == ["twin"]
    with pytest.raises(ConfigError, match=r"provided twice.*some\.module.*other\.module"):
        registry.policies.get("twin")


def test_an_installed_plugin_is_listed_by_name_and_imported_only_when_chosen(plugin_file):
    sys.path.insert(0, str(plugin_file("installed_plugin", ENTRY).parent))
    registry = Registry()
    point = metadata.EntryPoint("tiny", "installed_plugin:ENTRY", "royale.policies")
    registry.policies.add_entry_points([point])

    assert list(registry.policies.undescribed()) == ["tiny"]
    assert "installed_plugin" not in sys.modules

    assert registry.policies.get("tiny").summary == "from a package"
    assert "installed_plugin" in sys.modules
    assert registry.policies.undescribed() == {}


def test_an_entry_point_that_is_no_entry_is_refused_by_type():
    registry = Registry()
    point = metadata.EntryPoint("odd", "json:dumps", "royale.policies")
    registry.policies.add_entry_points([point])
    with pytest.raises(ConfigError, match="json:dumps is a function, expected an instance of Pol"):
        registry.policies.get("odd")


def test_an_entry_point_must_carry_the_name_of_its_entry(plugin_file):
    sys.path.insert(0, str(plugin_file("misnamed_plugin", ENTRY).parent))
    registry = Registry()
    point = metadata.EntryPoint("other", "misnamed_plugin:ENTRY", "royale.policies")
    registry.policies.add_entry_points([point])
    with pytest.raises(ConfigError, match="the entry calls itself 'tiny'"):
        registry.policies.get("other")


def test_a_plugin_file_registers_what_it_brings(plugin_file):
    registry = builtin_registry()
    registry.load_plugin(str(plugin_file("tiny_plugin")))
    entry = registry.policies.get("tiny-policy")
    assert entry.load_variants()["default"].width == 3
    assert ("tiny-policy", "ppo") in registry.pairs()


def test_a_plugin_module_is_found_in_the_current_directory(plugin_file, monkeypatch):
    monkeypatch.chdir(plugin_file("cwd_plugin").parent)
    registry = builtin_registry()
    registry.load_plugin("cwd_plugin")
    assert "tiny-policy" in registry.policies.names()


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        ("not_there", "cannot import not_there"),
        ("json", "module json has no register"),
        ("nowhere/at_all.py", "there is no file"),
    ],
)
def test_a_plugin_that_cannot_be_used_is_refused_by_name(name, sentence, monkeypatch):
    monkeypatch.setattr(sys, "path", [*sys.path])
    with pytest.raises(ConfigError, match=f"--plugin {name}: {sentence}"):
        builtin_registry().load_plugin(name)


def test_a_plugin_file_with_the_name_of_another_module_is_refused(plugin_file):
    file = plugin_file("json")
    with pytest.raises(ConfigError, match=r"the module name json means .*; rename the file"):
        builtin_registry().load_plugin(str(file))


def test_a_missing_library_of_ours_names_the_extra_that_brings_it(plugin_file):
    text = "raise ModuleNotFoundError(\"No module named 'torch'\", name='torch')"
    sys.path.insert(0, str(plugin_file("needs_torch", text).parent))
    with pytest.raises(ConfigError, match=r"pip install 'royale-rl\[server\]'"):
        load_path("needs_torch:X", "ppo: implementation")


def test_algorithms_are_described_without_importing_them():
    code = (
        "import sys\n"
        "from royale_server.builtin_components import builtin_registry\n"
        "registry = builtin_registry()\n"
        "names = [entry.uid for entry in registry.algorithms.described()]\n"
        "assert names[:2] == ['ppo', 'dummy'], names\n"
        "assert not [m for m in sys.modules if m.split('.')[0] in ('algorithms', 'torch')]\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)
