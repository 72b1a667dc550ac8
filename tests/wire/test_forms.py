"""A form by itself: no bytes bring it to read beyond a header."""

from __future__ import annotations

from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from royale_client.wire.array_table import Layout
from royale_client.wire.errors import MessageDecodeError
from royale_client.wire.forms import Form, Hole

NOTHING = Layout(names=(), room=0, spans=(), booleans=())


def form_of(piece: bytes, hole: Hole, last: bytes) -> Form[None]:
    return Form(parts=((piece, "x", hole),), last=last, layout=NOTHING, gaps=(), facts=None)


@pytest.mark.parametrize("hole", ["unsigned", "double", "list"])
def test_bytes_before_and_after_a_hole_that_overlap_are_no_header(hole: Hole) -> None:
    form = form_of(b"aaaa", hole, b"a" * 9)
    for count in range(9, 13):
        data = bytes(4) + b"a" * count
        assert form.read(data, len(data), 40) is None


@given(st.sampled_from(["unsigned", "double", "list"]), st.data())
def test_whatever_comes_a_form_reads_a_whole_header_or_none(
    hole: Hole, data: st.DataObject
) -> None:
    few = st.sampled_from([b"a", b"\xcb", b"\xcc", b"\xce", b"\x91", b"\x01"])
    form = form_of(b"aa", hole, b"a" * 9)
    body = b"".join(data.draw(st.lists(few, max_size=24)))
    message = bytes(4) + body
    found = None
    with suppress(MessageDecodeError):
        found = form.read(message, data.draw(st.integers(4, len(message))), 40)
    if found is not None:
        assert body.startswith(b"aa")
        assert set(found) == {"x"}
