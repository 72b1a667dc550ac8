"""What the second phase judges, without a client: the model built for spaces known already.

Those of the environment of ``--inline``, or of the checkpoint that is resumed. Builds in this
process and throws away; writes nothing.
"""

from __future__ import annotations

from functools import partial

from algorithms.spaces import Spaces
from royale_client.wire.errors import RoyaleError
from royale_server.config import ServerConfig
from royale_server.endpoint.probing import ProbeReport
from royale_server.model.build import Saved, build
from royale_server.preflight.examine import Examination
from royale_server.preflight.facts import ClientFacts
from royale_server.preflight.finding import Finding, refusal
from royale_server.preflight.gate import client_facts
from royale_server.saved_run import SavedRun, from_contents


def rehearsed_facts(config: ServerConfig, examined: Examination) -> ClientFacts | Finding | None:
    """Build what the run would build, and gather the facts of the second phase.

    Args:
        config: Settings of the server.
        examined: What was found before; nothing of it refuses the run.

    Returns:
        The facts; a finding if the model or the environment cannot be built; None if nobody knows
        the spaces before a client comes.
    """
    assert examined.prepared is not None, "nothing was refused"
    resumed = examined.prepared.resumed
    saved = None if resumed is None else from_contents(resumed)
    try:
        report = None if config.inline is None else _visit(config)
        spaces = _spaces(report, saved)
        if spaces is None:
            return None
        return _facts(config, examined, spaces, saved, report)
    except RoyaleError as error:
        return refusal("spaces", error)


def _visit(config: ServerConfig) -> ProbeReport:
    from royale_server.inline import visit

    return visit(config)


def _spaces(report: ProbeReport | None, saved: SavedRun | None) -> Spaces | None:
    if saved is not None:
        return saved.spaces
    if report is None:
        return None
    hello = report.hello
    return Spaces(observation=hello.observation_space, action=hello.action_space, masks=hello.masks)


def _facts(
    config: ServerConfig,
    examined: Examination,
    spaces: Spaces,
    saved: SavedRun | None,
    report: ProbeReport | None,
) -> ClientFacts:
    assert examined.components is not None, "nothing was refused"
    assert examined.prepared is not None, "nothing was refused"
    make = partial(build, config, examined.components, spaces)
    built = make(
        resumed=None
        if saved is None
        else Saved(saved.learner, saved.frames, saved.generators, saved.opponents),
        warm_start=examined.warm_start,
    )
    directory = examined.prepared.plan.layout.directory
    hello = None if report is None else report.hello
    return client_facts(config, directory, built.facts, hello, report)
