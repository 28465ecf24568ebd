"""host: what is kept of a command's output, and how fast it is read."""

import asyncio
import os
import resource
import sys

import anyio
import pytest
from hypothesis import given
from hypothesis import strategies as st

from app_server.host.commands import output
from app_server.host.commands.local_commands import CommandLaunch
from app_server.host.commands.output import MAX_KEPT_BYTES, KeptOutput
from app_server.permissions.sandbox.policy import UNRESTRICTED
from tests.support.harness import WAIT_S
from tests.support.host.commands import Printed, commands, finished, sh


@given(st.lists(st.binary(max_size=30)), st.integers(2, 40))
def test_head_and_tail_are_those_of_the_whole(pieces: list[bytes], limit: int) -> None:
    kept = KeptOutput(limit)
    for piece in pieces:
        kept.add(piece)
    whole = b"".join(pieces)
    assert kept.total == len(whole)
    if len(whole) <= limit:
        assert (kept.all(), kept.lost_bytes) == (whole, 0)
        assert kept.text() == whole.decode(errors="replace")
    else:
        head, tail = limit - limit // 2, limit // 2
        assert kept.all() == whole[:head] + whole[-tail:]
        assert kept.lost_bytes == len(whole) - limit


def test_a_character_at_the_cut_is_left_out_and_counted() -> None:
    kept = KeptOutput(10)
    kept.add(("é" * 10).encode())
    # Five bytes are two characters and a half on either side.
    assert kept.text() == "éé\n[... 12 bytes left out ...]\néé"


@pytest.mark.parametrize(
    ("kept_bytes", "limit", "text"),
    [
        (9, 9, "123456789"),
        (9, 8, "1234\n[... 1 bytes left out ...]\n6789"),
        (9, 1, "1\n[... 8 bytes left out ...]\n"),
        (9, 0, "\n[... 9 bytes left out ...]\n"),
        (6, 9, "123\n[... 3 bytes left out ...]\n789"),
        (6, 4, "12\n[... 5 bytes left out ...]\n89"),
    ],
)
def test_a_text_has_a_bound_of_its_own(kept_bytes: int, limit: int, text: str) -> None:
    kept = KeptOutput(kept_bytes)
    kept.add(b"123456789")
    assert kept.text(limit) == text


def test_what_is_no_utf_8_is_replaced() -> None:
    kept = KeptOutput()
    kept.add(b"a\xff\xc3")
    assert kept.text() == "a\ufffd\ufffd"


def test_small_pieces_without_end_are_kept_within_the_bound() -> None:
    kept = KeptOutput(1000)
    for _ in range(5000):
        kept.add(b"x" * 7)
    assert len(kept.all()) == 1000
    assert kept.lost_bytes == 34_000


async def test_a_gigabyte_costs_little_memory_and_processor() -> None:
    argv = ["head", "-c", "1000000000", "/dev/zero"]
    async with commands() as local:
        local.rates = output.ReadRates(burst_bytes=2_000_000_000)
        kept = KeptOutput()
        # Once before, so that what every command costs is there already.
        await finished(await local.start(sh("echo"), UNRESTRICTED, Printed().take))
        before = resource.getrusage(resource.RUSAGE_SELF)
        launch = CommandLaunch(argv, {"PATH": os.environ["PATH"]}, "/")
        command = await local.start(launch, UNRESTRICTED, lambda stream, data: kept.add(data))
        with anyio.fail_after(WAIT_S):
            await command.finished.wait()
        after = resource.getrusage(resource.RUSAGE_SELF)
    assert (kept.total, kept.lost_bytes) == (1_000_000_000, 1_000_000_000 - MAX_KEPT_BYTES)
    assert after.ru_maxrss - before.ru_maxrss < 50 * (1 if sys.platform == "linux" else 1024) * 1024
    assert after.ru_utime - before.ru_utime < 5


async def test_who_prints_without_end_is_made_to_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    rates = output.ReadRates(burst_bytes=1_000_000, bytes_per_s=1_000_000)
    # A clock that stands, so that a busy machine gives no time to read more.
    loop = asyncio.get_running_loop()
    now_s = loop.time()
    monkeypatch.setattr(loop, "time", lambda: now_s)
    ours, theirs = os.pipe()
    read = bytearray()
    running = output.OutputReader(
        ours, "stdout", lambda stream, data: read.extend(data), rates=rates
    )

    async def read_bytes() -> int:
        for _ in range(10):
            await anyio.lowlevel.checkpoint()
        return len(read)

    piece = bytes(50_000)
    for number in range(1, 21):
        os.write(theirs, piece)
        assert await read_bytes() == number * len(piece)
    # What is read above the burst has to be earned, and then what comes next.
    for _ in range(2):
        os.write(theirs, piece)
        assert await read_bytes() == 21 * len(piece)
    now_s += 0.04
    assert await read_bytes() == 21 * len(piece)
    now_s += 0.02
    assert await read_bytes() == 22 * len(piece)
    running.close()
    os.close(theirs)


async def test_all_output_comes_although_reading_paused() -> None:
    async with commands() as local:
        local.rates = output.ReadRates(burst_bytes=100_000, bytes_per_s=10_000_000)
        printed = Printed()
        command = await local.start(
            sh("head -c 1000000 /dev/zero; echo end"), UNRESTRICTED, printed.take
        )
        assert await finished(command) == 0
        assert printed.of("stdout") == bytes(1_000_000) + b"end\n"


async def test_small_pieces_alone_are_gathered() -> None:
    ours, theirs = os.pipe()
    read, came = bytearray(), anyio.Event()

    def take(stream: output.Stream, data: bytes) -> None:
        read.extend(data)
        came.set()

    piece = bytes(output.SMALL_BYTES)
    running = output.OutputReader(ours, "stdout", take, rates=output.ReadRates(gather_s=3600))
    for _ in range(2 * output.GATHER_AFTER_BYTES // len(piece)):
        came = anyio.Event()
        os.write(theirs, piece)
        with anyio.fail_after(WAIT_S):
            await came.wait()
    read.clear()
    came = anyio.Event()
    os.write(theirs, b"small")
    with anyio.fail_after(WAIT_S):
        await came.wait()
    os.write(theirs, b" pieces")
    await anyio.wait_all_tasks_blocked()
    assert read == b"small"
    os.close(theirs)
    running.drain()
    assert read == b"small pieces"


async def test_output_that_cannot_be_read_has_ended(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def refuse(*_: object) -> int:
        raise OSError(5555, "broken")

    async with commands() as local:
        with monkeypatch.context() as patched:
            patched.setattr("app_server.host.commands.output.os.readv", refuse)
            printed = Printed()
            command = await local.start(sh("echo lost; exit 3"), UNRESTRICTED, printed.take)
            assert await finished(command) == 3
        assert printed.of("stdout") == b""
        assert caplog.text.count("cannot be read") == 1
