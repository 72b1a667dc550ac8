"""Taking over saved tensors, whole or in part: what fits, what does not, and optimizer states.

Everything is compared before anything is changed, and every tensor that does not fit is named in
one error. Knows names, shapes and dtypes, no file format.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any

import torch
from torch import Tensor

from algorithms.base import OBSERVATION_STATISTICS, RETURN_STATISTICS, Policy, as_tensors
from algorithms.config import EXCEPT, RESTORE_ALL, RESTORE_MODEL
from algorithms.errors import RestoreError
from algorithms.storage import Array


def name_filter(restore: str) -> Callable[[str], bool]:
    """Return which weights a restore mode takes.

    Args:
        restore: ``all`` and ``model`` take every name; ``except-NAME`` every name but NAME and
            what lies below it (``NAME.*``); anything else is such a NAME to take. NAME may hold
            the wildcards ``*``, ``?`` and ``[...]``.

    Returns:
        A predicate over tensor names.
    """
    if restore in {RESTORE_ALL, RESTORE_MODEL}:
        return lambda _: True
    if restore.startswith(EXCEPT):
        left_out = restore.removeprefix(EXCEPT)
        return lambda name: not _matches(name, left_out)
    return lambda name: _matches(name, restore)


def _matches(name: str, pattern: str) -> bool:
    return fnmatchcase(name, pattern) or fnmatchcase(name, f"{pattern}.*")


class RestorePlan:
    """Compares what is wanted with what was loaded, and collects what does not fit.

    Args:
        restore: The restore mode; named in the error.
    """

    def __init__(self, restore: str) -> None:
        self.restore = restore
        self.problems: list[str] = []
        self._missing: list[str] = []
        self._unexpected: list[str] = []
        self._reshaped: list[str] = []

    def pair(
        self, expected: Mapping[str, Tensor], loaded: Mapping[str, Tensor], prefix: str = ""
    ) -> dict[str, Tensor]:
        """Pair tensors of equal name, shape and dtype, and note all others.

        Args:
            expected: What is needed; values give shape and dtype.
            loaded: What there is.
            prefix: Put before names in the error.

        Returns:
            The loaded tensors that fit.
        """
        self._missing += [prefix + name for name in expected if name not in loaded]
        self._unexpected += [prefix + name for name in loaded if name not in expected]
        fitting = {}
        for name in expected.keys() & loaded.keys():
            if _layout(expected[name]) == _layout(loaded[name]):
                fitting[name] = loaded[name]
            else:
                got, needed = _layout(loaded[name]), _layout(expected[name])
                self._reshaped.append(f"{prefix}{name}: got {got}, expected {needed}")
        return fitting

    def raise_problems(self) -> None:
        """Refuse if anything did not fit.

        Raises:
            RestoreError: Naming everything.
        """
        if not (self.problems or self._missing or self._unexpected or self._reshaped):
            return
        raise RestoreError(
            f"this checkpoint (mode {self.restore})",
            missing=sorted(self._missing),
            unexpected=sorted(self._unexpected),
            reshaped=sorted(self._reshaped),
            other=self.problems,
            remedy=(
                "use the policy settings that the checkpoint was written with, or leave out what "
                f"differs with --algo.restore {EXCEPT}NAME"
            ),
        )


def _layout(tensor: Tensor) -> str:
    return f"{str(tensor.dtype).removeprefix('torch.')} {tuple(tensor.shape)}"


@dataclass(frozen=True, slots=True)
class PolicyRestore:
    """What of a policy will be replaced, once it is known that everything fits."""

    policy: Policy
    """Whose tensors."""
    weights: dict[str, Tensor]
    """New weights by name."""
    statistics: dict[str, Tensor]
    """New observation statistics by name."""

    def apply(self) -> None:
        """Write the tensors into the policy.

        Raises:
            RestoreError: If the statistics hold impossible numbers; nothing has changed then.
        """
        before = self.policy.normalizer_state()
        try:
            self.policy.load_normalizer_state(as_arrays(self.statistics))
        except ValueError as error:
            self.policy.load_normalizer_state(before)
            raise RestoreError("observation statistics", other=[str(error)]) from error
        with torch.no_grad():
            own = self.policy.state_dict()
            for name, tensor in self.weights.items():
                own[name].copy_(tensor)


def plan_policy(plan: RestorePlan, policy: Policy, loaded: Mapping[str, Tensor]) -> PolicyRestore:
    """Compare a saved model with a policy.

    Normaliser statistics are taken in every mode: weights mean nothing without the scale that
    their inputs had. Statistics of a learner, saved beside them, are left to it.

    Args:
        plan: Notes what does not fit.
        policy: What is to be overwritten.
        loaded: Saved tensors of the model.

    Returns:
        What to apply if the plan has no problems.
    """
    weights = {
        name: tensor
        for name, tensor in loaded.items()
        if not name.startswith((OBSERVATION_STATISTICS, RETURN_STATISTICS))
    }
    is_taken = name_filter(plan.restore)
    wanted = {name: tensor for name, tensor in policy.state_dict().items() if is_taken(name)}
    offered = {name: tensor for name, tensor in weights.items() if is_taken(name)}
    if not wanted and policy.state_dict():
        names = ", ".join(policy.state_dict())
        plan.problems.append(f"--algo.restore {plan.restore} takes none of the weights: {names}")
    statistics = as_tensors("", policy.normalizer_state())
    return PolicyRestore(
        policy,
        plan.pair(wanted, offered),
        plan.pair(statistics, below(OBSERVATION_STATISTICS, loaded), OBSERVATION_STATISTICS),
    )


def as_arrays(tensors: Mapping[str, Tensor]) -> dict[str, Array]:
    """Return tensors as arrays, on the CPU."""
    return {name: tensor.numpy(force=True) for name, tensor in tensors.items()}


def below(prefix: str, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return the tensors whose names start with a prefix, without it."""
    return {
        name.removeprefix(prefix): tensor
        for name, tensor in tensors.items()
        if name.startswith(prefix)
    }


