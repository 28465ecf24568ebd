"""Figures of one very long thread: what each request for it takes, of time and of memory."""

import asyncio
import os
import signal
import subprocess
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias
from uuid import UUID

import psycopg

from app_server.config.store_url import STORE_VARIABLE, StoreUrl
from app_server.threads.opening.stores import open_stores
from protocol.log.rollout import HistoryAppended, HistoryCompacted, Record, render_record
from tests.bench.scale.options import Options
from tests.support.clients.lean import LeanClient, lean_client
from tests.support.harness import write_config
from tests.support.model import ScriptedModel
from tests.support.postgresql import name_of
from tests.support.processes import EXECUTABLE, started
from tests.support.threads.histories import turn
from tests.support.threads.stores import created, raw

RECORDS_A_TURN = 10
TEXT = "What was said in this answer is neither short nor long. " * 7
TURNS_COMPACTED = 200
"""Turns between compactions, so that what the model sees has a bound, as it has in use."""
BOUND_S = 900.0
_COPY = "COPY records (tenant, thread_id, position, epoch, body) FROM STDIN (FORMAT BINARY)"

Step: TypeAlias = Callable[[LeanClient, str], Awaitable[Any]]


class _Taken(NamedTuple):
    seconds: float
    peak_mib: float
    """What the process had at most meanwhile."""


async def measure_long(options: Options) -> None:
    """Use a thread of many records, `--records`: seconds, and the peak of the server's memory.

    Ten records a turn, a compaction every 200 turns; in the database a row a record. A server that
    has just started answers the requests one after the other.
    """
    with tempfile.TemporaryDirectory() as folder:
        found = {}
        for name, store in (("files", ""), ("postgresql", options.url)):
            home = Path(folder) / name
            thread_id = await _make(home, store, options)
            found[name] = [step async for step in _measured(home, store, thread_id)]
        copied = await asyncio.to_thread(_copied, Path(folder), options)
    print("| Step | Files: s | MiB | PostgreSQL: s | MiB |\n| --- | --- | --- | --- | --- |")
    for (step, files), (_, database) in zip(*found.values(), strict=True):
        print(f"| {step} | {_cells(files)} | {_cells(database)} |")
    for step, taken in copied.items():
        print(f"| {step} | | | {_cells(taken)} |")


def _cells(taken: _Taken) -> str:
    return f"{taken.seconds:.2f} | {taken.peak_mib:.0f}"


