"""The Apps service: discovery, publication, what threads get of it."""

import logging
import re
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import anyio
import pytest
from starlette.responses import Response

from app_server.apps.account import AppsUnavailable
from app_server.apps.routes.generation import Generation, open_generation
from app_server.apps.service import INSTRUCTIONS, AppsService
from app_server.extensions.contract.registry import ExtensionRegistry
from tests.support.apps.hosted import connector, serve_hosted
from tests.support.apps.service import BOTH, LIST, NoPlugins, Who, open_apps, runs, served
from tests.support.harness import WAIT_S, claim, serve
from tests.support.model import Gate, calls, says, tools_of_thread

NAMESPACE = "mcp__codex_apps__cal"


@claim("apps:t-43", "apps:t-44")
async def test_discovery_is_in_the_background_and_current_starts_nothing(tmp_path: Path) -> None:
    async with open_apps(tmp_path) as apps:
        assert apps.contribute("current") == []
        await anyio.lowlevel.checkpoint()
        assert apps.fetches() == 0
        before = apps.service.revision()
        assert apps.contribute() == []
        assert apps.contribute() == []
        await apps.published(before)
        assert apps.contribute("current") == BOTH
        assert apps.fetches() == 1
        assert apps.contribute() == BOTH
        assert apps.fetches() == 1


@claim("apps:measured")
async def test_what_takes_time_is_measured_under_the_names_of_codex(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG, "app_server.apps.measured")

    def measured() -> list[str]:
        texts = [record.getMessage() for record in caplog.records]
        caplog.clear()
        return [re.sub(r"=\d+\.\d\d ", " ", text) for text in texts if "codex." in text]

    fetch = "codex.mcp.tools.fetch_uncached.duration_ms outcome="
    listed = "codex.mcp.tools.list.duration_ms outcome="
    written = "codex.mcp.tools.cache_write.duration_ms outcome=done"
    async with open_apps(tmp_path) as apps:
        hosted = apps.hosted
        (await served(apps)).release()
        assert measured() == [f"{fetch}done", written, f"{listed}done cache=miss"]
        hosted.script.answers[LIST] = [Response(status_code=500) for _ in range(2)]
        with pytest.raises(AppsUnavailable):
            await apps.service.refresh_snapshot(apps.config)
        assert measured() == [f"{fetch}failed", f"{fetch}failed", f"{listed}failed cache=miss"]
        again = AppsService(tmp_path, apps.auth, NoPlugins(), environ={})
        async with anyio.create_task_group() as tasks:
            await tasks.start(again.run)
            await again.prepare_mcp_servers(apps.config)
            assert measured()[:1] == [f"{listed}done cache=hit"]
            again.begin_shutdown()


@claim("apps:b2")
async def test_an_equal_inventory_publishes_nothing_new(tmp_path: Path) -> None:
    async with open_apps(tmp_path) as apps:
        first = await apps.service.snapshot(apps.config)
        assert first is not None
        revision, registered = apps.service.revision(), apps.registrations()
        second = await apps.service.refresh_snapshot(apps.config)
        assert second is not None
        assert apps.registrations() == registered
        assert (apps.service.revision(), apps.fetches()) == (revision, 2)
        apps.hosted.endpoint.connectors.append(connector(*runs("see"), id_="mail"))
        third = await apps.service.refresh_snapshot(apps.config)
        assert third is not None
        assert apps.contribute("current") == [*BOTH, "codex_apps__mail"]
        assert apps.service.revision() == revision + 1
        for snapshot in (first, second, third):
            snapshot.release()


@claim("apps:t-38")
async def test_failures_are_repeated_after_longer_and_longer_waits(tmp_path: Path) -> None:
    async with open_apps(tmp_path) as apps:
        script = apps.hosted.script
        script.answers["initialize"] = [Response(status_code=500) for _ in range(60)]
        apps.contribute()
        waits = [1.0, 2.0, 4.0, 8.0, 16.0, 30.0, 30.0]
        for number, _ in enumerate(waits, start=1):
            await apps.clock.until_waiting()
            assert apps.clock.waits == waits[:number]
            asked = script.names().count("initialize")
            assert apps.contribute() == []
            await anyio.lowlevel.checkpoint()
            assert script.names().count("initialize") == asked
            revision = apps.service.revision()
            apps.clock.pass_by()
            # When the wait is over nothing is asked before somebody resolves servers again.
            await apps.published(revision)
            assert script.names().count("initialize") == asked
            if number < len(waits):
                apps.contribute()
        script.answers.clear()
        revision = apps.service.revision()
        apps.contribute()
        await apps.published(revision)
        assert apps.contribute() == BOTH


@claim("apps:t-41")
async def test_a_direct_question_need_not_wait_for_the_cooldown(tmp_path: Path) -> None:
    async with open_apps(tmp_path) as apps:
        apps.hosted.script.answers["initialize"] = [Response(status_code=500) for _ in range(20)]
        with pytest.raises(AppsUnavailable):
            await apps.service.snapshot(apps.config)
        await apps.clock.until_waiting()
        apps.hosted.script.answers.clear()
        snapshot = await apps.service.snapshot(apps.config)
        assert snapshot is not None
        assert snapshot.is_live
        snapshot.release()
        assert apps.contribute("current") == BOTH


@claim("apps:t-39")
async def test_those_who_ask_at_the_same_time_share_one_fetch(tmp_path: Path) -> None:
    async with open_apps(tmp_path) as apps:
        snapshots: list[Any] = []

        async def ask(question: Callable[..., Awaitable[Any]]) -> None:
            snapshots.append(await question(apps.config))

        async with anyio.create_task_group() as tasks:
            for _ in range(5):
                tasks.start_soon(ask, apps.service.snapshot)
                tasks.start_soon(ask, apps.service.snapshot_allowing_cached)
        assert apps.fetches() == 1
        assert len({id(one.published) for one in snapshots}) == 1
        for snapshot in snapshots:
            snapshot.release()


