"""MCP servers that skills need: who is asked, what is installed, what is left alone."""

import logging
import shlex
import sys
import tomllib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from app_server.sessions import mentions
from tests.support.files.plugins import write
from tests.support.harness import REQUIREMENTS, Served, WireClient, claim, methods_of, serve
from tests.support.model import tools_of_thread
from tests.support.paths import MCP_PEER

METHOD = "item/tool/requestUserInput"
QUESTION = "skill_mcp_dependency_install"
INSTALL = {"answers": {QUESTION: {"answers": ["Install"]}}}
SKIP = {"answers": {QUESTION: {"answers": ["Continue anyway"]}}}
ELSEWHERE = "http://127.0.0.1:9/mcp"


def needs(tmp_path: Path, *tools: Any) -> Path:
    """Write the skill `needs` with what it depends on; gives its file."""
    folder = tmp_path / ".agents/skills/needs"
    write(folder / "agents/openai.yaml", {"dependencies": {"tools": list(tools)}})
    return write(folder / "SKILL.md", "---\nname: needs\ndescription: d\n---\n")


def program(tmp_path: Path) -> str:
    """Write a program without arguments that is the peer of the tests."""
    file = write(
        tmp_path / "peer.sh", f"#!/bin/sh\nexec {shlex.join([sys.executable, str(MCP_PEER)])}"
    )
    file.chmod(0o700)
    return str(file)


def local(tmp_path: Path, name: str = "peer") -> dict[str, str]:
    return {"type": "mcp", "value": name, "transport": "stdio", "command": program(tmp_path)}


def far(name: str = "far", url: str = ELSEWHERE) -> dict[str, str]:
    return {"type": "mcp", "value": name, "url": url}


@asynccontextmanager
async def thread(
    tmp_path: Path, config: str = "", **options: Any
) -> AsyncIterator[tuple[Served, WireClient, str]]:
    async with serve(tmp_path, config=config) as served, served.client() as client:
        yield served, client, await client.start_thread(**options)


async def begin(client: WireClient, thread_id: str, *parts: Any) -> None:
    content = parts or ({"type": "text", "text": "use $needs"},)
    await client.call("turn/start", {"threadId": thread_id, "input": list(content)})


def written(tmp_path: Path) -> Any:
    return tomllib.loads((tmp_path / "config.toml").read_text()).get("mcp_servers")


@claim("skills:servers")
@pytest.mark.parametrize("as_part", [False, True])
async def test_what_a_skill_needs_is_installed_and_there_in_the_same_turn(
    tmp_path: Path, as_part: bool
) -> None:
    file = needs(tmp_path, local(tmp_path), far(), {"type": "env_var", "value": "X"})
    # The request waits until servers have started or failed.
    async with thread(tmp_path, "mcp_optional_startup_grace_ms = 0\n") as (
        served,
        client,
        thread_id,
    ):
        served.services.mcp_pool.retry_waits_s = (0, 0)
        part = {"type": "skill", "name": "needs", "path": str(file)}
        await begin(client, thread_id, *([part] if as_part else []))
        messages = await client.until(METHOD)
        status = [m["params"]["status"] for m in messages if "status" in m.get("params", {})]
        assert status[-1] == {"type": "active", "activeFlags": ["waitingOnUserInput"]}
        assert served.model.requests == []
        asked = messages[-1]
        turn_id = asked["params"]["turnId"]
        [question] = asked["params"].pop("questions")
        assert asked["params"] == {
            "threadId": thread_id,
            "turnId": turn_id,
            "itemId": f"mcp-deps-{turn_id}",
            "isBlocking": True,
            "autoResolutionMs": None,
        }
        assert [option["label"] for option in question.pop("options")] == [
            "Install",
            "Continue anyway",
        ]
        assert question == {
            "id": QUESTION,
            "header": "Install MCP servers?",
            "question": "The skills that you named need MCP servers that you do not have: "
            f"far ({ELSEWHERE}), peer ({tmp_path}/peer.sh).",
            "isOther": False,
            "isSecret": False,
        }
        await client.send({"id": asked["id"], "result": INSTALL})
        await client.wait_for("turn/completed")
        names = [tool["name"] for tool in tools_of_thread(served.model.requests[0])]
        assert "mcp__peer" in names
        assert written(tmp_path) == {
            "peer": {"command": f"{tmp_path}/peer.sh"},
            "far": {"url": ELSEWHERE},
        }
        assert "[mcp_servers]" not in (tmp_path / "config.toml").read_text()
        # Now they are there.
        await begin(client, thread_id)
        assert METHOD not in methods_of(await client.until("turn/completed"))


