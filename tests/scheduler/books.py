"""Books kept beside the scheduler's own: what became of every frame, checked against them.

A frame is followed from its batch through the outcome its client reports to the learn step:
whose it is, whether it is stored once, what it takes for its successor.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from royale_server.scheduler import Bootstrap, Bridge, FrameLedger, Infer, Record


@dataclass(slots=True, eq=False)
class Frame:
    """What the world knows of a cell."""

    slot: int
    ordinal: int
    observation: int
    version: int
    episode: int
    step: int
    """Ordinal of its episode, and the step in it: the address of its noise."""
    is_complete: bool = False
    ended: bool = False
    has_value: bool = False


@dataclass(slots=True, eq=False)
class Sent:
    """What a client put into a request: which frames it answers for, what it shows."""

    start: int
    frames: list[Frame | None]
    observations: list[int]
    no_state: int
    """Rows that settle an action of which this session's server knows nothing."""
    without_cell: int
    """Rows that settle an action of the learner that was answered without a cell."""
    of_others: int
    """Rows that settle an action of somebody else."""


class Books:
    """Follows frames; tells ``fault`` of every one that goes astray.

    Args:
        ledger: The scheduler's own books.
        fault: Called with a sentence.
    """

    def __init__(self, ledger: FrameLedger, fault: Callable[[str], None]) -> None:
        self.stored_by_slot: Counter[int] = Counter()
        self._ledger = ledger
        self._fault = fault
        self._cells: dict[int, Frame] = {}
        self._learned: set[tuple[int, int]] = set()
        self._drawn: set[tuple[int, int, int]] = set()
        self._inferred = 0
        self._stored = 0
        self._given_up = 0
        self._no_state = 0
        self._without_cell = 0
        self._of_others = 0

    def arrived(self, sent: Sent) -> None:
        """A training client's request reached the server."""
        self._no_state += sent.no_state
        self._without_cell += sent.without_cell
        self._of_others += sent.of_others

    def apply(self, effects: Sequence[Any]) -> None:
        """What storage is told with a batch or a learn step."""
        for effect in effects:
            match effect:
                case Record():
                    self._record(effect)
                case Bridge(cells=cells, successors=successors):
                    for cell, successor in zip(cells.tolist(), successors.tolist(), strict=True):
                        after = self._cells[successor]
                        if after.is_complete:
                            self._fault("bridged to a frame that is complete")
                        self._value(cell, after.slot, after.observation)
                case Bootstrap(request=request, rows=rows, cells=cells):
                    sent: Sent = request.payload
                    for row, cell in zip(rows.tolist(), cells.tolist(), strict=True):
                        self._value(cell, sent.start + row, sent.observations[row])

    def reserve(self, batch: Infer) -> list[list[Frame | None]]:
        """The frames of a batch, by item and row; None for rows without a cell."""
        cells = zip(
            batch.cells.tolist(), batch.cell_slots.tolist(), batch.ordinals.tolist(), strict=True
        )
        draws = zip(batch.episodes.tolist(), batch.steps.tolist(), strict=True)
        made = []
        for item in batch.items:
            sent: Sent = item.request.payload
            frames: list[Frame | None] = []
            for row, learner in zip(item.rows.tolist(), item.learner.tolist(), strict=True):
                draw = next(draws)
                self._draw(sent.start + row, *draw)
                place = next(cells) if learner else None
                frames.append(place and self._reserve_one(sent, row, place, draw))
            made.append(frames)
        return made

    def _draw(self, slot: int, episode: int, step: int) -> None:
        if (slot, episode, step) in self._drawn:
            self._fault(f"slot {slot} drew the noise of step {step}, episode {episode} twice")
        self._drawn.add((slot, episode, step))

    def learn(self, cells: list[int]) -> list[Frame]:
        """The frames of a learn step; afterwards every cell is free."""
        self._given_up += sum(not frame.is_complete for frame in self._cells.values())
        self._compare()
        if cells != sorted(c for c, frame in self._cells.items() if frame.is_complete):
            self._fault("learning from other cells than the complete ones")
        frames = [self._cells[cell] for cell in cells]
        self._check_frames(frames)
        self._cells.clear()
        return frames

    def restart(self, ledger: FrameLedger, cells: list[int]) -> None:
        """A new process goes on with these cells, numbered anew; it counts from zero."""
        self._given_up += sum(not frame.is_complete for frame in self._cells.values())
        self._compare()
        if cells != sorted(c for c, frame in self._cells.items() if frame.is_complete):
            self._fault("saving other cells than the complete ones")
        self._cells = {place: self._cells[cell] for place, cell in enumerate(cells)}
        self._ledger = ledger
        self._inferred = self._given_up = self._no_state = self._without_cell = 0
        self._of_others = 0
        self._stored = len(cells)

    def _reserve_one(
        self, sent: Sent, row: int, place: tuple[int, int, int], draw: tuple[int, int]
    ) -> Frame:
        cell, slot, ordinal = place
        if slot != sent.start + row:
            self._fault("cells and rows of a batch are out of step")
        old = self._cells.get(cell)
        if old is not None:
            self._given_up += 1
            if old.is_complete:
                self._fault(f"{old} overwritten before it was learned from")
        self._inferred += 1
        version = self._ledger.version
        frame = Frame(slot, ordinal, sent.observations[row], version, *draw)
        self._cells[cell] = frame
        return frame

    def _record(self, record: Record) -> None:
        sent: Sent = record.request.payload
        ended = record.request.ended.tolist()
        rows, cells = record.rows.tolist(), record.cells.tolist()
        for row, cell, finished in zip(rows, cells, record.finished.tolist(), strict=True):
            frame = self._cells[cell]
            if frame is not sent.frames[row]:
                self._fault(f"an outcome of slot {sent.start + row} went to another frame")
            if frame.is_complete:
                self._fault(f"{frame} stored twice")
            if finished:
                frame.is_complete = True
                frame.ended = ended[row]
                self._stored += 1
                self.stored_by_slot[frame.slot] += 1

    def _value(self, cell: int, slot: int, observation: int) -> None:
        """A frame gets the value of an observation as its successor's."""
        frame = self._cells.get(cell)
        if frame is None:
            self._fault(f"a value for cell {cell}, which holds no frame")
            return
        if not frame.is_complete or frame.ended:
            self._fault(f"{frame} needs no successor value")
        if frame.slot != slot or frame.observation + 1 != observation:
            self._fault(f"{frame} got the value of another observation")
        frame.has_value = True

    def _compare(self) -> None:
        ledger = self._ledger
        if ledger.num_reserved:
            self._fault(f"learning with {ledger.num_reserved} cells reserved")
        if ledger.conservation_error:
            self._fault(f"{ledger.conservation_error} frames unaccounted for")
        books = (
            (ledger.reserved_total, self._inferred, "reserved"),
            (ledger.stored_total, self._stored, "stored"),
            (ledger.discarded_total, self._given_up, "given up"),
            (ledger.no_state_total, self._no_state, "without state"),
            (ledger.without_cell_total, self._without_cell, "without cell"),
            (ledger.others_total, self._of_others, "of others"),
        )
        for got, expected, what in books:
            if got != expected:
                self._fault(f"{got} frames {what}, the world counted {expected}")

    def _check_frames(self, frames: Sequence[Frame]) -> None:
        shown = {(frame.slot, frame.ordinal): frame.observation for frame in frames}
        if len(shown) < len(frames):
            self._fault("learning from one frame twice")
        again = shown.keys() & self._learned
        if again:
            self._fault(f"learning again from frames of earlier learn steps: {sorted(again)[:4]}")
        self._learned |= shown.keys()
        version = self._ledger.version
        for frame in frames:
            if frame.version != version:
                self._fault(f"learning version {version} from {frame}")
            follower = shown.get((frame.slot, frame.ordinal + 1))
            is_followed = follower == frame.observation + 1
            if not (is_followed or frame.ended or frame.has_value):
                self._fault(f"{frame} has no successor value")