def optimizer_tensors(
    optimizer: torch.optim.Optimizer, names: Mapping[Tensor, str]
) -> dict[str, Tensor]:
    """Return an optimizer's state as named tensors, without copying.

    Args:
        optimizer: Any whose per-parameter state consists of tensors, such as Adam.
        names: Name of each parameter.

    Returns:
        ``{"actor.0.weight/exp_avg": tensor, …}``; nothing for a parameter never stepped.
    """
    return {
        f"{names[parameter]}/{entry}": tensor
        for parameter, entries in optimizer.state.items()
        for entry, tensor in entries.items()
    }


def optimizer_structure(
    optimizer: torch.optim.Optimizer, names: Mapping[Tensor, str]
) -> dict[str, Any]:
    """Describe an optimizer in JSON-able data: its kind, and what it keeps for which parameter.

    Args:
        optimizer: The optimizer.
        names: Name of each parameter.

    Returns:
        ``{"kind": "Adam", "entries": {"actor.0.weight": ["exp_avg", …], …}}``.
    """
    entries = {names[parameter]: sorted(state) for parameter, state in optimizer.state.items()}
    return {"kind": type(optimizer).__name__, "entries": dict(sorted(entries.items()))}


def plan_optimizer(
    plan: RestorePlan,
    optimizer: torch.optim.Optimizer,
    names: Mapping[Tensor, str],
    tensors: Mapping[str, Tensor],
    structure: Mapping[str, Any],
) -> dict[Tensor, dict[str, Tensor]]:
    """Check a saved optimizer state against the parameters it is for.

    Args:
        plan: Notes what does not fit.
        optimizer: The optimizer that is to continue.
        names: Name of each parameter.
        tensors: What ``optimizer_tensors`` returned.
        structure: What ``optimizer_structure`` returned.

    Returns:
        The state of each parameter, for ``set_optimizer_state``.
    """
    kind = type(optimizer).__name__
    if structure.get("kind") != kind:
        plan.problems.append(f"optimizer: got a {structure.get('kind')}, expected a {kind}")
    by_name = {name: parameter for parameter, name in names.items()}
    entries: Mapping[str, list[str]] = structure.get("entries", {})
    expected = {
        f"{name}/{entry}": _like_entry(by_name[name], entry)
        for name, kept in entries.items()
        if name in by_name
        for entry in kept
    }
    fitting = plan.pair(expected, tensors, prefix="optimizer ")
    state: dict[Tensor, dict[str, Tensor]] = {}
    for full_name, tensor in fitting.items():
        name, _, entry = full_name.rpartition("/")
        state.setdefault(by_name[name], {})[entry] = tensor
    return state


def _like_entry(parameter: Tensor, entry: str) -> Tensor:
    """Return a tensor laid out as an entry: Adam's count is one number, the rest are as weights."""
    return torch.empty((), device="meta") if entry == "step" else parameter.detach()


def set_optimizer_state(
    optimizer: torch.optim.Optimizer, state: Mapping[Tensor, Mapping[str, Tensor]]
) -> None:
    """Replace everything an optimizer remembers, bit for bit; its settings stay as they are.

    Args:
        optimizer: The optimizer.
        state: Entries of each parameter; parameters left out start fresh. Copied.
    """
    described = optimizer.state_dict()
    parameters = [p for group in optimizer.param_groups for p in group["params"]]
    described["state"] = {
        index: {entry: tensor.detach().clone() for entry, tensor in state[parameter].items()}
        for index, parameter in enumerate(parameters)
        if parameter in state
    }
    optimizer.load_state_dict(described)


def copies(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return detached copies on the CPU."""
    return {name: tensor.detach().to("cpu", copy=True) for name, tensor in tensors.items()}
