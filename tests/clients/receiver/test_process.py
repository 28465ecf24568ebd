"""The bridge, the demo router and a server as processes: how signals arrive."""

import json
import os
import re
import signal as signals
from pathlib import Path
from typing import Any

import pytest

from app_server.peer.connection import open_client
from tests.support.receiver.peer import KEY, signal
from tests.support.receiver.processes import (
    EXECUTABLE,
    bridge,
    post,
    router_process,
    server_process,
    states,
    times_in_log,
    until,
)
from tests.support.receiver.threads import arrived, start_thread

pytestmark = pytest.mark.process


async def test_without_an_app_server_a_signal_arrives_in_a_tool_result(tmp_path: Path) -> None:
    async with (
        router_process(tmp_path) as (router, _),
        bridge(tmp_path, "Desiree", router=router) as desiree,
        bridge(tmp_path, "Texi", router=router) as texi,
    ):
        assert (await texi.initialize())["serverInfo"]["name"] == "prism"
        await desiree.initialize()
        tools = (await texi.request("tools/list", {}))["tools"]
        await desiree.until_status(router="connected")
        payload = {"summary": "How far are you?", "task": 7}
        sent = await desiree.call(
            "prism_signal", to="Texi", signal_type="Question", payload=payload, signal_id="q1"
        )
        await until(lambda: states(texi.ledger) == {"q1": "waiting"})
        status = await texi.call("prism_status")
        first = await texi.call("prism_signals_pending")
        again = await texi.call("prism_signals_pending")
        acked = await texi.call("prism_signals_pending", ack=["q1", "other"])
        whole = await texi.call("prism_signals_pending", id="q1")

    assert [tool["name"] for tool in tools] == [
        "prism_signals_pending",
        "prism_signal",
        "prism_status",
    ]
    assert {tool["name"]: tool["annotations"] for tool in tools} == {
        "prism_signals_pending": {
            "title": "Signals",
            "destructiveHint": False,
            "openWorldHint": False,
        },
        "prism_signal": {"title": "Send a signal", "idempotentHint": False},
        "prism_status": {"title": "Receiver", "readOnlyHint": True},
    }
    assert sent == {"signal_id": "q1", "accepted": True, "pending_signals": 0}
    assert status.pop("signals") == first["signals"]
    assert status == {
        "session": "Texi",
        "router": "connected",
        "app_server": "none",
        "thread_id": None,
        "dead_letters": 0,
        "pending_signals": 1,
    }
    arrived_at = first["signals"][0].pop("created_at")
    assert isinstance(arrived_at, int)
    shown = {
        "signal_id": "q1",
        "signal_type": "Question",
        "from": "Desiree",
        "to": "Texi",
        "payload": payload,
        "delivery_class": "async",
    }
    assert first == {"signals": [shown], "acked": [], "pending_signals": 1}
    assert again["signals"] == [{**shown, "created_at": arrived_at}]
    assert acked == {"signals": [], "acked": ["q1"], "pending_signals": 0}
    assert whole["signals"] == again["signals"]


@pytest.mark.slow
async def test_with_an_app_server_a_signal_arrives_in_the_thread_and_an_answer_goes_back(
    tmp_path: Path,
) -> None:
    folder = tmp_path / "work"
    folder.mkdir()
    async with (
        server_process(tmp_path) as (server, _),
        router_process(tmp_path) as (router, _),
    ):
        thread = await start_thread(server, folder)
        async with (
            bridge(tmp_path, "Desiree", router=router) as desiree,
            bridge(tmp_path, "Texi", router=router, server=server, cwd=folder) as texi,
        ):
            await desiree.initialize()
            await texi.initialize()
            await desiree.until_status(router="connected")
            await desiree.call("prism_signal", to="Texi", signal_type="Question", payload="Well?")
            await until(lambda: list(states(texi.ledger).values()) == ["injected"])
            signal_id = next(iter(states(texi.ledger)))
            status = await texi.call("prism_status")
            await texi.call(
                "prism_signal", to="Desiree", signal_type="Acknowledgment", payload=signal_id
            )
            await desiree.until_status(pending_signals=1)
            answer = await desiree.call("prism_signals_pending")
            whole = await texi.call("prism_signals_pending", id=signal_id)

    assert times_in_log(thread["path"], signal_id) == 1
    assert status == {
        "session": "Texi",
        "router": "connected",
        "app_server": "connected",
        "thread_id": thread["id"],
        "dead_letters": 0,
        "pending_signals": 0,
    }
    assert answer["signals"][0]["payload"] == signal_id
    assert whole["signals"][0]["payload"] == "Well?"


