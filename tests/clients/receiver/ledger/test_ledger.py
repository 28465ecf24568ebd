"""receiver: signals in the ledger."""

import sqlite3
from pathlib import Path

import pytest

from app_server.clients.receiver.ledger import LedgerBroken, LedgerFull
from tests.support.receiver.peer import envelope, ledger_at


async def test_a_signal_is_taken_once_whatever_has_become_of_it(tmp_path: Path) -> None:
    with ledger_at(tmp_path / "l") as ledger:
        assert await ledger.take(envelope("s1"))
        assert not await ledger.take(envelope("s1"))
        shown = await ledger.show(10, 1000)
        assert not await ledger.take(envelope("s1"))
        assert await ledger.ack(["s1", "s2"]) == ["s1"]
        assert not await ledger.take(envelope("s1"))

        assert [entry.envelope for entry in shown.entries] == [envelope("s1")]
        assert await ledger.pending() == 0
        assert await ledger.ack(["s1"]) == []


async def test_a_full_ledger_takes_nothing_until_something_is_done_with(tmp_path: Path) -> None:
    with ledger_at(tmp_path / "l", max_open=2) as ledger:
        await ledger.take(envelope("s1"))
        await ledger.take(envelope("s2"))
        with pytest.raises(LedgerFull):
            await ledger.take(envelope("s3"))
        assert not await ledger.take(envelope("s1"))
        await ledger.show(1, 1000)
        await ledger.ack(["s1"])

        assert await ledger.take(envelope("s3"))


async def test_a_ledger_is_bounded_in_bytes_too(tmp_path: Path) -> None:
    with ledger_at(tmp_path / "l", max_open_bytes=1000) as ledger:
        await ledger.take(envelope("s1", payload="x" * 500))

        with pytest.raises(LedgerFull):
            await ledger.take(envelope("s2", payload="x" * 500))


async def test_what_is_done_with_is_forgotten_beyond_its_bounds(tmp_path: Path) -> None:
    with ledger_at(tmp_path / "l", max_settled=3, max_settled_bytes=400) as ledger:
        for number in range(5):
            await ledger.take(envelope(f"s{number}", payload="x" * 200))
        await ledger.take(envelope("open"))
        await ledger.show(5, 10_000)
        await ledger.ack([f"s{number}" for number in range(5)])
        await ledger.prune()

        # Forgotten, forgotten, only the id, only the id, whole.
        assert [await ledger.entry(f"s{number}") is not None for number in range(5)] == [
            *(False, False, False, False),
            True,
        ]
        assert [await ledger.take(envelope(f"s{number}")) for number in range(5)] == [
            *(True, True),
            *(False, False, False),
        ]
        assert await ledger.entry("open") is not None


async def test_what_a_tool_result_has_shown_is_never_injected(tmp_path: Path) -> None:
    with ledger_at(tmp_path / "l") as ledger:
        await ledger.take(envelope("s1"))
        await ledger.show(1, 1000)

        assert await ledger.due() == []
        assert not await ledger.begin("s1", "t", None, log_was_there=False)


async def test_what_is_being_injected_is_not_shown(tmp_path: Path) -> None:
    with ledger_at(tmp_path / "l") as ledger:
        await ledger.take(envelope("s1"))
        assert await ledger.begin("s1", "t", None, log_was_there=False)

        assert (await ledger.show(1, 1000)).entries == []
        assert await ledger.pending() == 0
        assert not await ledger.begin("s1", "t", None, log_was_there=False)


async def test_a_look_shows_the_first_whatever_its_size_and_counts_the_rest(
    tmp_path: Path,
) -> None:
    with ledger_at(tmp_path / "l") as ledger:
        for number in range(4):
            await ledger.take(envelope(f"s{number}"))

        small = await ledger.show(10, 1)
        assert ([entry.envelope.id for entry in small.entries], small.more) == (["s0"], 3)
        some = await ledger.show(3, 10_000)
        assert ([entry.envelope.id for entry in some.entries], some.more) == (
            ["s0", "s1", "s2"],
            1,
        )


async def test_what_comes_unasked_comes_once_whole_and_in_its_order(tmp_path: Path) -> None:
    with ledger_at(tmp_path / "l") as ledger:
        for name, size in (("s0", 10), ("s1", 10), ("s2", 900), ("s3", 10)):
            await ledger.take(envelope(name, payload="x" * size))
        await ledger.begin("s0", "t", None, log_was_there=False)
        await ledger.doubt("s0")

        looks = [await ledger.show_new(9, 500) for _ in range(2)]
        assert [[entry.envelope.id for entry in look.entries] for look in looks] == [["s1"], []]
        assert [look.more for look in looks] == [3, 4]
        assert [entry.envelope.id for entry in (await ledger.show_new(9, 5000)).entries] == [
            "s2",
            "s3",
        ]


async def test_a_file_that_is_no_ledger_is_left_alone(tmp_path: Path) -> None:
    text = tmp_path / "text"
    text.write_text("these are notes, and no database at all" * 10)
    newer = tmp_path / "newer"
    with sqlite3.connect(newer) as connection:
        connection.execute("PRAGMA user_version = 99")
    connection.close()

    for path in (text, newer):
        content = path.read_bytes()
        with pytest.raises(LedgerBroken), ledger_at(path):
            pass
        assert path.read_bytes() == content or path == newer
