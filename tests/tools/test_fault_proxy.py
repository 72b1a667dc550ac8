"""Each fault of the proxy as the two ends see it, over real sockets on one loop."""

from __future__ import annotations

import asyncio
import contextlib
import itertools

import pytest

from royale_server.chaos.background import running_proxy
from royale_server.chaos.plan import Fault, parse_plan, schedule
from royale_server.chaos.proxy import FaultProxy

PATIENCE_S = 10.0


class Echo:
    """A server that says everything back, and remembers what each connection said."""

    def __init__(self) -> None:
        self.said: list[bytearray] = []
        self.ended = 0
        self.changed = asyncio.Event()

    async def serve(self, reader, writer) -> None:
        said = bytearray()
        self.said.append(said)
        with contextlib.suppress(OSError):
            while data := await reader.read(1000):
                said += data
                self.changed.set()
                writer.write(data)
                await writer.drain()
        self.ended += 1
        self.changed.set()
        writer.close()

    async def until(self, condition) -> None:
        async with asyncio.timeout(PATIENCE_S):
            while not condition():
                self.changed.clear()
                await self.changed.wait()


def behind_a_proxy(scenario) -> list[dict]:
    """Run a coroutine function of proxy, server, and a client's reader and writer."""
    done: list[dict] = []

    async def body() -> None:
        echo = Echo()
        server = await asyncio.start_server(echo.serve, "127.0.0.1", 0)
        upstream = server.sockets[0].getsockname()[:2]
        async with FaultProxy(upstream, on_fault=done.append) as proxy:
            reader, writer = await asyncio.open_connection(*proxy.address)
            writer.write(b"hello")
            assert await reader.readexactly(5) == b"hello"
            async with asyncio.timeout(PATIENCE_S):
                await scenario(proxy, echo, reader, writer)
            writer.close()
        server.close()

    asyncio.run(body())
    return done


def fault(kind, **facts) -> Fault:
    return Fault(at_s=0.0, kind=kind, **facts)


def test_without_faults_everything_passes_and_the_end_as_well():
    async def scenario(proxy, echo, reader, writer):
        data = bytes(range(256)) * 4000
        writer.write(data)
        assert await reader.readexactly(len(data)) == data
        writer.write_eof()
        assert await reader.read() == b""
        assert echo.ended == 1

    assert behind_a_proxy(scenario) == []


def test_delayed_bytes_arrive_whole_and_no_earlier_than_they_may():
    async def scenario(proxy, echo, reader, writer):
        clock = asyncio.get_running_loop().time
        proxy.apply(fault("delay", amount=0.1, lasting_s=60.0))
        started = clock()
        writer.write(b"abc")
        assert await reader.readexactly(3) == b"abc"
        assert clock() - started >= 0.2  # there and back

    behind_a_proxy(scenario)


def test_delay_is_no_throttle():
    async def scenario(proxy, echo, reader, writer):
        clock = asyncio.get_running_loop().time
        proxy.apply(fault("delay", amount=0.2, lasting_s=60.0, direction="up"))
        started = clock()
        for _ in range(20):
            writer.write(b"abc")
            await asyncio.sleep(0.001)
        await reader.readexactly(60)
        # Twenty times 0.2 s one after the other would be 4 s.
        assert 0.2 <= clock() - started < 2.0

    behind_a_proxy(scenario)


def test_throttled_bytes_take_their_time():
    async def scenario(proxy, echo, reader, writer):
        clock = asyncio.get_running_loop().time
        proxy.apply(fault("throttle", amount=10_000.0, lasting_s=60.0, direction="up"))
        started = clock()
        writer.write(bytes(3000))
        assert await reader.readexactly(3000) == bytes(3000)
        # Pieces of 500 bytes, each 0.05 s after the one before: 0.25 s for the last.
        assert clock() - started >= 0.24

    behind_a_proxy(scenario)


