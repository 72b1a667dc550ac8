"""The one table of everything that is measured: contenders, claims, bars and aims.

A bar is what a release must reach, an aim what is wished for.
"""

from __future__ import annotations

from typing import Any

from royale_server.bench import yardstick
from royale_server.bench.crowd import Crowd
from royale_server.bench.long_run import LongRun
from royale_server.bench.plan import Bench, Claim, Contender
from royale_server.bench.product import Product
from royale_server.bench.yardsticks import Yardstick

OURS = "royale"
RATE = "collect_per_s"
WHOLE = "frames_per_s"
CPU = "server_cpu_us_per_frame"
SHOWN = (RATE, WHOLE, "rows_per_batch", "infer_share_of_collecting", "server_cpu_share")

IMAGE = (84, 84, 4)
VECTOR = 8
"""Numbers beside the image of ``dummy-v1``."""
IMAGE_LEAVES = (("|u1", IMAGE), ("<f4", (VECTOR,)))
CARTPOLE_LEAVES = (("<f4", (4,)),)
ARENA_LEAVES = (("|u1", (18, 20, 12)), ("<f4", (96,)))
"""Planes and a vector of one seat of a battle."""
ARENA_MASK = 961
ARENA_ROWS = 128
"""Two seats of 64 battles."""
DYNAMIC = ("--dispatch", "dynamic")
NO_MODEL = ("dummy-policy", "default", "dummy", "default")


# --- contenders -------------------------------------------------------------------------------


def _product(
    clients: int,
    envs: int,
    *flags: str,
    learns: bool,
    vectorization: str = "sync",
    procs: int = 1,
) -> Product:
    return Product(
        name=" ".join([OURS, *flags]),
        clients=clients,
        envs=envs,
        procs=procs,
        flags=(*yardstick.server_flags(clients * procs * envs, learns=learns), *flags),
        client=("gym", "--env-id", yardstick.ENV_ID, "--vectorization", vectorization),
    )


def _inline(envs: int, *, learns: bool) -> Product:
    flags = yardstick.server_flags(envs, learns=learns)
    return Product(name="--inline", clients=0, envs=envs, flags=flags)


def _plain(envs: int, vectorization: str = "sync") -> Yardstick:
    options = {"num_envs": envs, "steps": yardstick.STEPS, "vectorization": vectorization}
    return Yardstick(name="plain loop", task="plain_loop", options=options)


def _lean(envs: int) -> Yardstick:
    options = {"num_envs": envs, "vectorization": "sync"}
    return Yardstick(name="lean PPO", task="lean_ppo", options=options)


def _peer(name: str, task: str, envs: int) -> Yardstick:
    return Yardstick(name=name, task=task, options={"num_envs": envs}, peer=task)


def _per_connection(connections: int) -> Yardstick:
    return Yardstick(
        name="one environment per connection",
        task="per_connection",
        options={"connections": connections, "processes": 2},
    )


def _without_model(
    clients: int,
    envs: int,
    *client: str,
    steps: int,
    name: str = OURS,
    infer_s: float = 0.0,
    frame_bytes: int = 0,
) -> Product:
    """The product with a policy and environments that cost next to nothing, or a known time."""
    flags = ("--algo.frames-per-iteration", str(steps * clients * envs))
    return Product(
        name=name,
        clients=clients,
        envs=envs,
        pair=NO_MODEL,
        client=("dummy-v1", *client),
        flags=(*flags, "--algo.infer-s", str(infer_s)),
        frame_bytes=frame_bytes,
    )


# --- benches ----------------------------------------------------------------------------------


