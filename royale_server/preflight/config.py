"""Settings of the preflight. None of them switches a check off. Imports no torch."""

from __future__ import annotations

from dataclasses import dataclass

from royale_client.wire.errors import ConfigError


@dataclass(frozen=True, slots=True, kw_only=True)
class DoctorConfig:
    """What the preflight judges by."""

    ram_budget_mb: int | None = 6500
    """Memory that the server may take on its machine, in MB of 2**20 bytes. A run that would take
    more is refused; one that would take more than is free now is only told so. When absent, that
    nobody has set it is told at every start."""
    vram_headroom_mb: int = 256
    """GPU memory that has to stay free beside a gradient step, in MB. 0 leaves the comparison with
    what the driver reports free out."""
    shared_device: bool = False
    """Others may use the GPU as well. Their processes are then told in place of refused."""

    def __post_init__(self) -> None:
        problems = []
        if self.ram_budget_mb is not None and self.ram_budget_mb < 1:
            problems.append(f"ram_budget_mb: got {self.ram_budget_mb}, expected at least 1 or none")
        if self.vram_headroom_mb < 0:
            problems.append(f"vram_headroom_mb: got {self.vram_headroom_mb}, expected at least 0")
        if problems:
            raise ConfigError("\n".join(problems))
