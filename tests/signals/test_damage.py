"""A damaged ledger is set aside, and what can be read of it goes on."""

import shutil
from contextlib import suppress
from pathlib import Path

import pytest

from app_server.signals import ledger as ledger_module
from app_server.signals.ledger import Entry, Ledger, LedgerFailed
from tests.support.harness import claim, serve
from tests.support.receiver.signals import deliver
from tests.support.receiver.stages import entry, stage, text_of, unload
from tests.support.threads.damage import spoil

ROWS = 200


def a_ledger(path: Path) -> list[Entry]:
    """Write a ledger of several pages; returns its entries, newest first."""
    kept = Ledger(path)
    kept.put([entry(f"s{number}", sender="x" * 200, at_ms=number) for number in range(ROWS)])
    found = kept.page(None, None, None, ROWS).entries
    kept.close()
    return list(found)


def meets(tmp_path: Path, seeds: range) -> None:
    written = a_ledger(tmp_path / "signals" / "ledger.sqlite3")
    for seed in seeds:
        copy = tmp_path / "copy"
        shutil.copytree(tmp_path / "signals", copy)
        how = spoil(copy / "ledger.sqlite3", seed)
        before = [path.read_bytes() for path in copy.glob("ledger.sqlite3") if path.is_file()]
        with suppress(LedgerFailed):
            # Of a newer version: it stays as it is, and signals are refused.
            kept = Ledger(copy / "ledger.sqlite3")
            kept.put([entry("new")])
            assert kept.find("router", "new") is not None, (seed, how)
            if not list(copy.glob("*.damaged*")) and how not in ("missing", "swapped", "noise"):
                page = kept.page(None, None, None, ROWS + 1).entries
                assert list(page)[1:] == written, (seed, how)
            kept.close()
        aside = [path for path in copy.glob("ledger.sqlite3.damaged") if path.is_file()]
        assert [path.read_bytes() for path in aside] in ([], before), (seed, how)
        shutil.rmtree(copy)


@claim("signals:ledger-damaged")
def test_a_damaged_ledger_is_set_aside_and_another_one_serves(tmp_path: Path) -> None:
    meets(tmp_path, range(60))


@pytest.mark.slow
def test_a_ledger_damaged_in_any_way_leaves_one_that_serves(tmp_path: Path) -> None:
    meets(tmp_path, range(1000, 1300))


def test_rows_that_can_be_read_go_on(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "ledger.sqlite3"
    written = a_ledger(path)
    content = bytearray(path.read_bytes())
    middle = len(content) // 2 // 4096 * 4096
    content[middle : middle + 4096] = bytes(4096)
    path.write_bytes(content)
    # One that is too large to be read whole says so when the place is met.
    monkeypatch.setattr(ledger_module, "CHECKED_BYTES", 0)
    kept = Ledger(path)
    found = list(kept.page(None, None, None, ROWS).entries)
    kept.close()
    assert ROWS > len(found) > ROWS // 2
    assert {one.id for one in found} < {one.id for one in written}
    (said,) = [record for record in caplog.records if "ledger" in record.getMessage()]
    assert f"{len(found)} of its signals could be read" in said.getMessage()
    assert str(tmp_path / "ledger.sqlite3.damaged") in said.getMessage()


async def test_a_running_server_goes_on_when_its_ledger_is_damaged(tmp_path: Path) -> None:
    async with serve(tmp_path) as served, served.client() as client:
        thread_id = await client.start_thread()
        await client.turn(thread_id, "hello")
        await deliver(client, thread_id, "s1")
        await unload(served, thread_id)
        path = tmp_path / "signals" / "ledger.sqlite3"
        # The file is read again when another process has changed it.
        path.with_name("ledger.sqlite3-wal").write_bytes(b"")
        path.write_bytes(b"x" * 8192)
        await deliver(client, thread_id, "s2")
        await stage(client, "s2", "inHistory")
        await client.turn(thread_id, "go")
        assert [text for role, text in served.model.inputs() if role == "developer"] == [
            text_of("s1"),
            text_of("s2"),
        ]