@claim("skills:servers")
@pytest.mark.parametrize(
    "answer", [{"result": SKIP}, {"result": {"answers": {}}}, {"error": {"code": 1, "message": ""}}]
)
async def test_what_the_user_does_not_want_is_not_installed_and_not_asked_again(
    tmp_path: Path, answer: Any
) -> None:
    needs(tmp_path, far())
    async with thread(tmp_path) as (_, client, thread_id):
        await begin(client, thread_id)
        asked = await client.wait_for(METHOD)
        await client.send({"id": asked["id"], **answer})
        await client.wait_for("turn/completed")
        await begin(client, thread_id)
        assert METHOD not in methods_of(await client.until("turn/completed"))
        assert written(tmp_path) is None


FREE = {"approvalPolicy": "never", "sandbox": "danger-full-access"}


@claim("skills:servers")
async def test_without_a_sandbox_and_approvals_nobody_is_asked(tmp_path: Path) -> None:
    needs(tmp_path, far())
    async with thread(tmp_path, **FREE) as (served, client, thread_id):
        served.services.mcp_pool.retry_waits_s = (0, 0)
        await begin(client, thread_id)
        assert METHOD not in methods_of(await client.until("turn/completed"))
        assert written(tmp_path) == {"far": {"url": ELSEWHERE}}


@pytest.mark.parametrize(
    ("config", "tool", "text"),
    [
        ("[features]\nskill_mcp_dependency_install = false\n", far(), "use $needs"),
        (f'[mcp_servers.mine]\nurl = "{ELSEWHERE}"\nenabled = false\n', far(), "use $needs"),
        ('[mcp_servers.far]\ncommand = "x"\nenabled = false\n', far(), "use $needs"),
        ("", far(), "hello"),
        ("", far("no name"), "use $needs"),
        ("", {"type": "mcp", "value": "far"}, "use $needs"),
        ("", {"type": "mcp", "value": "far", "transport": "pigeon", "url": "x"}, "use $needs"),
    ],
)
async def test_nobody_is_asked_about_what_is_there_or_cannot_be(
    tmp_path: Path, config: str, tool: Any, text: str, caplog: pytest.LogCaptureFixture
) -> None:
    needs(tmp_path, tool)
    async with thread(tmp_path, config, **FREE) as (_, client, thread_id):
        before = written(tmp_path)
        with caplog.at_level(logging.WARNING):
            await begin(client, thread_id, {"type": "text", "text": text})
            await client.until("turn/completed")
        assert written(tmp_path) == before


async def test_an_interrupt_withdraws_the_question(tmp_path: Path) -> None:
    needs(tmp_path, far())
    async with thread(tmp_path) as (served, client, thread_id):
        await begin(client, thread_id)
        asked = await client.wait_for(METHOD)
        turn = {"threadId": thread_id, "turnId": asked["params"]["turnId"]}
        await client.call("turn/interrupt", turn)
        messages = await client.until("turn/completed")
        assert "serverRequest/resolved" in methods_of(messages)
        assert served.model.requests == []


async def test_an_answer_that_does_not_come_lets_the_turn_go_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mentions, "ANSWER_S", 0.01)
    needs(tmp_path, far())
    async with thread(tmp_path) as (_, client, thread_id):
        await begin(client, thread_id)
        await client.wait_for("turn/completed")
        assert written(tmp_path) is None


async def test_what_cannot_be_written_is_a_warning(tmp_path: Path) -> None:
    needs(tmp_path, far())
    async with thread(tmp_path, **FREE) as (served, client, thread_id):
        config = tmp_path / "config.toml"
        config.write_text(f"{config.read_text()}\nmcp_servers = 1\n[x\n")
        await begin(client, thread_id)
        warning = await client.wait_for("warning", lambda p: "skills need" in p["message"])
        assert warning["params"]["message"].startswith(
            "MCP servers that skills need are not installed: "
        )
        await client.wait_for("turn/completed")
        assert len(served.model.requests) == 1


async def test_a_server_that_an_administrator_does_not_let_run_is_not_offered(
    tmp_path: Path,
) -> None:
    demands = '[mcp_servers.far.identity]\nurl = "http://127.0.0.1:9/other"\n'
    write(tmp_path / REQUIREMENTS, demands)
    needs(tmp_path, far(), {**far("allowed"), "url": "http://127.0.0.1:9/other"})
    async with thread(tmp_path, **FREE) as (_, client, thread_id):
        await begin(client, thread_id)
        await client.until("turn/completed")
        assert written(tmp_path) is None
