"""What can be said of the machine while the command itself is wrong: the same checks, no torch.

So that somebody with three mistakes is told of three. Reads only.
"""

from __future__ import annotations

from royale_client.wire.errors import RoyaleError
from royale_server.cli_flags import Settings
from royale_server.config import Pair
from royale_server.preflight import machine
from royale_server.preflight.check import judge
from royale_server.preflight.facts import StartFacts
from royale_server.preflight.finding import Finding, failures
from royale_server.preflight.start_checks import DIRECTORY, LIVE_RUN, START_CHECKS
from royale_server.run.lock import RunInUseError
from royale_server.run.prepare import plan


def early_failures(values: Settings, pair: Pair) -> tuple[Finding, ...]:
    """Return what else would refuse a start with these settings.

    Args:
        values: Settings of the server; need not have passed their own checks.
        pair: What is trained by what.
    """
    refusals: dict[str, tuple[str, ...]] = {}
    try:
        plan(
            values.checkpoint_base_dir,
            algorithm=pair.algo,
            policy=pair.policy,
            name=values.exp_name,
            seed=values.seed,
            # Both at once is told as a problem of the command.
            resume=values.resume and not values.overwrite,
            overwrite=values.overwrite and not values.resume,
        )
    except RunInUseError as error:
        refusals[LIVE_RUN] = (str(error),)
    except (RoyaleError, OSError) as error:
        refusals[DIRECTORY] = (str(error),)
    opens_port = values.tcp and values.inline is None and 0 <= values.port < 2**16
    facts = StartFacts(
        refusals=refusals,
        address=(values.host, values.port) if opens_port else None,
        address_error=machine.address_error(values.host, values.port) if opens_port else None,
    )
    return failures(judge(START_CHECKS, facts))
