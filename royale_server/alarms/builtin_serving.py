"""The alarms about clients, frames, disk and trackers. Declarations only."""

from __future__ import annotations

from royale_server.alarms.conditions import (
    Exceeds,
    Nonzero,
    Rose,
    above,
    at_least,
    below,
)
from royale_server.alarms.declaration import Alarm

FRAMES = "Frames are lost"
CLIENTS = "Clients are in trouble"
DISK = "The disk or a tracker is in trouble"

_ITERATION = "the iteration"
_MOMENT = "the moment of the sample"
_ATTEMPT = "everything since this start of the server"

SERVING_ALARMS: tuple[Alarm, ...] = (
    Alarm(
        name="frames_not_conserved",
        group=FRAMES,
        when=Nonzero("server/conservation_error"),
        population="all cells of this start of the server",
        severity="halt",
        patience=1,
        meaning="The books of frames do not add up: some may be trained on twice or not at all.",
        remedy="Keep the bundle and report it as a defect of the server.",
    ),
    Alarm(
        name="impossible_discards",
        group=FRAMES,
        when=Rose(("server/discarded_stale", "server/discarded_buffer_full")),
        population=_ATTEMPT,
        severity="warn",
        patience=1,
        meaning="Frames were thrown away for a reason that cannot arise.",
        remedy="The run is not harmed; report it as a defect of the server.",
    ),
    Alarm(
        name="discards",
        group=FRAMES,
        when=above("server/discard_frac", "discard_share"),
        population="frames of the iteration, stored and thrown away",
        severity="warn",
        patience=3,
        meaning="Much of what clients play is thrown away.",
        remedy="The reason is in `server/discarded_*`: *late* is a slow client, *lost* one that "
        "dies, *invalid* one that sends NaN.",
    ),
    Alarm(
        name="invalid_frames",
        group=FRAMES,
        when=Rose(("server/nonfinite_frames",)),
        population=_ATTEMPT,
        severity="warn",
        patience=1,
        meaning="A reward or an observation was NaN, infinite or absurdly large; the rest of that "
        "episode was not trained on.",
        remedy="The log names client, row and leaf: check the environment for a division by zero.",
    ),
    Alarm(
        name="nonfinite_metric",
        group=FRAMES,
        when=above("row/nonfinite", 0.0),
        population="the numbers of the metrics row",
        severity="warn",
        patience=1,
        meaning="A number of the metrics row itself is not finite; the record names it.",
        remedy="Look at what it measures: often the first sign of a loss that blows up.",
    ),
    Alarm(
        name="clients_missing",
        group=CLIENTS,
        when=above("server/clients_missing", 0.0),
        population="train sessions when the row was written",
        severity="warn",
        patience=2,
        meaning="Fewer clients take part than `--min-clients` asks for.",
        remedy="`events.jsonl` says who left and why. Start them again; they may join at any time.",
    ),
    Alarm(
        name="client_flapping",
        group=CLIENTS,
        when=at_least("sample/clients_lost", "clients_lost"),
        population="clients lost without a goodbye in the last ten minutes",
        severity="warn",
        patience=1,
        source="sample",
        meaning="Clients come and go.",
        remedy="Read the log of one of them. Typical: a proxy that cuts idle connections, an "
        "environment that crashes and is restarted, two clients with one token.",
    ),
    Alarm(
        name="straggler",
        group=CLIENTS,
        when=above("server/stragglers", 0.0),
        population="groups of clients that take part",
        severity="warn",
        patience=5,
        meaning="A client is so slow that rounds no longer wait for it.",
        remedy="Its frames still count, late ones are thrown away. Give it fewer environments or a "
        "faster machine; `--patience` says how slow is too slow.",
    ),
    Alarm(
        name="queue_starved",
        group=CLIENTS,
        when=above("server/dispatch_gap_max", "dispatch_gap_s"),
        population="batches of the iteration's collection",
        severity="warn",
        patience=1,
        meaning="For a long while there was nothing to infer: every client owed a request.",
        remedy="The console's «Infer queue» lines say who; a slow reset or a stuck environment is "
        "usual. `--dispatch dynamic` does not wait for it.",
    ),
    Alarm(
        name="stalled",
        group=CLIENTS,
        when=Exceeds("sample/no_progress_s", "sample/stall_bound_s"),
        population=_MOMENT,
        severity="warn",
        patience=1,
        source="sample",
        meaning="Nothing has moved for longer than it ever should: no batch, no pass of a learn "
        "step.",
        remedy="While collecting, clients are stuck: look at their machines. While learning, the "
        "step takes 5 times as long as usual: look at the device.",
    ),
    Alarm(
        name="writer_stalled",
        group=DISK,
        when=above("sample/writer_wait_s", "writer_wait_s"),
        population=_MOMENT,
        severity="warn",
        patience=1,
        source="sample",
        meaning="The disk has not taken something for a long while. Training goes on; rows, "
        "episodes and checkpoints wait in memory.",
        remedy="Look at the disk or the network behind it. What waits is written when it answers; "
        "a kill before loses it.",
    ),
    Alarm(
        name="writer_refused",
        group=DISK,
        when=above("sample/writer_unwritten", 0.0),
        population=_MOMENT,
        severity="warn",
        patience=1,
        source="sample",
        meaning="The disk refuses lines; they are kept and tried again.",
        remedy="Make room on it: the log names file and error.",
    ),
    Alarm(
        name="lines_lost",
        group=DISK,
        when=Rose(("sample/writer_dropped",)),
        population=_ATTEMPT,
        severity="warn",
        patience=1,
        source="sample",
        meaning="Episodes or events were given up, since the disk did not keep up for too long.",
        remedy="Metrics rows are not concerned. Use a faster disk for `--checkpoint-base-dir`.",
    ),
    Alarm(
        name="tracker_failing",
        group=DISK,
        when=Rose(("sample/tracker_lost",)),
        population=_ATTEMPT,
        severity="warn",
        patience=1,
        source="sample",
        meaning="A tracker did not take rows; the run and `metrics.jsonl` go on.",
        remedy="The log has its first error. Rows that it missed are in `metrics.jsonl`.",
    ),
    Alarm(
        name="tracker_stalled",
        group=DISK,
        when=above("sample/tracker_queued", "tracker_rows"),
        population=_MOMENT,
        severity="warn",
        patience=2,
        source="sample",
        meaning="A tracker does not take rows any more, or slower than they come.",
        remedy="The run does not wait for it. Look at its service or network; rows that it misses "
        "are in `metrics.jsonl`.",
    ),
    Alarm(
        name="checkpoint_overdue",
        group=DISK,
        when=above("health/iterations_since_checkpoint", "overdue_intervals", "save_every"),
        population=_ITERATION,
        severity="warn",
        patience=1,
        meaning="Checkpoints are not being written; a crash would cost everything since the last.",
        remedy="The log says what the disk refused, or that the run does not come to rest. "
        "`royale checkpoint RUN` asks for one.",
    ),
    Alarm(
        name="disk_low",
        group=DISK,
        when=below("disk/spare_mb", "disk_free_mb"),
        population="free megabytes where the run is written, less two checkpoints",
        severity="warn",
        patience=2,
        meaning="The disk will be full soon.",
        remedy="Delete what is not needed, or keep fewer checkpoints with `--keep-last`.",
    ),
)
"""In the order in which they are listed."""
