"""The one table of everything that is measured: contenders, claims, bars and aims.

A bar is what a release must reach, an aim what is wished for.
"""

from __future__ import annotations

from royale_server.bench import yardstick
from royale_server.bench.plan import Bench, Claim, Contender
from royale_server.bench.product import Product
from royale_server.bench.yardsticks import Yardstick

RATE = "collect_per_s"
WHOLE = "frames_per_s"
SHOWN = (RATE, WHOLE, "rows_per_batch", "infer_share_of_collecting", "server_cpu_share")


def _product(clients: int, envs: int, vectorization: str, *, learns: bool) -> Product:
    return Product(
        name="royale",
        clients=clients,
        envs=envs,
        flags=yardstick.server_flags(clients * envs, learns=learns),
        client=("gym", "--env-id", yardstick.ENV_ID, "--vectorization", vectorization),
    )


def _inline(envs: int, *, learns: bool) -> Product:
    return Product(
        name="--inline",
        clients=0,
        envs=envs,
        flags=yardstick.server_flags(envs, learns=learns),
    )


def _plain(envs: int, vectorization: str) -> Yardstick:
    options = {"num_envs": envs, "steps": yardstick.STEPS, "vectorization": vectorization}
    return Yardstick(name="plain loop", task="plain_loop", options=options)


def _rollout(
    envs: int, *, bar: float, aim: float, vectorization: str = "sync", inline: bool = True
) -> Bench:
    """Two clients of so many environments each against one process with so many."""
    contenders: list[Contender] = [_product(2, envs, vectorization, learns=False)]
    contenders.append(_plain(envs, vectorization))
    claims = [Claim(of="royale", over="plain loop", figure=RATE, bar=bar, aim=aim)]
    if inline:
        contenders.append(_inline(envs, learns=False))
        claims.append(Claim(of="royale", over="--inline", figure=RATE))
    return Bench(
        name=f"rollout-{envs}" if vectorization == "sync" else f"rollout-{envs}-vector",
        title=f"collecting, 2 clients × {envs} against {envs} in one process, frames/s",
        contenders=tuple(contenders),
        claims=tuple(claims),
        shown=SHOWN,
    )


BENCHES: tuple[Bench, ...] = (
    _rollout(64, bar=0.85, aim=1.1),
    _rollout(16, bar=0.75, aim=0.95),
    _rollout(256, bar=0.7, aim=0.9, vectorization="vector_entry_point", inline=False),
)


def by_name() -> dict[str, Bench]:
    """The benches by name, in the order of the table."""
    return {bench.name: bench for bench in BENCHES}
