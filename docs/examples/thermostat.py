"""A program that owns its loop: it asks for an action when it needs one. Uses no Gymnasium."""

import logging
import sys

import numpy as np

from royale_client import PolicyClient, ServerStoppedError
from royale_client.wire.spaces import BoxSpec, DiscreteSpec

OFF, HEATING = 0, 1
STEPS_OF_A_DAY = 48


class Room:
    """Stands for whatever the program really controls."""

    def __init__(self) -> None:
        self.degrees = 15.0

    def apply(self, action: int) -> None:
        """Let half an hour pass."""
        self.degrees += 0.1 * (10.0 - self.degrees) + (1.5 if action == HEATING else 0.0)

    def measure(self) -> np.ndarray:
        """Return the distance from the wanted temperature."""
        return np.array([self.degrees - 20.0], np.float32)


def main(url: str) -> None:
    """Control the room until the server ends the run."""
    with PolicyClient(
        url,
        observation_space=BoxSpec(-50.0, 50.0, (1,), "float32"),
        action_space=DiscreteSpec(2),
        env_id="thermostat",
        env_digest="1",
        client_name="living-room",
    ) as policy:
        while True:
            room = Room()
            for step in range(1, STEPS_OF_A_DAY + 1):
                action = policy.act(room.measure())
                room.apply(int(action))
                distance = room.measure()
                policy.observe(
                    reward=-abs(float(distance[0])),
                    terminated=False,
                    truncated=step == STEPS_OF_A_DAY,
                    observation=distance,
                )


if __name__ == "__main__":
    logging.basicConfig(level="INFO", format="%(message)s")
    try:
        main(sys.argv[1] if len(sys.argv) > 1 else "ws://127.0.0.1:8000")
    except ServerStoppedError as stopped:
        logging.getLogger("thermostat").info("%s", stopped)
