"""Have a driver answer what the server asks about its environments.

Whatever a driver raises becomes a sentence for the server, whose preflight then refuses the run: it
is better told than guessed. Sends nothing.
"""

from __future__ import annotations

from royale_client.driver import EnvDriver, ProbedDriver
from royale_client.wire.errors import RoyaleError
from royale_client.wire.probes import ProbeAnswer


class ProbingFailedError(RoyaleError):
    """A driver has no answer; the text is a sentence for the server."""


def ask(driver: EnvDriver, question: str) -> ProbeAnswer:
    """Return what the environments of a driver say.

    Args:
        driver: Of one group.
        question: One of ``royale_client.wire.probes.QUESTIONS``.

    Raises:
        ProbingFailedError: If it cannot tell.
    """
    if not isinstance(driver, ProbedDriver):
        raise ProbingFailedError("these environments answer no probes")
    try:
        return driver.probe(question)
    # The code is the environment's own and may raise anything.
    except Exception as error:
        text = str(error) if isinstance(error, RoyaleError) else f"{type(error).__name__}: {error}"
        raise ProbingFailedError(text) from error
