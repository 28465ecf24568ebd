"""mcp: threads follow edits of their files, between two model requests (docs/mcp.md, "Edits")."""

import json
import os
import random
import sys
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import anyio
import pytest

from tests.support.harness import claim, stdio_server
from tests.support.mcp_peers.calls import raw_call
from tests.support.mcp_peers.reloads import Thread, thread_with, until_gone
from tests.support.model import Gate, calls, says
from tests.support.paths import MCP_PEER

PATIENT = "mcp_optional_startup_grace_ms = 0\n"
"""Model requests wait for every server that starts."""


def namespaces(request: Mapping[str, Any]) -> dict[str, list[str]]:
    """Return what a model request offers of servers."""
    return {
        tool["name"].removeprefix("mcp__"): [function["name"] for function in tool["tools"]]
        for tool in request.get("tools", [])
        if tool["type"] == "namespace"
    }


async def begin(thread: Thread) -> None:
    """Begin a turn, and return when its first item has begun."""
    params = {"threadId": thread.id, "input": [{"type": "text", "text": "go"}]}
    await thread.client.call("turn/start", params)


@claim("mcp:edit-in-call")
async def test_a_call_ends_on_the_old_server_and_the_next_request_has_the_new(
    tmp_path: Path,
) -> None:
    async with thread_with(tmp_path, PATIENT + stdio_server("raw"), "raw") as thread:
        old, _ = await thread.direct("whoami")
        thread.served.model.scripts += [calls(raw_call("meet", {"n": 1})), says("Done.")]
        await begin(thread)
        await thread.client.wait_for(
            "item/started", lambda params: params["item"]["type"] == "mcpToolCall"
        )
        thread.write(PATIENT + stdio_server("other"))
        # It meets the call of the model, on the server of that.
        params = {"threadId": thread.id, "server": "raw", "tool": "meet", "arguments": {"n": 2}}
        await thread.client.call("mcpServer/tool/call", params)
        ended = await thread.client.wait_for(
            "item/completed", lambda params: params["item"]["type"] == "mcpToolCall"
        )
        assert ended["params"]["item"]["status"] == "completed"
        await thread.client.wait_for("turn/completed")
        first, second = thread.served.model.requests
        assert (list(namespaces(first)), list(namespaces(second))) == (["raw"], ["other"])
        await until_gone(old)


@claim("mcp:edit-in-call")
async def test_a_response_goes_with_the_servers_of_its_request(tmp_path: Path) -> None:
    async with thread_with(tmp_path, PATIENT + stdio_server("raw"), "raw") as thread:
        gate = Gate()
        thread.served.model.scripts += [[gate, *calls(raw_call("meta"))], says("Done.")]
        await begin(thread)
        await gate.wait_until_reached()
        thread.write(PATIENT)
        # Whoever asks for the settings finds the edit; it is not in force yet.
        await thread.client.call("config/read", {})
        gate.opened.set()
        ended = await thread.client.wait_for(
            "item/completed", lambda params: params["item"]["type"] == "mcpToolCall"
        )
        assert ended["params"]["item"]["status"] == "completed"
        await thread.client.wait_for("turn/completed")
        assert [list(namespaces(one)) for one in thread.served.model.requests] == [["raw"], []]
        assert await thread.runtime() == {}


