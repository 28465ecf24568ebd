"""A store of threads in a folder, and logs with records."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import anyio.abc
from hypothesis import strategies as st

from app_server.config.editing.file import ConfigFile
from app_server.config.effective import ConfigSources, Configuration
from app_server.extensions.contract.registry import ExtensionRegistry
from app_server.extensions.hooks.running import HookRunner
from app_server.extensions.plugins.contributor import Plugins
from app_server.extensions.plugins.in_turns import Offers, PluginsInTurns
from app_server.extensions.plugins.store import PluginStore
from app_server.extensions.skills.catalog import SkillCatalog
from app_server.host.commands.local_commands import LocalCommands
from app_server.host.environments import Environments
from app_server.mcp.servers.pool import ServerPool
from app_server.models.catalogue.models import ModelLists
from app_server.models.interface import Provider
from app_server.observability.telemetry.metrics import ServerMetrics
from app_server.permissions.rules import RuleBook
from app_server.permissions.sandbox.roots import read_machine_paths
from app_server.rpc.hub import Hub
from app_server.runtime.clock import SystemClock
from app_server.sessions.registry import Sessions
from app_server.threads.files.budgets import FileBudgets
from app_server.threads.files.store import FileStore
from app_server.threads.log.state import begin
from app_server.threads.rows import ThreadQuery, ThreadRow
from app_server.turns.server_context import ServerContext, ServerPlugins
from app_server.turns.usage.home import HomeBudgets
from protocol.log.metadata import (
    AttachmentAdded,
    AttachmentRemoved,
    DaybreakChanged,
    GitInfoChanged,
    GoalChanged,
    MemoryModeChanged,
    ProjectChanged,
    ReadStateChanged,
    SectionChanged,
)
from protocol.log.rollout import (
    ArchivedChanged,
    HistoryAppended,
    InputQueued,
    InputTaken,
    ItemCompleted,
    NameChanged,
    Record,
    Settings,
    SettingsChanged,
    SignalMark,
    SignalRecalled,
    ThreadCreated,
    TokensUsed,
    TurnCompleted,
    TurnStarted,
)
from protocol.model import JsonObject
from protocol.threads.thread import (
    GitInfo,
    ThreadAttachment,
    ThreadGoal,
    ThreadStartThreadUnreadPosition,
    TurnThreadUnreadPosition,
)
from protocol.turns.items import (
    AgentMessageThreadItem,
    TextUserInput,
    UserInput,
    UserMessageThreadItem,
)
from protocol.turns.policy import ReadOnlySandboxPolicy
from protocol.turns.turn import ThreadTokenUsage, TokenUsageBreakdown
from tests.support.harness import approvals_in
from tests.support.mcp_peers.no_processes import NoProcesses

CLOCK = SystemClock()
SETTINGS = Settings(
    model="m",
    model_provider="p",
    cwd="/",
    approval_policy="on-request",
    sandbox_policy=ReadOnlySandboxPolicy(),
)


def created(at_ms: int = 1000, thread_id: str | None = None, **kwargs: Any) -> ThreadCreated:
    return ThreadCreated(
        at_ms=at_ms,
        thread_id=thread_id or CLOCK.new_id(),
        settings=SETTINGS,
        source="vscode",
        cli_version="0.169.0",
        **kwargs,
    )


def user_message(text: str, at_ms: int = 1, item_id: str = "u") -> UserMessageThreadItem:
    content: list[UserInput] = [TextUserInput(type="text", text=text)]
    return UserMessageThreadItem(
        id=item_id, content=content, started_at_ms=at_ms, completed_at_ms=at_ms
    )


def raw(text: str, role: str = "user") -> dict[str, Any]:
    return {"type": "message", "role": role, "content": [{"type": "input_text", "text": text}]}


USAGE = TokenUsageBreakdown(
    total_tokens=3,
    input_tokens=1,
    cached_input_tokens=0,
    output_tokens=2,
    reasoning_output_tokens=0,
)


def made(record: type[Any], **members: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    """Make records of these members; `builds` would look for the names of the wire."""
    return st.fixed_dictionaries(members).map(lambda chosen: record(**chosen))


texts = st.text(max_size=20)
items = st.dictionaries(texts, st.none() | st.integers() | texts, max_size=3)
times = st.integers(0, 2**45)
signal_ids = st.sampled_from(["a", "b"])
marks = st.builds(SignalMark, source=st.just("s"), id=signal_ids, item_id=texts, woke=st.booleans())
records: st.SearchStrategy[Record] = st.one_of(
    st.builds(
        HistoryAppended,
        at_ms=times,
        items=st.lists(items, min_size=1, max_size=1),
        signals=st.lists(marks, min_size=1, max_size=1),
    ),
    st.builds(
        InputQueued,
        at_ms=times,
        input_id=texts,
        items=st.lists(items, min_size=1, max_size=1),
        signal=marks,
    ),
    st.builds(SignalRecalled, at_ms=times, source=st.just("s"), id=signal_ids),
    st.builds(HistoryAppended, at_ms=times, items=st.lists(items, max_size=3)),
    st.builds(TurnStarted, at_ms=times, turn_id=texts),
    st.builds(
        InputQueued,
        at_ms=times,
        input_id=texts,
        items=st.lists(items, max_size=2),
        message=st.none() | st.builds(user_message, texts),
    ),
    st.builds(InputTaken, at_ms=times),
    st.builds(ItemCompleted, at_ms=times, turn_id=texts, item=st.builds(user_message, texts)),
    st.builds(
        ItemCompleted,
        at_ms=times,
        turn_id=texts,
        item=st.builds(AgentMessageThreadItem, id=texts, text=texts),
    ),
    st.builds(
        TurnCompleted,
        at_ms=times,
        turn_id=texts,
        status=st.sampled_from(["completed", "interrupted", "failed"]),
    ),
    st.builds(NameChanged, at_ms=times, name=texts),
    st.builds(ArchivedChanged, at_ms=times, archived=st.booleans()),
    st.builds(SettingsChanged, at_ms=times, settings=st.just(SETTINGS)),
    made(GitInfoChanged, at_ms=times, git_info=st.none() | made(GitInfo, sha=st.none() | texts)),
    made(DaybreakChanged, at_ms=times, enabled=st.booleans()),
    made(ProjectChanged, at_ms=times, project_id=st.none() | texts),
    made(SectionChanged, at_ms=times, section_id=st.sampled_from([None, "s", "t"]), rank=texts),
    made(MemoryModeChanged, at_ms=times, mode=st.sampled_from(["enabled", "disabled"])),
    made(
        ReadStateChanged,
        at_ms=times,
        first_unread=st.sampled_from(
            [None, ThreadStartThreadUnreadPosition(), TurnThreadUnreadPosition(turn_id="t")]
        ),
        revision=texts,
    ),
    made(
        GoalChanged,
        at_ms=times,
        goal=st.none()
        | made(
            ThreadGoal,
            thread_id=texts,
            objective=texts,
            status=st.sampled_from(["active", "complete"]),
            tokens_used=times,
            time_used_seconds=times,
            created_at=times,
            updated_at=times,
        ),
    ),
    made(
        AttachmentAdded,
        at_ms=times,
        attachment=made(
            ThreadAttachment,
            id=texts,
            attachment_type=texts,
            identity_key=texts,
            payload=items,
            created_at=times,
        ),
    ),
    made(AttachmentRemoved, at_ms=times, attachment_id=texts),
    st.builds(TokensUsed, at_ms=times, usage=st.just(ThreadTokenUsage(total=USAGE, last=USAGE))),
)


def row(number: int, **changes: Any) -> ThreadRow:
    state = begin(created(at_ms=number, thread_id=f"id{number:04}"))
    state.apply(TurnStarted(at_ms=number, turn_id="t"))
    state.apply(ItemCompleted(at_ms=number, turn_id="t", item=user_message(f"hello {number}")))
    return replace(ThreadRow.of(state), **changes)


QUERY = ThreadQuery(limit=2)


@asynccontextmanager
async def open_store(home: Path, address: str | None = None) -> AsyncIterator[FileStore]:
    store = FileStore(home, address)
    await store.open()
    running = asyncio.create_task(store.run())
    try:
        yield store
    finally:
        await store.aclose()
        running.cancel()
        await asyncio.wait({running})


async def listed(store: FileStore) -> list[tuple[str, str]]:
    page = await store.lists.page(replace(QUERY, limit=100))
    return [(row.id, row.preview) for row in page.rows]


class NoModel:
    """A model that nobody asks."""

    def stream(self, provider: Provider, body: JsonObject) -> AbstractAsyncContextManager[Any]:
        raise AssertionError("no turn runs")

    async def prepare(self) -> None:
        raise AssertionError("no turn runs")

    async def list_models(self, provider: Provider) -> bytes:
        raise AssertionError("no turn runs")


def sessions_of(home: Path, store: FileStore, tasks: anyio.abc.TaskGroup) -> Sessions:
    """Load threads of a store, without models, processes and anybody connected."""
    clock, extensions, commands = SystemClock(), ExtensionRegistry(), LocalCommands()
    plugins = Plugins(PluginStore(home), lambda environment_id: False)
    ports = ServerContext(
        store=store,
        model_client=NoModel(),
        model_lists=ModelLists(NoModel()),
        clients=Hub(clock.now_ms),
        clock=clock,
        lasting_approvals=approvals_in(home),
        mcp_pool=ServerPool(NoProcesses()),
        home=home,
        commands=commands,
        environments=Environments(tasks),
        hook_runner=HookRunner(commands, dict),
        machine_paths=read_machine_paths(str(home)),
        credentials=frozenset(),
        skills=SkillCatalog(home, home, lambda *_: [], tasks, lambda: None),
        rules=RuleBook(),
        extensions=extensions,
        plugins=ServerPlugins(
            installed=plugins,
            offers=Offers(plugins, home, ConfigFile(home), extensions.verify_install),
            mentions=PluginsInTurns(plugins),
        ),
        config_file=ConfigFile(home),
        metrics=ServerMetrics(),
        budgets=HomeBudgets(FileBudgets(home), store.lists),
        configuration=Configuration(ConfigSources(home, home, requirements=home / "none.toml")),
    )
    return Sessions(ports, tasks, 0.0)