@claim("apps:t-45")
async def test_what_is_on_disk_is_used_at_once_and_fetched_beside_it(tmp_path: Path) -> None:
    async with serve_hosted([connector(*runs("look"), id_="cal")]) as hosted:
        async with open_apps(tmp_path, hosted) as apps:
            await apps.service.prepare_mcp_servers(apps.config)
        held = hosted.script.holds.setdefault(LIST, anyio.Event())
        async with open_apps(tmp_path, hosted) as apps:
            revision = apps.service.revision()
            assert apps.contribute() == []
            await apps.published(revision)
            assert apps.contribute() == BOTH
            kept = apps.service.current_snapshot(apps.config)
            assert kept is not None
            assert not kept.is_live
            registered = apps.registrations()
            held.set()
            live = await apps.service.snapshot(apps.config)
            assert live is not None
            assert live.is_live
            # The same tools: the same servers.
            assert apps.registrations() == registered
            assert apps.fetches() == 2
            for snapshot in (kept, live):
                snapshot.release()


@claim("apps:t-42")
async def test_a_sign_out_takes_the_servers_away_and_a_sign_in_fetches_anew(
    tmp_path: Path,
) -> None:
    async with open_apps(tmp_path) as apps:
        await apps.service.prepare_mcp_servers(apps.config)
        assert apps.contribute() == BOTH
        snapshot = apps.service.current_snapshot(apps.config)
        assert snapshot is not None
        revision = apps.service.revision()
        apps.auth.change(None)
        assert apps.service.revision() > revision
        assert apps.contribute() == []
        assert apps.service.current_snapshot(apps.config) is None
        snapshot.release()
        token = apps.hosted.endpoint.token.get_secret_value()
        apps.auth.change(Who(token, chatgpt_user_id="other"))
        revision = apps.service.revision()
        assert apps.contribute() == []
        await apps.published(revision)
        assert apps.contribute() == BOTH


@pytest.mark.parametrize(
    "config",
    [
        {"features": {"apps": False}},
        {"mcp_servers": {"codex_apps": {"enabled": False}}},
        {"orchestrator": {"mcp": {"enabled": False}}},
        {"features": {"apps": "maybe"}},
    ],
)
async def test_threads_get_no_servers_where_apps_are_off(tmp_path: Path, config: Any) -> None:
    async with open_apps(tmp_path) as apps:
        assert apps.contribute(**config) == []
        await anyio.lowlevel.checkpoint()
        assert apps.hosted.script.names() == []


@claim("apps:b3", "apps:t-59")
async def test_a_thread_meets_its_apps_as_soon_as_they_are_there(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG, logger="app_server")
    async with open_apps(tmp_path / "apps") as apps:
        registry = ExtensionRegistry([apps.service], in_turns=[apps.service])
        held = apps.hosted.script.holds.setdefault(LIST, anyio.Event())
        base_url = apps.hosted.endpoint.base_url
        config = f'chatgpt_base_url = "{base_url}"\nmcp_optional_startup_grace_ms = 500\n'
        async with (
            serve(tmp_path / "home", config=config, extensions=registry) as served,
            served.client() as client,
        ):
            thread_id = await client.start_thread()
            gate, offered = Gate(), list[int]()

            def play(request: Any) -> Any:
                number = len(served.model.requests) - 1
                if not offered and NAMESPACE in [tool["name"] for tool in request["tools"]]:
                    offered.append(number)
                    return calls({"namespace": NAMESPACE, "name": "_look"})
                if offered:
                    return says("done")
                # On a busy machine a server takes longer to start than a request waits for it.
                return [*([] if number else [gate]), *calls({"name": "nothing"})]

            served.model.choose = play
            revision = apps.service.revision()
            await client.call(
                "turn/start", {"threadId": thread_id, "input": [{"type": "text", "text": "go"}]}
            )
            await gate.wait_until_reached()
            held.set()
            await apps.published(revision)
            gate.opened.set()
            messages = await client.until("turn/completed")
            assert tools_of_thread(served.model.requests[0]) == []
            told = [role_text for role_text in served.model.inputs(0) if "apps" in role_text[1]]
            assert told == []
            [first] = offered
            assert len(served.model.requests) == first + 2
            assert ("developer", INSTRUCTIONS) in served.model.inputs(first)
            [item] = [
                m["params"]["item"]
                for m in messages
                if m.get("method") == "item/completed"
                and m["params"]["item"]["type"] == "mcpToolCall"
            ]
            assert (item["server"], item["status"]) == ("codex_apps__cal", "completed")
            assert item["appContext"]["connectorId"] == "cal"
            assert item["result"]["content"] == [{"type": "text", "text": "did"}]
            bearer = apps.hosted.endpoint.token.get_secret_value()
            assert bearer not in "\n".join(client.transcript)
            assert bearer not in "\n".join(record.getMessage() for record in caplog.records)


async def test_a_sign_out_while_a_generation_opens_leaves_nothing_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened: list[Generation] = []

    async def open_and_sign_out(*given: Any) -> Generation:
        generation = await open_generation(*given)
        opened.append(generation)
        apps.auth.change(None)
        return generation

    monkeypatch.setattr("app_server.apps.published.open_generation", open_and_sign_out)
    async with open_apps(tmp_path) as apps:
        assert await apps.service.snapshot(apps.config) is None
        with anyio.fail_after(WAIT_S):
            await opened[0].ended()
        assert opened[0].leases == 0
