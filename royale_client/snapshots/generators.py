"""The whole state of random generators as plain data, and generators from it.

A NumPy generator is its bit generator and the seed sequence that later ``spawn`` calls draw from.
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.random import BitGenerator, Generator, RandomState, SeedSequence

_KINDS = ("PCG64", "PCG64DXSM", "MT19937", "Philox", "SFC64")


def read_generator(generator: Generator) -> dict[str, Any]:
    """Return the state of a generator.

    Raises:
        TypeError: If its bit generator is not one of NumPy's, or was seeded by something else than
            a seed sequence.
    """
    bits = generator.bit_generator
    if type(bits).__module__.partition(".")[0] != "numpy" or type(bits).__name__ not in _KINDS:
        raise TypeError(
            f"a generator over {type(bits).__name__}, expected one of {', '.join(_KINDS)}"
        )
    return {"state": _native(bits.state), "seeds": _read_seeds(bits)}


def generator_from(state: Mapping[str, Any]) -> Generator:
    """Return a new generator in the state that `read_generator` returned.

    Raises:
        KeyError, TypeError, ValueError: If it is not such a state.
    """
    kind = state["state"]["bit_generator"]
    if kind not in _KINDS:
        raise ValueError(f"bit generator {kind!r}, expected one of {', '.join(_KINDS)}")
    seeds = state["seeds"]
    bits: BitGenerator = getattr(np.random, kind)(SeedSequence(**seeds))
    bits.state = state["state"]
    return Generator(bits)


def read_legacy_generator(generator: RandomState) -> dict[str, Any]:
    """Return the state of a generator of NumPy's older kind."""
    return {"state": _native(generator.get_state(legacy=False))}


def legacy_generator_from(state: Mapping[str, Any]) -> RandomState:
    """Return a new generator in the state that `read_legacy_generator` returned."""
    generator = RandomState(0)
    generator.set_state(state["state"])
    return generator


def read_python_generator(generator: random.Random) -> dict[str, Any]:
    """Return the state of one of Python's generators."""
    return {"state": generator.getstate()}


def python_generator_from(state: Mapping[str, Any]) -> random.Random:
    """Return a new generator in the state that `read_python_generator` returned."""
    generator = random.Random(0)
    generator.setstate(state["state"])
    return generator


def _read_seeds(bits: BitGenerator) -> dict[str, Any]:
    seeds = bits.seed_seq
    if type(seeds) is not SeedSequence:
        raise TypeError(f"a generator seeded by a {type(seeds).__name__}, expected SeedSequence")
    return {
        "entropy": _native(seeds.entropy),
        "spawn_key": tuple(seeds.spawn_key),
        "pool_size": seeds.pool_size,
        "n_children_spawned": seeds.n_children_spawned,
    }


def _native(value: Any) -> Any:  # noqa: ANN401 - states are nested maps of numbers and arrays
    """Return a state with dicts in place of other maps."""
    if isinstance(value, Mapping):
        return {key: _native(item) for key, item in value.items()}
    return value
