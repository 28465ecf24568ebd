"""Apps in the first turn of a thread that was started right after the server."""

from functools import partial
from pathlib import Path
from typing import Any

import anyio
import pytest
from starlette.responses import Response

from app_server.apps import service
from app_server.apps.connection import Timer
from app_server.apps.upstream import hosted_session
from app_server.config.values import Config
from app_server.mcp.catalog import tables
from app_server.mcp.catalog.tables import read_mcp_settings
from app_server.turns import servers
from tests.support.apps.hosted import connector, serve_hosted, sign_in
from tests.support.apps.service import LIST, runs
from tests.support.harness import WAIT_S, Served, claim, serve

NAMESPACE = "mcp__codex_apps__test"
WAITS_FOR_ALL = "mcp_optional_startup_grace_ms = 0\n"


def namespaces(served: Served) -> list[list[str]]:
    """Return the namespaces that each model request declared."""
    return [
        [tool["name"] for tool in request.get("tools", []) if tool["type"] == "namespace"]
        for request in served.model.requests
    ]


def apps() -> Any:
    return serve_hosted([connector(*runs("look"))])


@claim("apps:first-turn")
@pytest.mark.parametrize("cached", [False, True])
async def test_the_first_turn_after_a_start_has_the_apps(tmp_path: Path, cached: bool) -> None:
    async with apps() as hosted:
        settings = sign_in(tmp_path, hosted) + WAITS_FOR_ALL
        if cached:
            async with (
                serve(tmp_path, config=settings, with_apps=True) as one,
                one.client() as client,
            ):
                # What is fetched a second time was fetched, and written, before.
                await client.call("app/list", {"forceRefetch": True})
            hosted.script.holds["initialize"] = anyio.Event()
        async with (
            serve(tmp_path, config=settings, with_apps=True) as served,
            served.client() as client,
        ):
            thread_id = await client.start_thread()
            for _ in range(3):
                await client.turn(thread_id, "hi")
        assert namespaces(served) == [[NAMESPACE]] * 3


@claim("apps:first-turn")
async def test_a_thread_has_its_apps_started_without_a_turn(tmp_path: Path) -> None:
    async with apps() as hosted:
        settings = sign_in(tmp_path, hosted)
        async with (
            serve(tmp_path, config=settings, with_apps=True) as served,
            served.client() as client,
        ):
            thread_id = await client.start_thread()
            await client.wait_for(
                "mcpServer/startupStatus/updated",
                lambda p: (p["name"], p["status"]) == ("codex_apps__test", "ready"),
            )
            await client.turn(thread_id, "hi")
        assert namespaces(served) == [[NAMESPACE]]


@claim("apps:first-turn")
async def test_the_first_turn_waits_for_apps_no_longer_than_for_other_servers(
    tmp_path: Path,
) -> None:
    async with apps() as hosted:
        settings = sign_in(tmp_path, hosted) + "mcp_optional_startup_grace_ms = 50\n"
        held = hosted.script.holds[LIST] = anyio.Event()
        async with (
            serve(tmp_path, config=settings, with_apps=True) as served,
            served.client() as client,
        ):
            thread_id = await client.start_thread()
            await client.turn(thread_id, "hi")
            held.set()
            await client.call("app/list", {})
            await client.turn(thread_id, "hi")
            # A call waits for a server that starts.
            call = {"threadId": thread_id, "server": "codex_apps__test", "tool": "_look"}
            await client.call("mcpServer/tool/call", call)
            await client.turn(thread_id, "hi")
        assert [namespaces(served)[0], namespaces(served)[-1]] == [[], [NAMESPACE]]


