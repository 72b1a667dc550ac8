"""The names a command line may use: policies, algorithms, which of them fit together, and alarms.

An entry is a description; looking at it imports nothing. The config class is imported when the
entry is chosen, the implementation (and with it torch) only when the server is about to run.
Plug-ins come from the entry-point groups ``royale.policies``, ``royale.algorithms`` and
``royale.alarms``, whose names can be listed without importing them, or from modules named by
``--plugin``.
"""

from __future__ import annotations

import difflib
import importlib
import importlib.util
import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from importlib import metadata
from pathlib import Path
from typing import Any, Generic, Protocol, TypeAlias, TypeVar

from royale_client.wire.errors import ConfigError
from royale_server.alarms.declaration import Alarm

POLICY_GROUP = "royale.policies"
ALGORITHM_GROUP = "royale.algorithms"
ALARM_GROUP = "royale.alarms"

Imported: TypeAlias = Any
"""Whatever a module holds under a name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ComponentEntry:
    """What the command line knows about one policy or algorithm.

    Paths are ``"package.module:Name"``. The modules of ``config`` and ``variants`` must be
    importable without torch: they are read to parse flags and to print help.
    """

    uid: str
    """The word on the command line; unique among policies or among algorithms."""
    summary: str
    """One line for ``--help``."""
    config: str
    """Path of the frozen dataclass with the settings."""
    variants: str
    """Path of a mapping: variant name -> instance of the config class."""
    implementation: str
    """Path of the class that does the work; imported when the run starts."""
    fits: tuple[str, ...] = ()
    """Uids of the other kind that this one works with. Either side may name the other."""

    def load_config_class(self) -> type[Any]:
        """Import the config class, without the implementation."""
        loaded: type[Any] = load_path(self.config, f"{self.uid}: config")
        return loaded

    def load_variants(self) -> Mapping[str, Any]:
        """Import the mapping of variant name to config instance."""
        loaded: Mapping[str, Any] = load_path(self.variants, f"{self.uid}: variants")
        return loaded

    def load_implementation(self) -> type[Any]:
        """Import the class that does the work. This imports torch for the built-in ones."""
        loaded: type[Any] = load_path(self.implementation, f"{self.uid}: implementation")
        return loaded


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyEntry(ComponentEntry):
    """One policy; ``fits`` lists algorithm uids."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AlgorithmEntry(ComponentEntry):
    """One algorithm; ``fits`` lists policy uids."""


class Named(Protocol):
    """Anything that is registered under a name."""

    @property
    def uid(self) -> str:
        """The name."""


EntryT = TypeVar("EntryT", bound=Named)


@dataclass(slots=True)
class _Provider(Generic[EntryT]):
    """Where a name comes from, and how to get its entry."""

    source: str
    load: Callable[[], EntryT]
    is_loaded: bool


@dataclass(slots=True)
class Catalog(Generic[EntryT]):
    """All names of one kind, each with its providers."""

    kind: str
    """The word used in messages: ``policy``, ``algorithm`` or ``alarm``."""
    entry_type: type[EntryT]
    _providers: dict[str, list[_Provider[EntryT]]] = field(default_factory=dict)

    def add(self, entry: EntryT, source: str) -> None:
        """Register a described entry.

        Raises:
            ConfigError: If the name is already provided, naming both providers.
        """
        provider = _Provider(source, lambda: entry, is_loaded=True)
        self._providers.setdefault(entry.uid, []).append(provider)
        self._refuse_two_providers(entry.uid)

    def add_entry_points(self, entry_points: Iterable[metadata.EntryPoint]) -> None:
        """Note the names of installed plug-ins without importing them."""
        for point in entry_points:
            provider = _Provider(
                _source_of(point), self._entry_point_loader(point), is_loaded=False
            )
            self._providers.setdefault(point.name, []).append(provider)

    def names(self) -> list[str]:
        """Every name, in order of registration: built-in ones first."""
        return list(self._providers)

    def described(self) -> list[EntryT]:
        """The entries that can be shown without importing a plug-in."""
        return [p[0].load() for p in self._providers.values() if len(p) == 1 and p[0].is_loaded]

    def undescribed(self) -> dict[str, str]:
        """Name -> source of plug-ins not imported so far."""
        return {
            name: " and ".join(p.source for p in providers)
            for name, providers in self._providers.items()
            if len(providers) > 1 or not providers[0].is_loaded
        }

    def get(self, uid: str) -> EntryT:
        """Return the entry called ``uid``, importing its plug-in if it comes from one.

        Raises:
            ConfigError: If nothing or more than one thing has that name.
        """
        if uid not in self._providers:
            raise ConfigError(
                f"{self.kind} {uid!r} is unknown{close_match_hint(uid, self.names())}; "
                f"known: {', '.join(self.names())} (and those that --plugin MODULE brings)"
            )
        self._refuse_two_providers(uid)
        provider = self._providers[uid][0]
        entry = provider.load()
        self._providers[uid] = [_Provider(provider.source, lambda: entry, is_loaded=True)]
        return entry

    def _refuse_two_providers(self, uid: str) -> None:
        sources = [provider.source for provider in self._providers[uid]]
        if len(sources) > 1:
            raise ConfigError(
                f"{self.kind} {uid!r} is provided twice: by {' and by '.join(sources)}; "
                "rename one of them or uninstall it"
            )

    def _entry_point_loader(self, point: metadata.EntryPoint) -> Callable[[], EntryT]:
        def load() -> EntryT:
            where = f"{self.kind} {point.name!r} from {_source_of(point)}"
            entry = load_path(point.value, where)
            if not isinstance(entry, self.entry_type):
                raise ConfigError(
                    f"{where}: {point.value} is a {type(entry).__name__}, expected an instance of "
                    f"{self.entry_type.__name__}"
                )
            if entry.uid != point.name:
                raise ConfigError(
                    f"{where}: the entry calls itself {entry.uid!r}; "
                    "entry-point name and uid must be equal"
                )
            return entry

        return load