def _rollout(
    envs: int, *, bar: float, aim: float, vectorization: str = "sync", inline: bool = True
) -> Bench:
    """Two clients of so many environments each against one process with so many."""
    dynamic = _product(2, envs, *DYNAMIC, learns=False, vectorization=vectorization)
    contenders: list[Contender] = [
        _product(2, envs, learns=False, vectorization=vectorization),
        _plain(envs, vectorization),
        dynamic,
    ]
    claims = [
        Claim(of=OURS, over="plain loop", figure=RATE, bar=bar, aim=aim),
        Claim(of=dynamic.name, over="plain loop", figure=RATE),
    ]
    if inline:
        contenders.append(_inline(envs, learns=False))
        claims.append(Claim(of=OURS, over="--inline", figure=RATE))
    return Bench(
        name=f"rollout-{envs}" if vectorization == "sync" else f"rollout-{envs}-vector",
        title=f"collecting, 2 clients × {envs} against {envs} in one process, frames/s",
        contenders=tuple(contenders),
        claims=tuple(claims),
        shown=SHOWN,
    )


def _against_per_connection(
    name: str, product: Product, connections: int, *, bar: float, aim: float
) -> Bench:
    model = _per_connection(connections)
    return Bench(
        name=name,
        title=f"collecting from {connections} environments, against a connection for each, "
        "a barrier, and feedback in its own message; frames/s",
        contenders=(product, model),
        claims=(Claim(of=OURS, over=model.name, figure=RATE, bar=bar, aim=aim),),
        shown=SHOWN,
    )


def _whole(envs: int, claims: tuple[Claim, ...], *more: Contender) -> Bench:
    """Two clients of so many environments each against one process with as many in all."""
    return Bench(
        name=f"ppo-{2 * envs}",
        title=f"PPO, learning included, 2 clients × {envs} against {2 * envs} in one process, "
        "frames/s",
        contenders=(
            _product(2, envs, learns=True),
            _lean(2 * envs),
            _inline(2 * envs, learns=True),
            _peer("SB3", "sb3", 2 * envs),
            *more,
        ),
        claims=(*claims, Claim(of=OURS, over="--inline", figure=WHOLE)),
        shown=(*SHOWN, "learn_share", "server_pss_mib", "pss_mib"),
    )


def _groups() -> Bench:
    """16 environments of 10 ms in one process; half of them take half as long."""

    def slow(name: str, *client: str) -> Product:
        return _without_model(1, 16, *client, steps=32, name=name, infer_s=0.004)

    lock_step = slow("one group", "--step-ms", "10")
    two = slow("two groups", "--step-ms", "5", "--groups", "2")
    return Bench(
        name="groups",
        title="one client, 16 slots, an environment of 10 ms, a policy of 4 ms, frames/s",
        contenders=(two, lock_step),
        claims=(Claim(of=two.name, over=lock_step.name, figure=RATE, bar=1.4, aim=1.5),),
        shown=(RATE, WHOLE, "rows_per_batch"),
    )


def _images() -> Bench:
    frame_bytes = IMAGE[0] * IMAGE[1] * IMAGE[2] + 4 * VECTOR
    size = tuple(map(str, IMAGE))
    royale = _without_model(2, 16, "--image", *size, steps=32, frame_bytes=frame_bytes)
    raw = Yardstick(
        name="raw exchange",
        task="exchange",
        options={"clients": 2, "rows": 16, "leaves": IMAGE_LEAVES},
    )
    return Bench(
        name="images",
        title="uint8 84 × 84 × 4, 2 clients × 16, an environment and a policy that do nothing",
        contenders=(royale, raw),
        claims=(
            Claim(of=OURS, figure="gb_per_s", unit="GB/s", bar=0.6, aim=1.0),
            Claim(of=OURS, over=raw.name, figure="gb_per_s", bar=0.7),
        ),
        shown=("gb_per_s", RATE, "round_trips_per_s", "server_cpu_share"),
    )


def _transport() -> Bench:
    royale = _without_model(2, 64, "--obs-dim", "4", steps=yardstick.STEPS)
    raw = Yardstick(
        name="raw exchange",
        task="exchange",
        options={"clients": 2, "rows": 64, "leaves": CARTPOLE_LEAVES},
    )
    return Bench(
        name="transport",
        title="2 clients × 64 small observations, an environment and a policy that do nothing",
        contenders=(royale, raw),
        claims=(Claim(of=OURS, over=raw.name, figure=RATE),),
        shown=(RATE, "round_trips_per_s", "rows_per_batch", "server_cpu_share", CPU),
    )