@claim("mcp:edit-projects")
async def test_settings_of_a_trusted_project_are_followed_and_others_are_not(
    tmp_path: Path,
) -> None:
    project = tmp_path / "project"
    (project / ".codex").mkdir(parents=True)
    file = project / ".codex" / "config.toml"

    def trust(level: str) -> str:
        return PATIENT + f'[projects."{project}"]\ntrust_level = "{level}"\n'

    async with thread_with(tmp_path, trust("trusted"), params={"cwd": str(project)}) as thread:
        assert await thread.namespaces() == []
        file.write_text(stdio_server("mine"))
        assert await thread.namespaces() == ["mcp__mine"]
        pid, _ = await thread.direct("whoami", "mine")
        file.write_text("[broken\n" + file.read_text())
        assert await thread.namespaces() == ["mcp__mine"]
        assert await thread.namespaces() == ["mcp__mine"]
        warnings = [
            line for line in thread.client.transcript if '"method":"warning"' in line
            and "failed to refresh MCP servers" in line
        ]  # fmt: skip
        assert len(warnings) == 1
        assert f"{file}:1:8" in warnings[0]
        file.write_text(stdio_server("mine", disabled_tools='["meta"]') + stdio_server("more"))
        assert await thread.namespaces() == ["mcp__mine", "mcp__more"]
        assert (await thread.direct("whoami", "mine"))[0] == pid
        thread.write(trust("untrusted"))
        assert await thread.namespaces() == []
        await until_gone(pid)


@claim("mcp:edit-managed")
async def test_an_administrators_demands_are_followed(tmp_path: Path) -> None:
    async with thread_with(tmp_path, PATIENT + stdio_server("raw"), "raw") as thread:
        assert await thread.namespaces() == ["mcp__raw"]
        demands = tmp_path / "requirements.toml"
        demands.write_text("[mcp_servers]\n")
        assert await thread.namespaces() == []
        assert await thread.runtime() == {"raw": "disabled"}
        identity = json.dumps(sys.executable)
        demands.write_text(f"[mcp_servers.raw.identity]\ncommand = {identity}\n")
        assert await thread.namespaces() == ["mcp__raw"]


@claim("mcp:edit-layers")
async def test_what_a_thread_was_started_with_stays_on_top(tmp_path: Path) -> None:
    overrides = {"mcp_servers.raw.disabled_tools": ["meta"]}
    config = PATIENT + stdio_server("raw")
    async with thread_with(tmp_path, config, "raw", overrides=overrides) as thread:
        thread.write(PATIENT + stdio_server("raw", disabled_tools='["fail"]'))
        await thread.namespaces()
        offered = namespaces(thread.served.model.requests[-1])["raw"]
        assert ("meta" in offered, "fail" in offered) == (False, True)
        # Alone the file is right; with what the thread has on top there is no such server.
        thread.write(PATIENT)
        assert await thread.namespaces() == ["mcp__raw"]
        warnings = [line for line in thread.client.transcript if "failed to refresh" in line]
        assert len(warnings) == 1
        assert "invalid transport" in warnings[0]


NAMES = ("a", "b", "c", "d")


@dataclass
class Wanted:
    """The servers that a file asks for, and what they have started so far."""

    starts: Path
    servers: dict[str, str] = field(default_factory=dict)
    """By name: what its process is made of."""
    hidden: dict[str, bool] = field(default_factory=dict)
    """Whether the filters leave a tool out."""
    switched_off: set[str] = field(default_factory=set)
    running: dict[str, str] = field(default_factory=dict)
    started: list[str] = field(default_factory=list)

    def change(self, chance: random.Random) -> None:
        """Add, remove, switch or change a server."""
        name = chance.choice(NAMES)
        match chance.randrange(5):
            case 0:
                self.servers.pop(name, None)
            case 1:
                self.servers[name] = f"{name}{chance.randrange(1000)}"
            case 2:
                self.switched_off ^= {name}
            case 3:
                self.hidden[name] = not self.hidden.get(name, False)
            case 4:
                self.servers.setdefault(name, f"{name}-again")

    def take_over(self) -> None:
        """Note what has to start, once the thread has followed."""
        wanted = {n: made for n, made in self.servers.items() if n not in self.switched_off}
        self.started += [made for name, made in wanted.items() if self.running.get(name) != made]
        self.running = wanted

    def toml(self) -> str:
        """Write the tables; the process of each says that it starts."""
        script = f'echo "$0 $$" >> {self.starts}; exec {sys.executable} {MCP_PEER}'
        return "".join(
            f"[mcp_servers.{name}]\ncommand = \"sh\"\n"
            f"args = {json.dumps(['-c', script, made])}\n"
            f"enabled = {str(name not in self.switched_off).lower()}\n"
            + ('disabled_tools = ["meta"]\n' if self.hidden.get(name) else "")
            for name, made in self.servers.items()
        )  # fmt: skip

    @property
    def offered(self) -> dict[str, bool]:
        """Return which namespaces the model has to see, and whether with the tool."""
        return {name: not self.hidden.get(name, False) for name in sorted(self.running)}