class Registry:
    """Every policy, algorithm and alarm this process can name.

    A module given by ``--plugin`` defines ``register(registry)`` and calls
    :meth:`add_policy`, :meth:`add_algorithm` and :meth:`add_alarm` in it.
    """

    def __init__(self) -> None:
        self.policies: Catalog[PolicyEntry] = Catalog("policy", PolicyEntry)
        self.algorithms: Catalog[AlgorithmEntry] = Catalog("algorithm", AlgorithmEntry)
        self.alarms: Catalog[Alarm] = Catalog("alarm", Alarm)
        self._source = "royale"

    def add_policy(self, entry: PolicyEntry) -> None:
        """Register a policy. Raises ConfigError if the name is taken."""
        self.policies.add(entry, self._source)

    def add_algorithm(self, entry: AlgorithmEntry) -> None:
        """Register an algorithm. Raises ConfigError if the name is taken."""
        self.algorithms.add(entry, self._source)

    def add_alarm(self, alarm: Alarm) -> None:
        """Register an alarm. Raises ConfigError if the name is taken."""
        self.alarms.add(alarm, self._source)

    def add_installed_plugins(self) -> None:
        """Note the names of installed plug-ins; none of them is imported."""
        self.policies.add_entry_points(metadata.entry_points(group=POLICY_GROUP))
        self.algorithms.add_entry_points(metadata.entry_points(group=ALGORITHM_GROUP))
        self.alarms.add_entry_points(metadata.entry_points(group=ALARM_GROUP))

    def load_plugin(self, module_name: str) -> None:
        """Import a module and let its ``register(registry)`` add entries.

        Args:
            module_name: A module importable from here or the current directory
                (``my_policy``), or a file (``plugins/my_policy.py``).

        Raises:
            ConfigError: If it cannot be imported, has no ``register``, or takes a taken name.
        """
        where = f"--plugin {module_name}"
        register = load_path(f"{_importable(module_name, where)}:register", where)
        if not callable(register):
            raise ConfigError(f"{where}: register is a {type(register).__name__}, not a function")
        previous, self._source = self._source, where
        try:
            register(self)
        finally:
            self._source = previous

    def fits(self, policy: PolicyEntry, algorithm: AlgorithmEntry) -> bool:
        """Whether the two may be trained together: one of them names the other."""
        return algorithm.uid in policy.fits or policy.uid in algorithm.fits

    def pairs(self) -> list[tuple[str, str]]:
        """All (policy uid, algorithm uid) known to fit, imported plug-ins included."""
        policies, algorithms = self.policies.names(), self.algorithms.names()
        named = {(p.uid, uid) for p in self.policies.described() for uid in p.fits}
        named |= {(uid, a.uid) for a in self.algorithms.described() for uid in a.fits}
        return [(p, a) for p in policies for a in algorithms if (p, a) in named]


def load_path(path: str, where: str) -> Imported:
    """Import ``"package.module:Name"``.

    Args:
        path: The path.
        where: What it belongs to; starts the error message.

    Raises:
        ConfigError: If the module or the name is missing, or its import fails.
    """
    module_name, _, attribute = path.partition(":")
    try:
        module = importlib.import_module(module_name)
    except ImportError as error:
        raise ConfigError(
            f"{where}: cannot import {module_name}: {error}{_remedy(error)}"
        ) from error
    if not attribute or not hasattr(module, attribute):
        raise ConfigError(
            f"{where}: module {module_name} has no {attribute or 'name after the colon'}"
        )
    return getattr(module, attribute)


def _importable(module_name: str, where: str) -> str:
    """Make a plug-in's folder importable and return the module's name."""
    if not module_name.endswith(".py"):
        _prepend_to_path(Path.cwd())
        return module_name
    file = Path(module_name).resolve()
    if not file.is_file():
        raise ConfigError(f"{where}: there is no file {file}")
    _prepend_to_path(file.parent)
    importlib.invalidate_caches()
    spec = importlib.util.find_spec(file.stem)
    if spec is None or spec.origin is None or Path(spec.origin).resolve() != file:
        taken_by = spec.origin if spec else "nothing importable"
        raise ConfigError(
            f"{where}: the module name {file.stem} means {taken_by} here; rename the file"
        )
    return file.stem


def _prepend_to_path(folder: Path) -> None:
    """Let modules of ``folder`` be imported, as ``python -m`` would."""
    if str(folder) not in sys.path:
        sys.path.insert(0, str(folder))


def close_match_hint(word: str, known: Iterable[str]) -> str:
    """Return ``" (did you mean X?)"`` for the nearest known word, or an empty string."""
    matches = difflib.get_close_matches(word, list(known), n=2, cutoff=0.7)
    return f" (did you mean {' or '.join(matches)}?)" if matches else ""


def _source_of(point: metadata.EntryPoint) -> str:
    """Name the distribution that an entry point belongs to."""
    return f"the package {point.dist.name}" if point.dist else f"the entry point {point.value}"


def _remedy(error: ImportError) -> str:
    """Name the extra that brings a missing library of ours."""
    if error.name in {"torch", "safetensors", "swanlab"}:
        return "; install the server's libraries with: pip install 'royale-rl[server]'"
    return ""
