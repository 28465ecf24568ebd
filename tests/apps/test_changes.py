"""The Apps service while things change under it: the sign-in during a fetch, and its own end."""

import asyncio
from collections.abc import Callable, Coroutine
from functools import partial
from pathlib import Path
from typing import Any

import anyio
import anyio.lowlevel
import pytest

from app_server.apps.account import AppsUnavailable
from app_server.apps.routes.backing import ENDED
from app_server.apps.service import MAX_SIGN_INS
from tests.support.apps.hosted import connector
from tests.support.apps.peer import connect
from tests.support.apps.renewal import published
from tests.support.apps.service import LIST, Apps, Who, open_apps, runs
from tests.support.harness import WAIT_S, claim

CALL = "tools/call"


@claim("apps:shutdown")
async def test_a_shutdown_ends_calls_on_generations_that_were_replaced_with_an_answer(
    tmp_path: Path,
) -> None:
    async with open_apps(tmp_path) as apps:
        place = await published(apps)
        shown = apps.service.shown_to("thread")
        assert shown is not None
        lease = shown.generation.lease()
        apps.hosted.script.holds[CALL] = anyio.Event()
        async with connect(*place) as client:
            call = asyncio.create_task(client.refusal(CALL, {"name": "_look"}))
            with anyio.fail_after(WAIT_S):
                await apps.hosted.script.when(CALL).wait()
            apps.hosted.endpoint.connectors[:] = [connector(*runs("read"), id_="mail")]
            newer = await apps.service.refresh_snapshot(apps.config)
            assert newer is not None
            newer.release()
            assert not shown.generation.is_closing
            apps.service.begin_shutdown()
            with anyio.fail_after(WAIT_S):
                await shown.generation.ended()
                assert (await call)[:2] == (-32603, ENDED)
        lease.release()


async def prepared(apps: Apps) -> None:
    await apps.service.prepare_mcp_servers(apps.config)


async def refreshed(apps: Apps) -> None:
    snapshot = await apps.service.refresh_snapshot(apps.config)
    assert snapshot is not None
    snapshot.release()


@claim("apps:restarted")
@pytest.mark.parametrize("ask", [prepared, refreshed])
async def test_who_waits_while_somebody_else_signs_in_gets_the_apps_of_the_new_account(
    tmp_path: Path, ask: Callable[[Apps], Coroutine[Any, Any, None]]
) -> None:
    async with open_apps(tmp_path) as apps:
        script = apps.hosted.script
        held = script.holds[LIST] = anyio.Event()
        asking = asyncio.create_task(ask(apps))
        with anyio.fail_after(WAIT_S):
            await script.when(LIST).wait()
            del script.holds[LIST]
            token = apps.hosted.endpoint.token.get_secret_value()
            apps.auth.change(Who(token, chatgpt_user_id="other"))
            held.set()
            await asking
        assert apps.contribute("current") != []


@claim("apps:restarted")
async def test_a_sign_in_that_changes_all_the_time_is_given_up(tmp_path: Path) -> None:
    async with open_apps(tmp_path) as apps:
        script = apps.hosted.script
        token = apps.hosted.endpoint.token.get_secret_value()
        script.holds[LIST] = anyio.Event()
        asking = asyncio.create_task(refreshed(apps))
        for number in range(MAX_SIGN_INS):
            await script.changes.until(partial(apps.has_fetched, number + 1))
            apps.auth.change(Who(token, chatgpt_user_id=f"user-{number}"))
        with anyio.fail_after(WAIT_S), pytest.raises(AppsUnavailable) as caught:
            await asking
        assert str(caught.value) == "the sign-in has changed"
        assert apps.fetches() == MAX_SIGN_INS


@claim("apps:t-39")
async def test_refreshes_that_wait_behind_a_fetch_share_the_next_one(tmp_path: Path) -> None:
    async with open_apps(tmp_path) as apps:
        held = apps.hosted.script.holds[LIST] = anyio.Event()
        with anyio.fail_after(WAIT_S):
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(refreshed, apps)
                await apps.hosted.script.when(LIST).wait()
                for _ in range(5):
                    tasks.start_soon(refreshed, apps)
                await anyio.lowlevel.checkpoint()
                held.set()
        assert apps.fetches() == 2


@claim("apps:t-38")
async def test_a_port_that_cannot_be_opened_is_a_failed_attempt_like_any_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tries: list[int] = []

    async def no_port(*given: Any) -> None:
        tries.append(len(given))
        raise OSError(24, "Too many open files")

    monkeypatch.setattr("app_server.apps.published.open_generation", no_port)
    async with open_apps(tmp_path) as apps:
        for wait_s in (1.0, 2.0, 4.0):
            with pytest.raises(AppsUnavailable, match=r"^no port can be opened$"):
                await apps.service.refresh_snapshot(apps.config)
            await apps.clock.until_waiting()
            assert apps.clock.waits[-1] == wait_s
    assert len(tries) == 4
