"""threads.codex: rollouts of Codex 0.169.0, as recorded, and of older versions: reading them."""

import json
import random
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from app_server.handlers.views.threads import thread_of_row, thread_of_state
from app_server.handlers.views.turns import turns_of_state
from app_server.threads.files.codex.items import settings_of
from app_server.threads.files.codex.threads import CodexThreads, NoCodexThread, records_to_import
from app_server.threads.files.index.index import ThreadIndex
from app_server.threads.files.writers import LogPaths
from app_server.threads.log.faults import LogFaults
from app_server.threads.log.state import ThreadState
from app_server.threads.organization import FilingState
from app_server.threads.rows import ThreadQuery
from protocol.log.rollout import parse_record, render_record
from protocol.threads.thread import NotLoadedThreadStatus
from protocol.turns.policy import (
    DangerFullAccessSandboxPolicy,
    ReadOnlySandboxPolicy,
    WorkspaceWriteSandboxPolicy,
)
from tests.support.harness import claim, serve
from tests.support.threads.codex_homes import CONDENSED, FAILED, FORK, codex_home, read
from tests.support.threads.codex_rollouts import (
    OLD,
    RECORDED,
    TOOLS,
    TURNS,
    event,
    message_item,
    rollouts,
    write_rollout,
)


@pytest.fixture
def home(tmp_path: Path) -> Path:
    return codex_home(tmp_path)


def texts(state: ThreadState) -> list[str]:
    """Return what the model would see of messages."""
    return [item["content"][-1]["text"] for item in state.history if item["type"] == "message"]


# Reading.


@claim("codex:read")
async def test_threads_are_shown_as_codex_shows_them(home: Path) -> None:
    async with serve(home) as served, served.client() as client:
        before = rollouts(home)
        for thread_id, turns in TURNS.items():
            params = {"threadId": thread_id, "includeTurns": True}
            thread = (await client.call("thread/read", params))["thread"]
            assert thread["turns"] == turns
            assert Path(thread["path"]) in before
            assert thread["status"] == {"type": "notLoaded"}
        failed = {"threadId": FAILED, "includeTurns": True}
        (turn,) = (await client.call("thread/read", failed))["thread"]["turns"]
        assert (turn["status"], turn["error"]["codexErrorInfo"]) == ("failed", "other")
        assert rollouts(home) == before
        assert not (home / "threads").exists()


def test_condensed_history_takes_the_place_of_what_was_before() -> None:
    assert texts(read(RECORDED, CONDENSED)) == [
        "<permissions instructions>none</permissions instructions>",
        "<environment_context>/work/project</environment_context>",
        "second thread",
        "A summary: SUMMARY of it all",
        "after compaction",
        "ok",
    ]


def test_a_fork_begins_with_the_thread_that_it_continues(home: Path) -> None:
    fork, whole = read(home, FORK), read(home, TOOLS)
    assert fork.history[: len(whole.history)] == whole.history
    assert texts(fork)[-2:] == ["in the fork", "ok"]
    assert fork.settings.sandbox_policy == DangerFullAccessSandboxPolicy()
    (source,) = (path for path in rollouts(home) if TOOLS in path.name)
    source.unlink()
    assert [turn.id for turn in read(home, FORK).turns] == [fork.turns[-1].id]


def test_members_that_are_no_business_of_a_model_are_left_out() -> None:
    members = {key for item in read(RECORDED, TOOLS).history for key in item}
    assert members == {
        *("type", "id", "role", "content", "summary", "encrypted_content"),
        *("call_id", "name", "namespace", "arguments", "output"),
    }