async def edited_in_turns(home: Path, seed: int, edits: int) -> None:
    """Edit a file at random while turns run, and compare after each edit."""
    chance, wanted = random.Random(seed), Wanted(home / "starts")
    wanted.starts.touch()
    async with thread_with(home, PATIENT) as thread:
        file = home / "config.toml"
        for _ in range(edits):
            thread.served.model.scripts += [calls(raw_call("meta")), says("Done.")]
            await begin(thread)
            wanted.change(chance)
            if chance.random() < 0.2:
                file.write_text(file.read_text() + "[broken\n")
            save(chance, file, thread, PATIENT + wanted.toml())
            await thread.client.wait_for("turn/completed")
            thread.served.model.scripts.clear()
            wanted.take_over()
            await thread.namespaces()
            offered = namespaces(thread.served.model.requests[-1])
            assert {name: "meta" in tools for name, tools in offered.items()} == wanted.offered
        lines = [line.split() for line in wanted.starts.read_text().splitlines()]
        assert sorted(made for made, _ in lines) == sorted(wanted.started)
        alive = {made: int(pid) for made, pid in lines if made in wanted.running.values()}
        await until_gone(*(int(pid) for _, pid in lines if int(pid) not in alive.values()))
        for pid in alive.values():
            os.kill(pid, 0)
    await until_gone(*alive.values())


def save(chance: random.Random, file: Path, thread: Thread, config: str) -> None:
    """Save as one of several editors does."""
    match chance.randrange(3):
        case 0:
            thread.write(config)
        case 1:
            file.unlink()
            thread.write(config)
        case 2:
            beside = file.with_suffix(".new")
            with suppress(FileNotFoundError):
                file.rename(beside)
            thread.write(config)


@claim("mcp:edits")
async def test_random_edits_in_turns_leave_what_is_configured(tmp_path: Path) -> None:
    await edited_in_turns(tmp_path, seed=1, edits=8)


@pytest.mark.slow
@pytest.mark.timeout(1200)
@claim("mcp:edits")
async def test_two_hundred_random_edits_in_turns_leave_what_is_configured(
    tmp_path: Path,
) -> None:
    await edited_in_turns(tmp_path, seed=2, edits=200)


async def test_a_turn_without_a_further_request_takes_an_edit_over_at_its_end(
    tmp_path: Path,
) -> None:
    async with thread_with(tmp_path, PATIENT + stdio_server("raw"), "raw") as thread:
        gate = Gate()
        old, _ = await thread.direct("whoami")
        thread.served.model.scripts.append([gate, *says("Done.")])
        await begin(thread)
        await gate.wait_until_reached()
        thread.write(PATIENT)
        session = thread.served.services.sessions.get(thread.id)
        await thread.served.services.sessions.follow_files()
        os.kill(old, 0)
        assert [name for name, _ in session.servers.statuses()] == ["raw"]
        gate.opened.set()
        await thread.client.wait_for("turn/completed")
        assert session.servers.statuses() == []
        with anyio.fail_after(30):
            await until_gone(old)


async def test_looks_at_files_that_overlap_end_with_what_the_files_say(tmp_path: Path) -> None:
    async with thread_with(tmp_path, PATIENT + stdio_server("raw"), "raw") as thread:
        sessions = thread.served.services.sessions
        found = []

        async def follow() -> None:
            await sessions.follow_files()
            found.append(sessions.get(thread.id).servers.statuses())

        await sessions.follow_files()
        thread.write(PATIENT)
        async with anyio.create_task_group() as tasks:
            for _ in range(3):
                tasks.start_soon(follow)
        assert found == [[], [], []]