def _codec(name: str, what: str, rows: int, leaves: tuple[Any, ...]) -> Bench:
    codec = Yardstick(name="codec", task="codec", options={"rows": rows, "leaves": leaves})
    figures = ("encode_us", "decode_us", "join_and_view_us", "memory_copy_us")
    return Bench(
        name=name,
        title=f"one step message of {what}, microseconds",
        contenders=(codec,),
        claims=tuple(
            Claim(
                of="codec",
                over="codec",
                figure=figure,
                over_figure="memory_copy_us",
                title=f"{figure.removesuffix('_us')} : memory copy of the same tensors",
            )
            for figure in figures[:3]
        ),
        shown=(*figures, "message_bytes"),
    )


def _scheduler() -> Bench:
    one, many = (
        Yardstick(
            name=f"{clients} client{'s' * (clients > 1)}",
            task="scheduler_core",
            options={"clients": clients, "slots": 16},
        )
        for clients in (1, 512)
    )
    figure = "us_per_request"
    limit: dict[str, Any] = {"figure": figure, "unit": "µs", "bar": 15, "aim": 8, "at_most": True}
    return Bench(
        name="scheduler",
        title="the scheduler core, no network, 16 slots a client, microseconds a request",
        contenders=(one, many),
        claims=(
            Claim(of=one.name, **limit),
            Claim(of=many.name, **limit),
            Claim(of=many.name, over=one.name, figure=figure, bar=1.3, at_most=True),
        ),
        shown=(figure,),
    )


def _model() -> Bench:
    model = Yardstick(name="model", task="model", options={"num_envs": 64})

    def claim(ours: str, lean: str, what: str) -> Claim:
        return Claim(of="model", over="model", figure=ours, over_figure=lean, title=what)

    return Bench(
        name="model",
        title="inference of 64 rows and a learn step on 64 × 128 frames, without anything else",
        contenders=(model,),
        claims=(
            claim("act_us", "lean_act_us", "inference : lean inference"),
            claim("learn_ms", "lean_learn_ms", "learn step : lean learn step"),
        ),
        shown=("act_us", "lean_act_us", "learn_ms", "lean_learn_ms"),
    )


def _long() -> Bench:
    flags = yardstick.server_flags(8, learns=False)
    few = ("--algo.frames-per-iteration", "64", "--algo.num-minibatches", "1")
    run = LongRun(
        name=OURS,
        clients=2,
        envs=4,
        flags=(*_without(flags, few), *few, "--track.enabled"),
        iterations=1000,
    )
    return Bench(
        name="long",
        title="1,000 iterations of 64 frames, with records, checkpoints and a tracker",
        contenders=(run,),
        claims=(
            Claim(
                of=OURS,
                figure="last_to_first",
                title="time per iteration, last 100 : first 100 after warm-up",
                bar=1.05,
                aim=1.02,
                at_most=True,
            ),
            Claim(
                of=OURS,
                figure="mib_per_100",
                title="growth of resident memory in 100 iterations",
                unit="MiB",
                bar=1.0,
                at_most=True,
            ),
        ),
        shown=("first_ms", "last_ms", "median_ms", "mib_per_100", "resident_mib"),
    )


def _crowd(name: str, title: str, sizes: tuple[tuple[int, int], ...]) -> Bench:
    """Clients and slots of each; the last is compared with the first."""
    crowds = [
        Crowd(
            name=f"{clients} × {slots}",
            clients=clients,
            envs=slots,
            pair=NO_MODEL,
            flags=("--algo.frames-per-iteration", str(max(2048, 8 * clients * slots))),
        )
        for clients, slots in sizes
    ]
    first, last = crowds[0].name, crowds[-1].name
    claims = [Claim(of=last, figure="all_answered_s", unit="s", title="until all had an answer")]
    if first != last:
        versus = f"{last} : {first}"
        time, memory = f"processor time a frame, {versus}", f"memory, {versus}"
        claims.append(Claim(of=last, over=first, figure=CPU, title=time, bar=1.1, at_most=True))
        claims.append(Claim(of=last, over=first, figure="server_pss_mib", title=memory))
    return Bench(
        name=name,
        title=title,
        contenders=tuple(crowds),
        claims=tuple(claims),
        shown=(CPU, RATE, "server_pss_mib", "all_answered_s"),
    )