def test_rollouts_of_older_versions_are_read_from_their_events(tmp_path: Path) -> None:
    invocation = {"server": "files", "tool": "read", "arguments": {"path": "a"}}
    took = {"secs": 1, "nanos": 500_000_000}
    call = {"call_id": "c1", "invocation": invocation, "duration": took}
    content = [{"type": "text", "text": "found"}]
    write_rollout(
        tmp_path,
        OLD,
        ("turn_context", {"cwd": "/old", "model": "m1", "approval_policy": "on-failure"}),
        message_item("look"),
        event("user_message", message="look", images=["data:x"]),
        event("agent_reasoning", text="hm"),
        event("mcp_tool_call_end", **call, result={"Ok": {"content": content}}),
        event("mcp_tool_call_end", **call | {"call_id": "c2"}, result={"Err": "gone"}),
        event(
            "exec_command_end",
            call_id="c3",
            command=["ls", "a b"],
            cwd="/old",
            parsed_cmd=[{"type": "list_files", "cmd": "ls", "path": None}],
            aggregated_output="a\n",
            exit_code=1,
            duration=took,
        ),
        event("patch_apply_end", call_id="c4", success=True, changes={"a": ADDED, "b": UPDATED}),
        event("web_search_end", call_id="c5", query="q", action={"type": "search", "query": "q"}),
        message_item("done", "assistant"),
        event("agent_message", message="done"),
        event("something_new", x=1),
        event("user_message", message="and now", images=None),
        event("turn_aborted", reason="interrupted"),
    )
    faults = LogFaults()
    state = read(tmp_path, OLD, faults)
    assert faults == LogFaults()
    assert [(turn.status, len(turn.items)) for turn in state.turns] == [
        ("interrupted", 8),
        ("interrupted", 1),
    ]
    shown = [item.model_dump(mode="json", exclude_none=True) for item in state.turns[0].items]
    for item in shown:
        assert item.pop("startedAtMs") == item.pop("completedAtMs")
    said, thought, found, failed, command, patch, search, answer = shown
    assert said["content"] == [
        {"type": "text", "text": "look", "text_elements": []},
        {"type": "image", "url": "data:x"},
    ]
    assert (thought["type"], thought["summary"]) == ("reasoning", ["hm"])
    assert found == {
        "type": "mcpToolCall",
        "id": "c1",
        "server": "files",
        "tool": "read",
        "arguments": {"path": "a"},
        "status": "completed",
        "durationMs": 1500,
        "result": {"content": content},
    }
    assert (failed["status"], failed["error"]) == ("failed", {"message": "gone"})
    assert command == {
        "type": "commandExecution",
        "id": "c3",
        "command": "ls 'a b'",
        "cwd": "/old",
        "source": "agent",
        "status": "failed",
        "exitCode": 1,
        "durationMs": 1500,
        "commandActions": [{"type": "listFiles", "command": "ls"}],
        "aggregatedOutput": "a\n",
    }
    assert patch["changes"] == [
        {"path": "a", "kind": {"type": "add"}, "diff": "new\n"},
        {"path": "b", "kind": {"type": "update", "move_path": "c"}, "diff": ""},
    ]
    assert search["action"] == {"type": "search", "query": "q"}
    assert answer["text"] == "done"
    assert (state.settings.model, state.settings.approval_policy) == ("m1", "on-request")
    assert texts(state) == ["look", "done"]
    # Ids are made from the place in the file, so that they stay the same.
    assert read(tmp_path, OLD) == state


ADDED = {"type": "add", "content": "new\n"}
UPDATED = {"type": "update", "unified_diff": "", "move_path": "c"}


def test_turns_that_were_rolled_back_are_gone_with_what_they_left(tmp_path: Path) -> None:
    def turn(number: int) -> list[tuple[str, dict[str, Any]]]:
        return [
            event("task_started", turn_id=f"t{number}"),
            message_item(f"m{number}"),
            event("user_message", message=f"m{number}"),
            event("task_complete", turn_id=f"t{number}"),
        ]

    write_rollout(
        tmp_path,
        OLD,
        *turn(1),
        *turn(2),
        ("compacted", {"message": "gone"}),
        *turn(3),
        event("thread_rolled_back", num_turns=2),
        *turn(4),
        event("error", message="no more", codex_error_info="usage_limit_exceeded"),
    )
    state = read(tmp_path, OLD)
    assert [turn.id for turn in state.turns] == ["t1", "t4"]
    assert texts(state) == ["m1", "m4"]


def test_history_that_was_condensed_without_a_replacement_is_its_message(tmp_path: Path) -> None:
    write_rollout(
        tmp_path,
        OLD,
        message_item("long"),
        ("compacted", {"message": "short"}),
        message_item("new"),
    )
    assert texts(read(tmp_path, OLD)) == ["short", "new"]


