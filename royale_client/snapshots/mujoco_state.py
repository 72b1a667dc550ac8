"""The physics of a MuJoCo simulation as arrays: what decides the next step, and what was derived.

The first is MuJoCo's own integration state, warm start included. The second are all arrays of
``mjData`` whose size is fixed by the model: environments read them before or after a step (Ant
subtracts body positions that are one step old). Contacts and constraints are made anew by every
step and are left out.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any

import mujoco
import numpy as np
import numpy.typing as npt

from royale_client.driver import SnapshotError

_INTEGRATION = int(mujoco.mjtState.mjSTATE_INTEGRATION)


class Physics:
    """One simulation, ready to be read often.

    Args:
        model: Its model.
        data: Its data; the object must stay the same.
    """

    def __init__(self, model: mujoco.MjModel, data: mujoco.MjData) -> None:
        self._model = model
        self._data = data
        views = [getattr(data, name) for name in _fixed_names()]
        kinds = sorted({view.dtype for view in views}, key=str)
        # Put together by type: some hundred small arrays would cost more than their bytes.
        self._views = {str(kind): [v for v in views if v.dtype == kind] for kind in kinds}
        self._sizes = np.array([view.size for view in views], np.int64)

    def obstacle(self) -> str | None:
        """Say what of the simulation cannot be read, or None."""
        if self._model.nplugin:
            return "its model uses plugins, which may remember what no array shows"
        return None

    def read(self) -> dict[str, Any]:
        """Return the physics as new arrays."""
        return {
            "integration": self._integration(),
            "derived": {
                kind: np.concatenate([view.reshape(-1) for view in views])
                for kind, views in self._views.items()
            },
            "flags": {name: bool(getattr(self._data, name)) for name in _flag_names()},
            "sizes": self._sizes,
        }

    def check(self, saved: Mapping[str, Any]) -> None:
        """Refuse the physics of another model; changes nothing.

        Raises:
            SnapshotError: If a number of elements differs.
        """
        mine = self.read()
        if not np.array_equal(saved["sizes"], self._sizes) or _form(saved) != _form(mine):
            raise SnapshotError(
                "the snapshot is of another MuJoCo model: got arrays of "
                f"{np.sum(saved['sizes'])} elements, expected {np.sum(self._sizes)} and the same "
                "ones"
            )

    def write(self, saved: Mapping[str, Any]) -> None:
        """Put the simulation where `read` found one of the same model."""
        mujoco.mj_setState(self._model, self._data, saved["integration"], _INTEGRATION)
        for kind, views in self._views.items():
            _scatter(saved["derived"][kind], views)
        for name, flag in saved["flags"].items():
            setattr(self._data, name, flag)

    def _integration(self) -> npt.NDArray[np.float64]:
        state = np.empty(mujoco.mj_stateSize(self._model, _INTEGRATION))
        mujoco.mj_getState(self._model, self._data, state, _INTEGRATION)
        return state


def _scatter(flat: npt.NDArray[Any], views: list[npt.NDArray[Any]]) -> None:
    """Write the elements of one array into many, in their order."""
    start = 0
    for view in views:
        view[...] = flat[start : start + view.size].reshape(view.shape)
        start += view.size


def _form(state: Mapping[str, Any]) -> object:
    derived = {kind: (array.shape, array.dtype) for kind, array in state["derived"].items()}
    integration = state["integration"]
    return integration.shape, integration.dtype, derived, list(state["flags"])


@cache
def _flag_names() -> tuple[str, ...]:
    """Return the names of the flags that say which derived arrays are up to date."""
    return tuple(name for name in dir(mujoco.MjData) if name.startswith("flg_"))


@cache
def _fixed_names() -> tuple[str, ...]:
    """Return the names of ``mjData``'s arrays of fixed size.

    Source: mjdata.h, as MuJoCo's own description of it has it. They lie behind the pointers to the
    two blocks of memory and before the first array that is made anew by every step.
    """
    from mujoco.introspect.structs import STRUCTS

    names = [field.name for field in STRUCTS["mjData"].fields]
    fixed = names[names.index("arena") + 1 : names.index("contact")]
    return tuple(
        name
        for name in fixed
        if name not in ("plugin", "plugin_data") and hasattr(mujoco.MjData, name)
    )