@pytest.mark.slow
async def test_a_second_bridge_of_a_session_shows_signals_and_takes_over_when_the_first_ends(
    tmp_path: Path,
) -> None:
    async with (
        router_process(tmp_path) as (router, _),
        bridge(tmp_path, router=router) as first,
    ):
        await first.initialize()
        await first.until_status(router="connected")
        async with bridge(tmp_path, router=router) as second:
            await second.initialize()
            await second.until_status(router="standby")
            await post(router, signal("s1"))
            await second.until_status(pending_signals=1)
            shown = await second.call("prism_signals_pending")
            refused = await second.call(
                "prism_signal", to="Texi", signal_type="x", payload="", signal_id="s9"
            )
            assert await first.leave() == 0
            await second.until_status(router="connected")
            await second.call("prism_signals_pending", ack=["s1"])
            assert states(second.ledger) == {"s1": "acked"}
            os.kill(second.process.pid, signals.SIGTERM)
            assert await second.ended() == 0

    assert shown["signals"] == [arrived()]
    assert refused == {
        "error": "another receiver has this session; send it again with signal_id 's9'",
        "pending_signals": 1,
    }


async def test_each_unseen_signal_comes_with_one_tool_result(
    tmp_path: Path,
) -> None:
    async with (
        router_process(tmp_path) as (router, _),
        bridge(tmp_path, router=router) as texi,
    ):
        await texi.initialize()
        sent = [arrived(**signal(one)) for one in ("s1", "s2", "s3")]
        await post(router, signal("s1"), signal("s2"))
        await until(lambda: states(texi.ledger) == {"s1": "waiting", "s2": "waiting"})
        first = await texi.call("prism_signal", to="Texi", signal_type="", payload=1)
        await post(router, signal("s3"))
        await until(lambda: states(texi.ledger).get("s3") == "waiting")
        second = await texi.call("prism_signal", to="Ann", signal_type="x", payload=1)
        third = await texi.call("prism_status")
        whole = await texi.call("prism_signals_pending")

    assert (first["signals"], first["pending_signals"], "error" in first) == (sent[:2], 2, True)
    assert (second["signals"], second["pending_signals"]) == (sent[2:], 3)
    assert ("signals" in third, third["pending_signals"]) == (False, 3)
    assert whole == {"signals": sent, "acked": [], "pending_signals": 3}


@pytest.mark.slow
async def test_the_item_in_the_thread_names_a_call_that_gives_the_payload(tmp_path: Path) -> None:
    home = tmp_path
    async with router_process(home) as (router, _), server_process(home) as (server, _):
        async with open_client(server, "terminal") as client:
            prism = {
                "command": str(EXECUTABLE),
                "args": ["receiver", "--router-url", router, "--session", "Texi"],
                "env": {
                    "PRISM_API_KEY": KEY,
                    "PRISM_CODEX_APP_SERVER_URL": server,
                    "APP_SERVER_HOME": str(home),
                },
                "required": True,
            }
            config = {"mcp_servers": {"prism": prism}}
            params = {"cwd": str(home), "config": config}
            thread: Any = (await client.call("thread/start", params))["thread"]
            await post(router, signal("s1"))
            ledger = home / "receiver" / "Texi.sqlite3"
            await until(lambda: states(ledger) == {"s1": "injected"})
            named = re.search(
                r"\[end of signal\] Call (\w+) with (\{.*?\}) only when",
                Path(thread["path"]).read_text().replace('\\"', '"'),
            )
            assert named is not None
            call = {
                "threadId": thread["id"],
                "server": "prism",
                "tool": named[1],
                "arguments": json.loads(named[2]),
            }
            result: Any = await client.call("mcpServer/tool/call", call)

        assert result["structuredContent"] == {
            "signals": [arrived()],
            "acked": [],
            "pending_signals": 0,
        }


async def test_calls_that_make_no_sense_are_answered_with_what_is_wrong(tmp_path: Path) -> None:
    async with bridge(tmp_path) as texi:
        await texi.initialize()
        assert texi.process.stdin is not None
        texi.process.stdin.write(b'no json\n{"jsonrpc":"2.0"}\n')
        answers = [
            await texi.call("nonsense"),
            await texi.call("prism_signals_pending", ack="s1"),
            await texi.call("prism_signals_pending", id="s1"),
            await texi.call("prism_signals_pending", id=5),
            await texi.call("prism_status", x=1),
            await texi.call("prism_signal", to="x", signal_type="", payload=1),
            await texi.call("prism_signal", to="x", signal_type="y", payload=1, signal_id="s1"),
        ]

    assert [answer.pop("pending_signals") for answer in answers] == [0] * 7
    assert [answer["error"] for answer in answers] == [
        "Unknown tool 'nonsense'",
        "`ack` must be a list of ids",
        "no signal with this `id` is here, or not any more",
        "`id` must be the id of a signal",
        "unknown argument `x`",
        "`signal_type` must be 1 to 200 printable characters",
        "no router is configured; send it again with signal_id 's1'",
    ]


async def test_the_key_is_in_no_file_and_in_no_log(tmp_path: Path) -> None:
    async with (
        router_process(tmp_path) as (router, _),
        bridge(tmp_path, router=router, options=["--log-level", "debug"]) as texi,
    ):
        await texi.initialize()
        await post(router, {**signal("s1")}, {**signal("s2"), "ttl_s": 5})
        await texi.until_status(pending_signals=2)
        command = Path(f"/proc/{texi.process.pid}/cmdline").read_bytes()
        assert await texi.leave() == 0
        files = [path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()]

    assert files
    assert not any(KEY.encode() in content for content in [command, *files])
    assert KEY not in "".join(texi.said)