@claim("codex:damaged")
def test_damaged_lines_and_unknown_items_are_left_out_and_counted(tmp_path: Path) -> None:
    path = write_rollout(
        tmp_path,
        OLD,
        event("task_started", turn_id="t"),
        event("item_completed", item={"type": "Hologram", "id": "h"}),
        event("item_completed", item={"type": "McpToolCall", "id": "no more"}),
        event("item_completed", item={"type": "UserMessage", "id": "u", "content": []}),
        event("task_complete", turn_id="t", error={"message": "full", "codex_error_info": "other"}),
    )
    with path.open("ab") as file:
        file.write(b'\0\0\n[]\n{"timestamp":"2025')
    faults = LogFaults()
    state = read(tmp_path, OLD, faults)
    assert faults == LogFaults(0, 2, 2, [7, 8], [3, 4])
    assert [(turn.status, len(turn.items)) for turn in state.turns] == [("failed", 1)]


@pytest.mark.parametrize(
    ("context", "sandbox"),
    [
        (
            {"type": "workspace-write", "writable_roots": ["/w"], "network_access": True},
            WorkspaceWriteSandboxPolicy(writable_roots=["/w"], network_access=True),
        ),
        ({"type": "danger-full-access"}, DangerFullAccessSandboxPolicy()),
        ({"type": "something-wider"}, ReadOnlySandboxPolicy()),
        (None, ReadOnlySandboxPolicy()),
    ],
)
def test_settings_that_are_not_known_become_the_safest(context: Any, sandbox: Any) -> None:
    chosen = settings_of({"sandbox_policy": context, "approval_policy": "sometimes"}, "p")
    assert chosen.sandbox_policy == sandbox
    assert (chosen.approval_policy, chosen.model) == ("on-request", "unknown")
    assert chosen.cwd == "/"
    assert settings_of({"cwd": "file:///a%20b"}, "p").cwd == "/a b"
    assert settings_of({"cwd": "file://[a"}, "p").cwd == "/"


LINES = [
    json.loads(line)
    for path in sorted((RECORDED / "sessions").rglob("*.jsonl"))
    for line in path.read_text().splitlines()
]
values = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 2**70) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=5), inner),
    max_leaves=4,
)


def harmed(value: Any, dice: random.Random, other: Any) -> Any:
    """Put another value in the place of one that stands somewhere in this one."""
    if isinstance(value, dict) and value and dice.random() < 0.9:
        key = dice.choice(sorted(value))
        return {**value, key: harmed(value[key], dice, other)}
    if isinstance(value, list) and value and dice.random() < 0.9:
        return [harmed(value[0], dice, other), *value[1:]]
    return other


@settings(max_examples=60, deadline=None)
@given(st.randoms(use_true_random=False), st.lists(values, min_size=8, max_size=8))
@pytest.mark.slow
def test_no_rollout_breaks_a_list_or_a_read(
    tmp_path_factory: pytest.TempPathFactory, dice: random.Random, others: list[Any]
) -> None:
    home = tmp_path_factory.mktemp("home")
    path = write_rollout(home, OLD)
    meta = json.loads(path.read_text())
    meta["payload"] |= {"forked_from_id": OLD, "forked_from_ordinal_exclusive": 3}
    lines = [meta, *dice.sample(LINES, 12)]
    for other in others:
        at = dice.randrange(len(lines))
        lines[at] = harmed(lines[at], dice, other)
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    index = ThreadIndex(home / "index" / "threads")
    threads = CodexThreads(home, LogPaths(home / "threads"))
    threads.look(index)
    seen = index.page(ThreadQuery(limit=5)).rows
    index.close()
    shown = [thread_of_row(row, NotLoadedThreadStatus(), str(path), FilingState()) for row in seen]
    try:
        state = threads.read(OLD)
    except NoCodexThread:
        assert shown == []
        return
    turns = turns_of_state(state)
    thread = thread_of_state(state, NotLoadedThreadStatus(), str(path), FilingState(), turns)
    assert thread.model_dump_json()
    for record in records_to_import(threads.find(OLD), LogFaults()):
        assert parse_record(render_record(record)) == record