@claim("apps:first-turn")
async def test_the_first_turn_waits_for_the_first_look_within_the_grace(tmp_path: Path) -> None:
    async with apps() as hosted:
        settings = sign_in(tmp_path, hosted) + "mcp_optional_startup_grace_ms = 3600000\n"
        held = hosted.script.holds[LIST] = anyio.Event()
        async with (
            serve(tmp_path, config=settings, with_apps=True) as served,
            served.client() as client,
        ):
            thread_id = await client.start_thread()
            await client.call(
                "turn/start", {"threadId": thread_id, "input": [{"type": "text", "text": "hi"}]}
            )
            for _ in range(20):
                # Time for a request that does not wait to be made.
                await client.call("thread/loaded/list", {})
            assert served.model.requests == []
            held.set()
            await client.wait_for("turn/completed")
        assert namespaces(served) == [[NAMESPACE]]


@claim("apps:first-turn")
@pytest.mark.parametrize("held", ["initialize", LIST])
async def test_an_endpoint_that_hangs_holds_turns_up_no_longer_than_a_server(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, held: str
) -> None:
    # What is not the grace is longer than this test waits.
    monkeypatch.setattr(servers, "DISCOVERY_S", 1800.0)
    monkeypatch.setattr(tables, "DEFAULT_GRACE_MS", 10)
    async with apps() as hosted:
        hosted.script.holds[held] = anyio.Event()
        async with (
            serve(tmp_path, config=sign_in(tmp_path, hosted), with_apps=True) as served,
            served.client() as client,
        ):
            thread_id = await client.start_thread()
            for _ in range(2):
                await client.turn(thread_id, "hi")
            hosted.script.holds.pop(held).set()
        assert namespaces(served) == [[], []]
        assert read_mcp_settings(Config({})).startup_grace_s == 0.01


@claim("apps:first-turn")
async def test_a_look_without_a_limit_of_the_grace_ends_with_its_first_failure(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(servers, "DISCOVERY_S", 1800.0)
    monkeypatch.setattr(hosted_session, "INTRODUCTION_S", 1800.0)
    async with apps() as hosted:
        settings = sign_in(tmp_path, hosted) + WAITS_FOR_ALL
        hosted.script.answers[LIST] = [Response(status_code=500)]
        again = anyio.Event()

        async def hold_what_comes_again() -> None:
            await hosted.script.when(LIST).wait()
            hosted.script.holds["initialize"] = again

        async with (
            anyio.create_task_group() as tasks,
            serve(tmp_path, config=settings, with_apps=True) as served,
            served.client() as client,
        ):
            tasks.start_soon(hold_what_comes_again)
            thread_id = await client.start_thread()
            await client.turn(thread_id, "hi")
            again.set()
            await client.call("app/list", {})
            await client.turn(thread_id, "hi")
        assert namespaces(served) == [[], [NAMESPACE]]


@claim("apps:first-turn")
async def test_threads_wait_for_one_look_together(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    began_s: list[float] = []

    def an_hour_ago() -> float:
        began_s.append(anyio.current_time() - 3600.0)
        return began_s[-1]

    monkeypatch.setattr(service, "Timer", partial(Timer, now_s=an_hour_ago))
    monkeypatch.setattr(servers, "DISCOVERY_S", 1800.0)
    async with apps() as hosted:
        settings = sign_in(tmp_path, hosted) + "mcp_optional_startup_grace_ms = 1800000\n"
        held = hosted.script.holds[LIST] = anyio.Event()
        async with (
            serve(tmp_path, config=settings, with_apps=True) as served,
            served.client() as client,
        ):
            first = await client.start_thread()
            with anyio.fail_after(WAIT_S):
                await hosted.script.when(LIST).wait()
            for thread_id in (first, await client.start_thread()):
                # With a time of its own it would wait until the look has failed, after a minute.
                with anyio.fail_after(WAIT_S / 2):
                    await client.turn(thread_id, "hi")
            assert began_s
            assert namespaces(served) == [[], []]
            held.set()
            await client.call("app/list", {})
            for thread_id in (first, await client.start_thread()):
                await client.turn(thread_id, "hi")
            assert namespaces(served)[2:] == [[NAMESPACE], [NAMESPACE]]
