"""The second phase within a run: joins what model and environment have shown, and judges it."""

from __future__ import annotations

from pathlib import Path

from royale_client.wire.messages import Hello
from royale_client.wire.probes import PROBE
from royale_server.config import ServerConfig
from royale_server.endpoint.probing import ProbeReport
from royale_server.monitoring.console import Console
from royale_server.preflight import machine
from royale_server.preflight.check import judge
from royale_server.preflight.client_checks import CLIENT_CHECKS
from royale_server.preflight.facts import (
    ClientFacts,
    EnvironmentFacts,
    MinibatchSetting,
    ModelFacts,
)
from royale_server.preflight.finding import PreflightError, failures
from royale_server.preflight.start_block import start_block


class ClientGate:
    """Lets a run begin, or refuses it.

    Args:
        config: Settings of the server.
        directory: Of the run.
        run_id: Its identity.
        console: Where a person watches.
    """

    def __init__(
        self, config: ServerConfig, *, directory: Path, run_id: str, console: Console
    ) -> None:
        self._config = config
        self._directory = directory
        self._run_id = run_id
        self._console = console

    def check(self, model: ModelFacts, hello: Hello | None, report: ProbeReport | None) -> None:
        """Judge a run that is about to begin.

        Args:
            model: What was measured of it.
            hello: Of the first client; None where the run is resumed and nobody has come.
            report: What that client has answered; None if nothing was asked.

        Raises:
            PreflightError: If a check refuses the run; names all that do.
        """
        facts = client_facts(self._config, self._directory, model, hello, report)
        findings = judge(CLIENT_CHECKS, facts)
        if failures(findings):
            raise PreflightError(findings)
        self._console.checked(findings)
        self._console.start_block(start_block(facts, self._config.algo, self._run_id))

    def check_late(self, model: ModelFacts, report: ProbeReport) -> None:
        """Judge an environment that comes to a run that goes on.

        Raises:
            PreflightError: If a check refuses it.
        """
        facts = client_facts(self._config, self._directory, model, report.hello, report)
        findings = judge(CLIENT_CHECKS, facts, structure_only=True)
        if failures(findings):
            raise PreflightError(findings)


def client_facts(
    config: ServerConfig,
    directory: Path,
    model: ModelFacts | None,
    hello: Hello | None,
    report: ProbeReport | None,
) -> ClientFacts:
    """Put everything together that the checks of the second phase judge."""
    return ClientFacts(
        model=model,
        environment=None if hello is None else _environment(hello, report),
        num_clients=config.min_clients,
        ram_budget_mb=config.doctor.ram_budget_mb,
        vram_headroom_mb=config.doctor.vram_headroom_mb,
        disk_folder=config.checkpoint_base_dir,
        disk_free_bytes=machine.free_disk_bytes(directory),
        minibatch=_minibatch(config),
    )


def _environment(hello: Hello, report: ProbeReport | None) -> EnvironmentFacts:
    return EnvironmentFacts(
        client=hello.client_name,
        env_id=hello.env_id,
        env_digest=hello.env_digest,
        num_slots=hello.num_slots,
        has_masks=hello.masks,
        answers_probes=PROBE in hello.features,
        answers={} if report is None else report.answers,
        failures={} if report is None else report.failures,
    )


def _minibatch(config: ServerConfig) -> MinibatchSetting | None:
    """How the algorithm sets the size of its pieces; None for one that has no such setting."""
    size = getattr(config.algo, "frames_per_minibatch", None)
    if size is None:
        return None
    frames = config.algo.frames_per_iteration
    batch = getattr(config.algo, "batch_size", None)
    pieces = min(int(size(frames)), frames)
    return MinibatchSetting(size=pieces, batch=batch or pieces, is_only_memory=batch is not None)
