"""receiver: how far the router was answered."""

from pathlib import Path

from tests.support.receiver.peer import ledger_at


async def test_a_cursor_is_there_after_a_restart_and_the_last_one_counts(tmp_path: Path) -> None:
    with ledger_at(tmp_path / "l") as ledger:
        assert await ledger.cursor.read() is None
        await ledger.cursor.move("first")
        await ledger.cursor.move("second")

    with ledger_at(tmp_path / "l") as ledger:
        assert await ledger.cursor.read() == "second"
