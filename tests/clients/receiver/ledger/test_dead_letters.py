"""receiver: what came and is no signal."""

from pathlib import Path

from tests.support.receiver.peer import ledger_at


async def test_dead_letters_are_few_and_short(tmp_path: Path) -> None:
    with ledger_at(tmp_path / "l", max_dead=2, max_dead_bytes=3) as ledger:
        assert await ledger.dead_letters.all() == []
        for number in range(4):
            await ledger.dead_letters.add("why", b"abcdef", number)

        assert await ledger.dead_letters.all() == [(2, "why", b"abc"), (3, "why", b"abc")]
