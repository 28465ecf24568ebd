"""The apps before there is a reason to have them, when one comes, and when they cannot be had."""

import gc
import logging
import subprocess
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, TypeVar

import anyio
import anyio.lowlevel
import pytest

from app_server.apps import lazy as late
from app_server.apps.account import AppsUnavailable
from app_server.apps.lazy import LazyApps
from app_server.apps.presentation import ApprovalTemplates
from app_server.extensions.contract.registration import ContributionContext
from app_server.extensions.contract.registry import ExtensionRegistry
from app_server.extensions.contract.turns import Presentation, ToolCall
from app_server.runtime.loader import load
from tests.support.apps.files.local import ThisMachine
from tests.support.apps.hosted import connector, serve_hosted
from tests.support.apps.service import BOTH, Auth, NoPlugins, State, Who, runs
from tests.support.harness import WAIT_S, claim

T = TypeVar("T")

CALL = ToolCall("thread", "turn", "item", "codex_apps__cal", "_look")


@asynccontextmanager
async def run_lazy_apps(
    home: Path, auth: Auth, base_url: str | None = None
) -> AsyncIterator[tuple[LazyApps, ExtensionRegistry]]:
    apps = LazyApps(home, ThisMachine(), NoPlugins())
    registry = ExtensionRegistry(late=[apps], install_checks=[apps])
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(apps.run, auth, registry, base_url)
        await apps.settled()
        try:
            yield apps, registry
        finally:
            tasks.cancel_scope.cancel()


def context(config: dict[str, Any]) -> ContributionContext:
    return ContributionContext("discover", config, "thread")


def names(registry: ExtensionRegistry) -> list[str]:
    """Name the servers that threads are given."""
    return [one.name for one in registry.contributions(context({})).registrations]


async def answers(apps: LazyApps, registry: ExtensionRegistry) -> list[Any]:
    """Ask everything that can be asked."""
    await apps.prepare_mcp_servers({})
    await registry.discovered(context({}))
    await registry.refresh(context({}))
    return [
        apps.account(),
        apps.value,
        await apps.get(),
        names(registry),
        registry.in_turns.instructions(context({}), [("codex_apps__cal", "_look")]),
        registry.in_turns.present(CALL),
        registry.revisions(),
    ]


NOTHING: list[Any] = [None, None, None, [], [], Presentation(), (0,)]


