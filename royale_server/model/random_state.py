"""The global random generators of the process, as plain data and back.

What the product draws is keyed and needs none of them; a plug-in may.
"""

from __future__ import annotations

import base64
import random
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch


def capture() -> dict[str, Any]:
    """Copy the states of Python's, NumPy's and torch's generators, those of GPUs included."""
    version, words, gauss = random.getstate()
    kind, keys, position, has_gauss, cached = np.random.get_state(legacy=True)
    return {
        "python": {"version": version, "words": list(words), "gauss": gauss},
        "numpy": {
            "kind": kind,
            "keys": np.asarray(keys).tolist(),
            "position": int(position),
            "has_gauss": int(has_gauss),
            "cached": float(cached),
        },
        "torch": _to_text(torch.get_rng_state()),
        "cuda": [_to_text(state) for state in _cuda_states()],
    }


def restore(states: Mapping[str, Any]) -> None:
    """Set the generators to what `capture` returned. GPUs that are not there are left out."""
    python, numpy = states["python"], states["numpy"]
    random.setstate((python["version"], tuple(python["words"]), python["gauss"]))
    keys = np.array(numpy["keys"], np.uint32)
    np.random.set_state(
        (numpy["kind"], keys, numpy["position"], numpy["has_gauss"], numpy["cached"])
    )
    torch.set_rng_state(_from_text(states["torch"]))
    for device, state in enumerate(states["cuda"][: torch.cuda.device_count()]):
        torch.cuda.set_rng_state(_from_text(state), device)


def _cuda_states() -> list[torch.Tensor]:
    """States of the GPUs in use; asking an unused one would start it."""
    in_use = torch.cuda.is_initialized()  # type: ignore[no-untyped-call]
    return torch.cuda.get_rng_state_all() if in_use else []


def _to_text(state: torch.Tensor) -> str:
    return base64.b64encode(state.numpy().tobytes()).decode("ascii")


def _from_text(text: str) -> torch.Tensor:
    return torch.frombuffer(bytearray(base64.b64decode(text)), dtype=torch.uint8)