def test_black_hole_holds_bytes_and_the_end_and_lets_them_go_afterwards():
    async def scenario(proxy, echo, reader, writer):
        clock = asyncio.get_running_loop().time
        started = clock()
        proxy.apply(fault("black-hole", lasting_s=0.3))
        writer.write(b"abc")
        writer.write_eof()
        assert await reader.read() == b"abc"
        assert clock() - started >= 0.3

    behind_a_proxy(scenario)


def test_cut_resets_both_ends_and_takes_nobody_for_a_while():
    async def scenario(proxy, echo, reader, writer):
        proxy.apply(fault("cut", lasting_s=0.3))
        with pytest.raises(ConnectionResetError):
            await reader.read()
        await echo.until(lambda: echo.ended == 1)
        refused = 0
        while True:
            again, more = await asyncio.open_connection(*proxy.address)
            more.write(b"x")
            with contextlib.suppress(ConnectionError):
                if await again.read(1) == b"x":
                    more.close()
                    break
            refused += 1
            more.close()
            await asyncio.sleep(0.05)
        assert refused

    behind_a_proxy(scenario)


def test_half_close_ends_one_direction_and_leaves_the_other():
    async def scenario(proxy, echo, reader, writer):
        proxy.apply(fault("half-close", direction="down"))
        assert await reader.read() == b""
        writer.write(b"still there")
        await echo.until(lambda: echo.said[0].endswith(b"still there"))

    behind_a_proxy(scenario)


def test_duplicate_says_what_the_client_said_at_first_on_a_connection_of_its_own():
    async def scenario(proxy, echo, reader, writer):
        proxy.apply(fault("duplicate", lasting_s=0.2))
        await echo.until(lambda: [*map(bytes, echo.said)] == [b"hello", b"hello"])
        await echo.until(lambda: echo.ended == 1)
        writer.write(b"abc")
        assert await reader.readexactly(3) == b"abc"

    behind_a_proxy(scenario)


def test_corrupt_changes_as_many_bytes_as_asked_for_and_no_more():
    async def scenario(proxy, echo, reader, writer):
        proxy.apply(fault("corrupt", direction="up", amount=3))
        writer.write(bytes(500))
        got = await reader.readexactly(500)
        assert sum(byte != 0 for byte in got) == 3
        writer.write(bytes(500))
        assert await reader.readexactly(500) == bytes(500)

    behind_a_proxy(scenario)


def test_what_was_done_is_told_with_the_connection_that_suffered_it():
    async def scenario(proxy, echo, reader, writer):
        other, more = await asyncio.open_connection(*proxy.address)
        more.write(b"hello")
        await other.readexactly(5)
        assert proxy.num_open == 2
        proxy.apply(fault("delay", amount=0.0, victim=0.4))
        proxy.apply(fault("delay", amount=0.0, victim=0.6))
        more.close()

    done = behind_a_proxy(scenario)
    assert [(entry["kind"], entry["connection"]) for entry in done] == [("delay", 0), ("delay", 1)]


def test_server_that_is_not_there_resets_the_client():
    async def body() -> None:
        vacant = await asyncio.start_server(lambda _reader, _writer: None, "127.0.0.1", 0)
        upstream = vacant.sockets[0].getsockname()[:2]
        vacant.close()
        async with FaultProxy(upstream) as proxy, asyncio.timeout(PATIENCE_S):
            reader, writer = await asyncio.open_connection(*proxy.address)
            with contextlib.suppress(ConnectionResetError):
                assert await reader.read() == b""
            writer.close()

    asyncio.run(body())


def test_plan_is_played_in_the_background_for_a_program_without_a_loop():
    faults = itertools.islice(schedule(parse_plan("cut every 0.02"), 1), 5)
    with running_proxy(("127.0.0.1", 9)) as proxy:
        proxy.apply(fault("cut"))
        proxy.play(faults)
        assert proxy.url == f"ws://127.0.0.1:{proxy.address[1]}"
        assert proxy.num_open == 0
    assert proxy.applied[0] == {
        "at_s": 0.0,
        "kind": "cut",
        "direction": "both",
        "lasting_s": 0.0,
        "amount": 0.0,
        "victim": 0.0,
        "connection": None,
    }