def _records(count: int) -> Iterator[Record]:
    for number in range(count // RECORDS_A_TURN):
        begin, *others, end = turn(number, *[f"{TEXT}{number}"] * 5)
        yield begin
        if number % TURNS_COMPACTED == 0:
            summary = raw(f"a summary {number}")
            yield HistoryCompacted(at_ms=number, turn_id=f"t{number}", items=[summary])
        yield from others
        yield HistoryAppended(at_ms=number, items=[raw(f"{TEXT}{number}", "assistant")])
        yield end


async def _make(home: Path, store: str, options: Options) -> str:
    """Write the thread as a server would have, but faster; returns its id."""
    home.mkdir()
    threads = (await open_stores(home, StoreUrl(store) if store else None)).threads
    await threads.open()
    thread = await threads.create(created())
    size = len(await threads.exported(thread.id, 1 << 20) or b"")
    path = threads.shown_path(thread.id)
    await threads.unload(thread)
    await threads.aclose()
    if path is not None:
        await asyncio.to_thread(_add, Path(path), options.records)
    else:
        # As the administrator: COPY is refused where rows are kept apart by role.
        url = options.cluster.url(name_of(store), "postgres")
        with psycopg.connect(url, autocommit=True) as connection:
            _insert(connection, thread.id, size, options.records)
    return thread.id


def _add(path: Path, count: int) -> None:
    with path.open("ab") as file:
        file.writelines(map(render_record, _records(count)))


def _insert(connection: psycopg.Connection[Any], thread_id: str, position: int, count: int) -> None:
    (tenant,) = connection.execute("SELECT tenant FROM threads").fetchone() or (0,)
    with connection.cursor() as cursor, cursor.copy(_COPY) as copy:
        copy.set_types(["int4", "uuid", "int8", "int4", "bytea"])
        for record in _records(count):
            body = render_record(record)
            copy.write_row((tenant, UUID(thread_id), position, 1, body))
            position += len(body)
    connection.execute("ANALYZE records")


async def _measured(home: Path, store: str, thread_id: str) -> AsyncIterator[tuple[str, _Taken]]:
    """Ask a server for the thread in all ways, one after the other."""
    variables = {STORE_VARIABLE: store} if store else {}
    async with ScriptedModel().serve() as model:
        write_config(home, model.url)
        async with (
            started(home, **variables) as server,
            lean_client(server.urls[0]) as client,
        ):
            pid = server.process.pid
            yield "a server that has just started", _Taken(0, _peak_mib(pid))
            for name, step in _STEPS.items():
                Path(f"/proc/{pid}/clear_refs").write_text("5")
                began = time.perf_counter()
                try:
                    async with asyncio.timeout(BOUND_S):
                        await step(client, thread_id)
                except RuntimeError as exc:
                    print(f"{name}: {exc}", flush=True)
                yield name, _Taken(time.perf_counter() - began, _peak_mib(pid))
            # So that the threads are anybody's.
            server.process.send_signal(signal.SIGTERM)
            await server.ended()


def _peak_mib(pid: int) -> float:
    status = Path(f"/proc/{pid}/status").read_text()
    return int(status.partition("VmHWM:")[2].split()[0]) / 1024


def _request(method: str, **params: Any) -> Step:
    return lambda client, thread_id: client.call(method, {"threadId": thread_id, **params})


async def _fork(client: LeanClient, thread_id: str) -> None:
    await client.call("thread/fork", {"threadId": thread_id, "excludeTurns": True})


async def _revert(client: LeanClient, thread_id: str) -> None:
    listed = await client.call("thread/turns/list", {"threadId": thread_id, "limit": 2})
    reverted = {"threadId": thread_id, "beforeTurnId": listed["data"][0]["id"]}
    await client.call("thread/revert", reverted)


async def _search(client: LeanClient, _: str) -> None:
    await client.call("thread/search", {"searchTerm": "neither short"})


async def _turn(client: LeanClient, thread_id: str) -> None:
    await client.turn(thread_id, "hello")


_STEPS: Mapping[str, Step] = {
    "`thread/read`": _request("thread/read"),
    "`thread/turns/list`, the first page": _request("thread/turns/list"),
    "again": _request("thread/turns/list"),
    "`thread/turns/list` from the oldest": _request("thread/turns/list", sortDirection="asc"),
    "`thread/items/list`": _request("thread/items/list"),
    "`thread/search`": _search,
    "`thread/searchOccurrences`, which are none": _request(
        "thread/searchOccurrences", searchTerm="never said"
    ),
    "`thread/read` with turns": _request("thread/read", includeTurns=True),
    "`thread/resume` with a page of turns": _request(
        "thread/resume", excludeTurns=True, initialTurnsPage={"limit": 25}
    ),
    "`thread/resume` of the loaded thread, with all turns": _request("thread/resume"),
    "a turn": _turn,
    "`thread/fork`": _fork,
    "`thread/revert` of one turn": _revert,
    "`thread/turns/list` behind it": _request("thread/turns/list"),
    "`thread/archive`": _request("thread/archive"),
    "`thread/unarchive`": _request("thread/unarchive"),
    "`thread/delete`": _request("thread/delete"),
}


def _copied(folder: Path, options: Options) -> Mapping[str, _Taken]:
    """Copy threads out of the database and back, by commands of their own."""
    variables = {**os.environ, STORE_VARIABLE: options.url}
    found = {}
    for command in ("export", "import"):
        if command == "import":
            with psycopg.connect(options.url, autocommit=True) as connection:
                for table in ("texts", "turns", "outlines", "records", "threads"):
                    connection.execute(f"DELETE FROM {table}".encode())
        began = time.perf_counter()
        words = [str(EXECUTABLE), "store", command, "--home", str(folder / "copied")]
        with subprocess.Popen(words, env=variables, stdout=subprocess.DEVNULL) as process:
            _, status, used = os.wait4(process.pid, 0)
            process.returncode = os.waitstatus_to_exitcode(status)
        assert process.returncode == 0
        taken = _Taken(time.perf_counter() - began, used.ru_maxrss / 1024)
        found[f"`app-server store {command}`"] = taken
    return found