@pytest.fixture
def imported(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Note what is asked of the importer."""
    names: list[str] = []

    async def note(work: Callable[[], T]) -> T:
        names.append(work.__name__)
        return await load(work)

    monkeypatch.setattr(late, "load", note)
    return names


@claim("apps:t-55")
@pytest.mark.parametrize("who", [None, Who("s3cr3t-key", is_chatgpt=False)])
async def test_without_an_account_of_chatgpt_nothing_is_imported_or_asked(
    tmp_path: Path, imported: list[str], who: Who | None
) -> None:
    async with serve_hosted([connector(*runs("look"), id_="cal")]) as hosted:
        auth = Auth(State(who, 1))
        async with run_lazy_apps(tmp_path, auth, hosted.endpoint.base_url) as (apps, registry):
            with anyio.fail_after(WAIT_S):
                assert await answers(apps, registry) == NOTHING
            # Another key is no reason either.
            auth.change(Who("s3cr3t-other-key", is_chatgpt=False))
            with anyio.fail_after(WAIT_S):
                assert await answers(apps, registry) == NOTHING
        assert (imported, hosted.script.arrivals) == ([], [])
        assert auth.listeners == []


@claim("apps:t-42")
async def test_an_account_that_signs_in_later_has_its_apps(
    tmp_path: Path, imported: list[str]
) -> None:
    async with serve_hosted([connector(*runs("look"), id_="cal")]) as hosted:
        auth = Auth(State(None, 1))
        async with run_lazy_apps(tmp_path, auth, hosted.endpoint.base_url) as (apps, registry):
            assert names(registry) == []
            before = registry.revisions()
            auth.change(Who(hosted.endpoint.token.get_secret_value()))
            with anyio.fail_after(WAIT_S):
                await apps.prepare_mcp_servers({})
            assert registry.revisions() != before
            assert names(registry) == BOTH
            assert registry.in_turns.present(CALL).app_context is not None
            auth.change(None)
            assert names(registry) == []
            with anyio.fail_after(WAIT_S):
                assert await apps.get() is None
        assert imported == ["_import"]
        assert auth.listeners == []


async def test_apps_that_cannot_be_loaded_are_an_error_and_loaded_with_the_next_request(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def broken() -> Any:
        raise ImportError("no such module")

    real = late._import
    monkeypatch.setattr(late, "_import", broken)
    async with serve_hosted([connector(*runs("look"), id_="cal")]) as hosted:
        auth = Auth(State(Who(hosted.endpoint.token.get_secret_value()), 1))
        async with run_lazy_apps(tmp_path, auth, hosted.endpoint.base_url) as (apps, registry):
            for _ in range(2):
                with pytest.raises(AppsUnavailable, match="ImportError: no such module"):
                    await apps.get()
            # A list of servers is not all apps.
            await apps.prepare_mcp_servers({})
            assert names(registry) == []
            monkeypatch.setattr(late, "_import", real)
            with anyio.fail_after(WAIT_S):
                service = await apps.get()
                assert service is not None
                assert await service.snapshot({}) is not None
            assert names(registry) == BOTH
    said = {record.getMessage() for record in caplog.records if record.levelno > logging.INFO}
    assert {text.partition(":")[0] for text in said} == {
        "the apps cannot be loaded",
        "there are no MCP servers of apps",
    }


async def test_apps_whose_service_does_not_start_are_an_error_and_started_with_the_next_request(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken() -> Any:
        raise OSError("no templates")

    async with serve_hosted([connector(*runs("look"), id_="cal")]) as hosted:
        auth = Auth(State(Who(hosted.endpoint.token.get_secret_value()), 1))
        with monkeypatch.context() as patched:
            patched.setattr(ApprovalTemplates, "load", broken)
            async with run_lazy_apps(tmp_path, auth, hosted.endpoint.base_url) as (apps, _):
                for _ in range(2):
                    with pytest.raises(AppsUnavailable, match="no templates"):
                        await apps.get()
                patched.undo()
                with anyio.fail_after(WAIT_S):
                    assert await apps.get() is not None


async def test_what_is_not_known_is_no_empty_list(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    apps = LazyApps(tmp_path, ThisMachine(None), NoPlugins())
    with monkeypatch.context() as patched:
        patched.setattr(late, "LOAD_S", 0.0)
        with pytest.raises(AppsUnavailable, match="not known after 0 s whose apps they are"):
            await apps.get()
    apps.give_up(OSError("no port"))
    with pytest.raises(AppsUnavailable, match="cannot be served now: no port"):
        await apps.settled()


async def test_who_gives_up_lets_everybody_go_on_without_apps(tmp_path: Path) -> None:
    apps = LazyApps(tmp_path, ThisMachine(None), NoPlugins())
    found: list[Any] = []

    async def ask() -> None:
        found.append(await apps.get())

    with anyio.fail_after(WAIT_S):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(ask)
            await anyio.lowlevel.checkpoint()
            assert found == []
            apps.give_up()
    assert found == [None]


async def test_what_was_imported_is_no_business_of_garbage_collections_any_more() -> None:
    imported = [late]
    await late._load()
    assert not any(found is imported for found in gc.get_objects())


@claim("plugins:suggested")
async def test_the_apps_of_a_plugin_are_there_when_all_of_them_are_linked(tmp_path: Path) -> None:
    async with serve_hosted([connector(*runs("look"), id_="cal")]) as hosted:
        auth = Auth(State(Who(hosted.endpoint.token.get_secret_value()), 1))
        async with run_lazy_apps(tmp_path, auth, hosted.endpoint.base_url) as (apps, _):

            async def verified(*ids: str, **features: bool) -> bool | None:
                with anyio.fail_after(WAIT_S):
                    return await apps.verify_install(ids, context({"features": features}))

            lists = hosted.script.names
            assert await verified("cal")
            fetched = lists().count("tools/list")
            assert await verified("cal")
            assert lists().count("tools/list") == fetched
            # What is missing may have been linked a moment ago: it is looked for once more.
            assert await verified("cal", "mail") is False
            assert lists().count("tools/list") == fetched + 1
            hosted.endpoint.connectors.append(connector(*runs("send"), id_="mail"))
            assert await verified("cal", "mail")
            assert await verified("mail", apps=False) is None
            auth.change(None)
            assert await verified("cal") is False


async def test_apps_that_cannot_be_asked_verify_no_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def broken() -> Any:
        raise ImportError("no such module")

    monkeypatch.setattr(late, "_import", broken)
    auth = Auth(State(Who("s3cr3t"), 1))
    async with run_lazy_apps(tmp_path, auth) as (apps, _):
        with anyio.fail_after(WAIT_S):
            assert await apps.verify_install(["cal"], context({})) is False
    assert "whether the apps of a plugin are there is not known" in caplog.text


@pytest.mark.process
def test_until_an_app_is_called_the_mcp_sdk_is_not_imported() -> None:
    code = (
        "import sys, app_server.apps.service, app_server.apps.inventory.fetch; "
        "print([name for name in sys.modules if name.split('.')[0] == 'mcp'])"
    )
    argv = [sys.executable, "-c", code]
    assert subprocess.run(argv, capture_output=True, check=True, text=True).stdout == "[]\n"


@pytest.mark.process
def test_a_list_of_tools_is_had_without_the_sdk_of_mcp_and_a_web_server() -> None:
    code = (
        "import sys; import app_server.apps.service; "
        "print([name for name in ('mcp', 'mcp_types', 'uvicorn') if name in sys.modules])"
    )
    argv = [sys.executable, "-c", code]
    assert subprocess.run(argv, capture_output=True, check=True, text=True).stdout == "[]\n"