def _arena() -> Bench:
    arena = Yardstick(
        name="arena",
        task="arena",
        options={"rows": ARENA_ROWS, "leaves": ARENA_LEAVES, "mask_size": ARENA_MASK},
    )
    return Bench(
        name="arena",
        title="requests of 64 battles: uint8 planes, a vector, masks of 961; bytes a decision",
        contenders=(arena,),
        claims=(
            Claim(
                of="arena",
                over="arena",
                figure="wire_bytes",
                over_figure="tensor_bytes",
                title="on the wire : packed tensors",
                bar=1.05,
                at_most=True,
            ),
        ),
        shown=("wire_bytes", "tensor_bytes", "wire_and_answer_bytes"),
    )


def _without(flags: tuple[str, ...], replaced: tuple[str, ...]) -> tuple[str, ...]:
    """Leave out the flags, each with its value, that are given anew."""
    pairs = zip(flags[::2], flags[1::2], strict=True)
    return tuple(word for pair in pairs if pair[0] not in replaced[::2] for word in pair)


SB3_MEMORY = Claim(
    of=OURS,
    over="SB3",
    figure="server_pss_mib",
    over_figure="pss_mib",
    title="memory of the server : of SB3's process",
    bar=1.3,
    aim=1.1,
    at_most=True,
)

BENCHES: tuple[Bench, ...] = (
    _rollout(64, bar=0.85, aim=1.1),
    _rollout(16, bar=0.75, aim=0.95),
    _rollout(256, bar=0.7, aim=0.9, vectorization="vector_entry_point", inline=False),
    _against_per_connection(
        "per-connection-32", _product(2, 16, learns=False), 32, bar=5.0, aim=6.5
    ),
    _against_per_connection(
        "per-connection-128", _product(2, 64, learns=False), 128, bar=10.0, aim=13.0
    ),
    _against_per_connection(
        "single-environments", _product(1, 1, learns=False, procs=32), 32, bar=1.4, aim=1.7
    ),
    _whole(
        32,
        (
            Claim(of=OURS, over="SB3", figure=WHOLE, bar=1.0, aim=1.2),
            Claim(of=OURS, over="RLlib", figure=WHOLE, bar=2.5, aim=3.4),
            Claim(of=OURS, over="lean PPO", figure=WHOLE, bar=0.8, aim=0.95),
            SB3_MEMORY,
        ),
        _peer("RLlib", "rllib", 64),
    ),
    _whole(
        8,
        (
            Claim(of=OURS, over="SB3", figure=WHOLE, bar=0.85, aim=1.0),
            Claim(of=OURS, over="lean PPO", figure=WHOLE),
        ),
    ),
    _groups(),
    _images(),
    _transport(),
    _codec("codec", "64 rows of 4 numbers", 64, CARTPOLE_LEAVES),
    _codec("codec-images", "16 images of 84 × 84 × 4", 16, IMAGE_LEAVES),
    _scheduler(),
    _model(),
    _crowd("clients", "1, 32 and 512 clients of one slot", ((1, 1), (32, 1), (512, 1))),
    _crowd("slots", "8 clients of 8 to 1,024 slots", ((8, 8), (8, 128), (8, 1024))),
    _crowd("start-100", "100 clients come at once", ((100, 1),)),
    _long(),
    _arena(),
)


def by_name() -> dict[str, Bench]:
    """The benches by name, in the order of the table."""
    return {bench.name: bench for bench in BENCHES}
