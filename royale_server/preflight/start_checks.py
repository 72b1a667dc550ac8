"""The checks before the server listens. Pure: they judge `StartFacts` and touch nothing."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from royale_server.preflight.check import Check, Phase
from royale_server.preflight.facts import MIB, StartFacts
from royale_server.preflight.finding import Finding, Level, refusal

CONFIGURATION, COMPONENTS, DEVICE = "configuration", "components", "device"
DIRECTORY, LIVE_RUN, CHECKPOINT, FINISHED = "directory", "live-run", "checkpoint", "finished"
IDENTITY, WARM_START, OPPONENTS, TRACKER = "identity", "warm-start", "opponents", "tracker"
"""Checks whose refusals come from the parts of the server that know."""

CHECKPOINTS_WANTED = 2
"""Room for so many checkpoints: one is written before the one it replaces goes."""


def _refusals(name: str) -> Callable[[StartFacts], Iterator[Finding]]:
    def judge(facts: StartFacts) -> Iterator[Finding]:
        for text in facts.refusals.get(name, ()):
            yield refusal(name, text)

    return judge


def _port(facts: StartFacts) -> Iterator[Finding]:
    if facts.address is None or facts.address_error is None:
        return
    host, port = facts.address
    yield Finding(
        check="port",
        level=Level.FAIL,
        where=f"--host {host} --port {port}",
        what=f"cannot listen there: {facts.address_error}",
        remedy="stop the other server, or choose another port (0 takes a free one)",
    )


def _disk(facts: StartFacts) -> Iterator[Finding]:
    free, size = facts.disk_free_bytes, facts.checkpoint_bytes
    if free is None:
        yield _unknown("disk", f"free space of {facts.disk_folder}")
    elif size is not None:
        yield from disk_findings("disk", str(facts.disk_folder), free, size)


def disk_findings(check: str, folder: str, free: int, size: int) -> Iterator[Finding]:
    """Refuse a disk without room for two checkpoints.

    Args:
        check: Name of the check.
        folder: Where they are written.
        free: Bytes there.
        size: Bytes of one.
    """
    if free < CHECKPOINTS_WANTED * size:
        yield Finding(
            check=check,
            level=Level.FAIL,
            where=folder,
            what="the disk has no room for two checkpoints",
            got=f"{free / MIB:,.1f} MB free",
            expected=f"at least {CHECKPOINTS_WANTED} x {size / MIB:,.1f} MB",
            remedy="free some space, or choose another --checkpoint-base-dir",
        )


def _code(facts: StartFacts) -> Iterator[Finding]:
    for source in facts.sources:
        if source.problem is not None:
            yield Finding(
                check="code",
                level=Level.WARN,
                where=source.name,
                what=f"changes of the code are not noticed: {source.problem}",
                remedy="install git, or run from a package whose version says what it is",
            )
        elif source.changed_files and not facts.is_resumed:
            more = len(source.changed_files) - 1
            yield Finding(
                check="code",
                level=Level.WARN,
                where=source.name,
                what=f"the code has uncommitted changes, in {source.changed_files[0]} and {more} "
                "more files",
                remedy="commit them; the run keeps them as a patch, and resuming it needs the very "
                "same",
            )


def _files(facts: StartFacts) -> Iterator[Finding]:
    for file in facts.files:
        if file.digest is None:
            yield Finding(
                check="files",
                level=Level.FAIL,
                where=f"{file.flag} {file.path}",
                what="the file cannot be read",
                remedy="check its name and permissions",
            )


def _device_processes(facts: StartFacts) -> Iterator[Finding]:
    if facts.device_processes is None:
        yield _unknown("foreign-process", f"who else uses {facts.device}")
        return
    level = Level.WARN if facts.device_is_shared else Level.FAIL
    for process in facts.device_processes:
        yield Finding(
            check="foreign-process",
            level=level,
            where=facts.device,
            what=f"process {process.pid} ({process.name}) uses the device as well",
            got=f"{process.used_mib:,} MB of its memory",
            expected="a device of its own",
            remedy="let it finish or stop it yourself, choose another --device, or say that the "
            "device is shared (--doctor.shared-device)",
        )


def _unset(facts: StartFacts) -> Iterator[Finding]:
    if facts.ram_budget_mb is None:
        yield Finding(
            check="unset",
            level=Level.WARN,
            where="--doctor.ram-budget-mb",
            what="is unset: whether the run's memory is too much cannot be told",
            remedy="say how many MB the server may use",
        )


def _horizon(facts: StartFacts) -> Iterator[Finding]:
    total, horizon = facts.total_frames, facts.schedule_frames
    if total is not None and horizon is not None and horizon < total:
        yield Finding(
            check="schedules",
            level=Level.WARN,
            where="--until-timesteps",
            what=f"{total:,} frames are beyond the {horizon:,} over which schedules run: they keep "
            "their end values after it, and a learning rate that ends at 0 stays 0",
            remedy="stretch them by --algo.horizon-frames, or without it by --algo.total-timesteps",
        )


def _open_files(facts: StartFacts) -> Iterator[Finding]:
    wanted = facts.max_sessions + 64
    if facts.open_files is not None and facts.open_files < wanted:
        yield Finding(
            check="open-files",
            level=Level.WARN,
            where="--max-sessions",
            what="more clients may connect than this process may have open files",
            got=f"a limit of {facts.open_files:,}",
            expected=f"at least {wanted:,}",
            remedy="raise it (ulimit -n), or lower --max-sessions",
        )


def _unknown(check: str, what: str) -> Finding:
    return Finding(
        check=check,
        level=Level.WARN,
        what=f"{what} cannot be told on this system",
        remedy="look for yourself",
    )


def _check(
    name: str,
    looks_at: str,
    *,
    why: str,
    cure: str,
    refuses: str = "",
    warns: str = "",
    judge: Callable[[StartFacts], Iterable[Finding]] | None = None,
    machine: bool = False,
) -> Check[StartFacts]:
    return Check(
        name=name,
        phase=Phase.START,
        looks_at=looks_at,
        refuses=refuses,
        warns=warns,
        why=why,
        cure=cure,
        judge=judge or _refusals(name),
        needs_machine=machine,
    )


START_CHECKS: tuple[Check[StartFacts], ...] = (
    _check(
        CONFIGURATION,
        "every flag: spelling, type, range, and what it means beside the others",
        refuses="a flag is unknown, out of range, or contradicts another one",
        why="A setting that is misspelt or ignored is found after the hours it was to shape.",
        cure="Correct every flag that is named; all problems are listed at once.",
    ),
    _check(
        COMPONENTS,
        "that policy and algorithm can be imported",
        refuses="a module or name of a plug-in is missing",
        why="A plug-in that fails to import would fail once the first client has come.",
        cure="Install what the message names, or correct --plugin.",
    ),
    _check(
        DEVICE,
        "that torch sees the device",
        refuses="--device names a GPU that is not there",
        why="A run that falls back to the processor in silence takes days instead of hours.",
        cure="Use --device cpu or auto, or install a torch build for the GPU.",
        machine=True,
    ),
    _check(
        DIRECTORY,
        "that the run's directory is free, or is the run to continue or replace",
        refuses="a run of that name exists and neither --resume nor --overwrite is given, or there "
        "is none to resume",
        why="A second run in one directory mixes its rows and checkpoints with those of the first.",
        cure="Add --resume or --overwrite, or choose another --exp-name.",
        machine=True,
    ),
    _check(
        LIVE_RUN,
        "that no other process works on the run",
        refuses="another server holds the run's lock",
        why="Two servers on one run overwrite each other's checkpoints.",
        cure="Let it finish, or stop it yourself with Ctrl-C; nothing is stopped for you.",
        machine=True,
    ),
    _check(
        CHECKPOINT,
        "with --resume: that the newest whole checkpoint can be read and fits",
        refuses="it is damaged, or its tensors are not those of the policy",
        why="Half a state goes on training and is never the run again.",
        cure="Correct what the message names, or take the checkpoint before it.",
        machine=True,
    ),
    _check(
        FINISHED,
        "with --resume: that something is left to do",
        refuses="the run has reached its limit",
        why="A run that goes on beyond its budget is not the experiment it was.",
        cure="Give a new limit with --until-timesteps; the message has the command.",
        machine=True,
    ),
    _check(
        IDENTITY,
        "with --resume: settings, versions, device, code, and digests of the files it names",
        refuses="something that decides what is learned has changed",
        why="Two halves of different experiments make one curve that means nothing.",
        cure="Start it as it was; --allow-identity-drift and --allow-dirty go on, and mark every "
        "later row.",
        machine=True,
    ),
    _check(
        "code",
        "that the code is committed",
        warns="a fresh run starts from uncommitted changes, or git cannot tell",
        why="Nobody can say afterwards which code made a result.",
        cure="Commit; the run keeps the changes as a patch, and resuming refuses any others.",
        judge=_code,
        machine=True,
    ),
    _check(
        "files",
        "files that the settings name, by SHA-256",
        refuses="one cannot be read, or with --resume its content has changed (identity)",
        why="A file that was edited under its name makes another experiment of the same flags.",
        cure="Name the file that was meant; --resume needs the very same content.",
        judge=_files,
        machine=True,
    ),
    _check(
        WARM_START,
        "the checkpoint of --algo.policy-checkpoint-path",
        refuses="it is damaged, or a tensor is missing, unexpected or of another shape",
        why="Weights that are taken over in part train like bad luck.",
        cure="Name a step of a run with the same policy, or another --algo.restore.",
        machine=True,
    ),
    _check(
        OPPONENTS,
        "the checkpoints of --evaluate.against",
        refuses="one is damaged, or a tensor is missing, unexpected or of another shape",
        why="The first round of evaluation would end the run, hours after its start.",
        cure="Name steps of runs with the same policy and the same --policy settings.",
        machine=True,
    ),
    _check(
        TRACKER,
        "that the tracker can be used",
        refuses="its library is missing or it cannot be made",
        why="Curves that were never mirrored are missed when the machine is gone.",
        cure="Install it, or leave out --track.enabled.",
        machine=True,
    ),
    _check(
        "port",
        "that the server can listen where it is told to",
        refuses="the port is taken or the address is not this machine's",
        why="Clients would join the other run behind that port.",
        cure="Stop the other server, or choose another --port.",
        judge=_port,
        machine=True,
    ),
    _check(
        "disk",
        "room for two checkpoints, as soon as the size of one is known",
        refuses="there is less",
        why="A disk that fills up at hour nine keeps the last checkpoint from being written.",
        cure="Free some space, or choose another --checkpoint-base-dir.",
        judge=_disk,
        machine=True,
    ),
    _check(
        "foreign-process",
        "who else uses the GPU",
        refuses="somebody does, and the settings do not say that it is shared",
        warns="nobody can tell, or the device is said to be shared",
        why="Two runs on one GPU take turns in its memory: both several times slower, no error.",
        cure="Stop the other process yourself, choose another --device, or say "
        "--doctor.shared-device.",
        judge=_device_processes,
        machine=True,
    ),
    _check(
        "unset",
        "values whose absence makes another check blind",
        warns="one is not set",
        why="A check that judges its own default says OK about nothing.",
        cure="Set the value.",
        judge=_unset,
    ),
    _check(
        "schedules",
        "that schedules end where the run does",
        warns="the run is longer than its schedules",
        why="A learning rate that reached 0 trains nothing for the rest of the run.",
        cure="Raise --algo.total-timesteps, or lower --until-timesteps.",
        judge=_horizon,
    ),
    _check(
        "open-files",
        "the limit of open files",
        warns="it is below what --max-sessions needs",
        why="The client that is one too many is refused by the system, without a reason.",
        cure="Raise the limit with ulimit -n, or lower --max-sessions.",
        judge=_open_files,
        machine=True,
    ),
)
"""In the order in which they are told."""
