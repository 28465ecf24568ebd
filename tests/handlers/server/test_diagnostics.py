"""server/diagnostics over a real socket: what it counts, and what it never says."""

import json
import time
from pathlib import Path
from typing import Any

import pytest

from app_server import VERSION
from app_server.handlers.server.diagnostics import MAX_CONNECTIONS, MAX_LABEL_CHARS
from app_server.rpc.message_stream import ConnectionLimits
from protocol.server.lifecycle import PROTOCOL_VERSION
from tests.support.harness import WireClient, claim, serve, stdio_server
from tests.support.model import Gate, Refusal, says
from tests.support.receiver.signals import deliver

SECRET = "sk-very-secret"
UNKNOWN = "01890000-0000-7000-8000-000000000000"


async def figures(client: WireClient) -> dict[str, Any]:
    answer: dict[str, Any] = await client.call("server/diagnostics", {})
    return answer


def by(name: str, rows: list[dict[str, Any]]) -> dict[str, dict[str, Any]]:
    return {row[name]: row for row in rows}


@claim("diagnostics:server")
async def test_it_says_which_server_this_is_and_who_is_connected(tmp_path: Path) -> None:
    before_ms = time.time_ns() // 1_000_000
    async with serve(tmp_path) as served, served.client() as client, served.client(name="n" * 999):
        found = await figures(client)
        server = found["server"]
        assert (server["version"], server["protocolVersion"]) == (VERSION, PROTOCOL_VERSION)
        assert before_ms <= server["startedAtMs"] <= time.time_ns() // 1_000_000
        assert 0 <= server["uptimeMs"] <= time.time_ns() // 1_000_000 - before_ms + 1
        assert found["connections"] == [
            {
                "id": number,
                "clientName": name,
                "clientVersion": "1",
                "requestsInFlight": in_flight,
                "waitingMessages": 0,
                "waitingChars": 0,
            }
            for number, name, in_flight in ((1, "test", 1), (2, "n" * MAX_LABEL_CHARS, 0))
        ]
        assert len(found["connections"]) <= MAX_CONNECTIONS


@claim("diagnostics:latency", "diagnostics:failures")
async def test_answers_are_counted_by_method_and_failures_by_kind(tmp_path: Path) -> None:
    async with serve(tmp_path) as served, served.client() as client:
        for _ in range(3):
            await client.call("thread/list", {})
        for method, params in (
            ("thread/read", {"threadId": UNKNOWN}),
            ("thread/archive", {"threadId": UNKNOWN}),
            ("thread/list", {"limit": SECRET}),
            (f"no/{SECRET}", {}),
        ):
            await client.refusal(method, params)
        await client.send(f"[{SECRET}")
        await client.receive()
        found = await figures(client)
    methods = by("method", found["methods"])
    assert {name: (row["count"], row["failed"]) for name, row in methods.items()} == {
        "initialize": (1, 0),
        "thread/list": (4, 1),
        "thread/read": (1, 1),
        "thread/archive": (1, 1),
    }
    for row in methods.values():
        assert sum(bucket["count"] for bucket in row["buckets"]) == row["count"]
        assert 0 < row["p50Us"] <= row["p99Us"] <= row["maxUs"] + 1
    assert [
        (row["source"], row["kind"], row["count"], row["lastMethod"]) for row in found["failures"]
    ] == [
        ("request", "parseError", 1, None),
        ("request", "methodNotFound", 1, None),
        ("request", "invalidParams", 1, "thread/list"),
        ("request", "threadNotFound", 2, "thread/archive"),
    ]
    assert SECRET not in json.dumps(found)
    assert UNKNOWN not in json.dumps(found)


@claim("diagnostics:failures")
async def test_turns_are_counted_by_how_they_ended(tmp_path: Path) -> None:
    gate = Gate()
    async with serve(tmp_path) as served, served.client() as client:
        thread_id = await client.start_thread()
        served.model.scripts += [
            says("fine"),
            Refusal(400, {"error": {"message": SECRET}}),
            [gate, *says("late")],
        ]
        await client.turn(thread_id, SECRET)
        await client.turn(thread_id, SECRET)
        turn = await client.call(
            "turn/start", {"threadId": thread_id, "input": [{"type": "text", "text": "x"}]}
        )
        await gate.wait_until_reached()
        during = (await figures(client))["threads"]
        await client.call("turn/interrupt", {"threadId": thread_id, "turnId": turn["turn"]["id"]})
        await client.wait_for("turn/completed")
        found = await figures(client)
    assert during == {
        "loaded": 1,
        "running": 1,
        "waitingForUser": 0,
        "turnsCompleted": 1,
        "turnsFailed": 1,
        "turnsInterrupted": 0,
    }
    assert found["threads"] == during | {"running": 0, "turnsInterrupted": 1}
    assert [(row["source"], row["kind"]) for row in found["failures"]] == [("turn", "badRequest")]
    assert SECRET not in json.dumps(found)
    assert thread_id not in json.dumps(found)


@claim("diagnostics:queues")
async def test_queues_say_their_bound_and_how_full_they_are(tmp_path: Path) -> None:
    limits = ConnectionLimits()
    async with serve(tmp_path) as served, served.client() as client, served.client():
        thread_id = await client.start_thread()
        for name in "ab":
            await deliver(client, thread_id, name)
        found = await figures(client)
    queues = by("name", found["queues"])
    assert queues["connection.requests"] == {
        "name": "connection.requests",
        "unit": "requests",
        "bound": limits.max_in_flight,
        "fullest": 1,
        "total": 1,
        "owners": 2,
    }
    bounds = {name: (row["bound"], row["owners"]) for name, row in queues.items()}
    files = bounds.pop("process.files", (0, 1))
    assert bounds == {
        "connection.requests": (256, 2),
        "connection.requestTexts": (128 * 1024 * 1024, 2),
        "connection.outbox": (8192, 2),
        "connection.outboxTexts": (16 * 1024 * 1024, 2),
        "thread.events": (4096, 1),
        "thread.eventBytes": (1024 * 1024, 1),
        "thread.queue": (100, 1),
        "thread.queueBytes": (16 * 1024 * 1024, 1),
        "thread.outOfBandElicitations": (1000, 1),
        "thread.signals": (64, 1),
        "process.imports": (1024, 1),
        "process.workerThreads": (40, 1),
        "process.waitForWorker": (None, 1),
    }
    assert files[1] == 1
    assert queues["thread.signals"]["total"] == 2
    assert queues["thread.events"]["total"] > 0
    assert sum(row["count"] for row in found["signals"]) == 2


@pytest.mark.process
@claim("diagnostics:mcp-servers")
async def test_mcp_servers_are_counted_by_status(tmp_path: Path) -> None:
    config = (
        stdio_server("good")
        + f'[mcp_servers.broken]\ncommand = "/nowhere/{SECRET}"\n'
        + '[mcp_servers.off]\ncommand = "x"\nenabled = false\n'
    )
    async with serve(tmp_path, config=config) as served, served.client() as client:
        first = await client.start_thread()
        await client.start_thread()
        served.model.scripts += [says("ok")]
        await client.turn(first, "wait for the servers")
        await client.call("mcpServerStatus/list", {"threadId": first})
        found = await figures(client)
    statuses = by("status", found["mcpServers"])
    assert statuses["disabled"] == {"status": "disabled", "count": 2, "names": ["off"]}
    assert statuses["connected"]["names"] == ["good"]
    assert statuses["failed"]["names"] == ["broken"]
    assert SECRET not in json.dumps(found)
