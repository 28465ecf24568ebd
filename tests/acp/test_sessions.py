"""Sessions are threads: begun, listed, loaded, resumed, copied, closed and deleted."""

import json
import sys
from pathlib import Path
from typing import Any

import acp
from acp.schema import EnvVariable, McpServerStdio

from app_server import VERSION
from tests.support.clients.acp import acp_session, acp_socket, prompt
from tests.support.harness import claim, serve
from tests.support.model import Gate, calls, says
from tests.support.paths import MCP_PEER

WINDOW = "model_context_window = 100000\nmcp_optional_startup_grace_ms = 0\n"
SECRET = "a-secret-of-the-editor"


@claim("acp:initialize")
async def test_the_agent_introduces_itself(tmp_path: Path) -> None:
    async with (
        serve(tmp_path) as served,
        acp_socket(served.urls[0], introduced=False) as (_, agent),
    ):
        told = await agent.initialize(protocol_version=acp.PROTOCOL_VERSION)
        assert told.model_dump(mode="json", by_alias=True, exclude_unset=True) == {
            "protocolVersion": 1,
            "agentInfo": {"name": "app-server", "title": "App server", "version": VERSION},
            "agentCapabilities": {
                "loadSession": True,
                "promptCapabilities": {"image": True, "embeddedContext": True},
                "mcpCapabilities": {"http": True, "sse": False},
                "sessionCapabilities": {
                    "list": {},
                    "resume": {},
                    "fork": {},
                    "close": {},
                    "delete": {},
                    "additionalDirectories": {},
                },
                "auth": {"logout": {}},
            },
            "authMethods": [
                {
                    "id": "api-key",
                    "name": "API key",
                    "description": "A key of OpenAI, in `_meta` of the request as "
                    "`api-key.apiKey`.",
                    "_meta": {"api-key": {"provider": "openai"}},
                }
            ],
        }


@claim("acp:sessions")
async def test_a_session_is_a_thread_that_is_listed_loaded_and_deleted(tmp_path: Path) -> None:
    async with serve(tmp_path, config=WINDOW) as served:
        served.model.scripts += [says("One ", "two."), calls(_COMMAND), says("Ran.")]
        async with acp_session(served, tmp_path) as (editor, agent, session_id):
            await agent.prompt(session_id=session_id, prompt=prompt("Count."))
            await agent.prompt(session_id=session_id, prompt=prompt("Run it."))
            await agent.close_session(session_id=session_id)
            listed = await agent.list_sessions(cwd=str(tmp_path))
            (found,) = listed.sessions
            assert (found.session_id, found.cwd, found.title) == (
                session_id,
                str(tmp_path),
                "Count.",
            )
            editor.take()
            await agent.load_session(session_id=session_id, cwd=str(tmp_path), mcp_servers=[])
            told = editor.take()
            assert [each["sessionUpdate"] for each in told[:5]] == [
                "user_message_chunk",
                "agent_message_chunk",
                "user_message_chunk",
                "tool_call",
                "agent_message_chunk",
            ]
            assert [told[at]["content"]["text"] for at in (0, 1, 2, 4)] == [
                "Count.",
                "One two.",
                "Run it.",
                "Ran.",
            ]
            assert told[3] == {
                "sessionUpdate": "tool_call",
                "toolCallId": "call_1",
                "status": "failed",
                "title": "echo one; exit 3",
                "kind": "execute",
                "rawInput": {"command": "echo one; exit 3", "cwd": str(tmp_path)},
                "content": [{"type": "content", "content": {"type": "text", "text": "one\n"}}],
                "rawOutput": {"exitCode": 3},
            }
            await agent.close_session(session_id=session_id)
            await agent.resume_session(session_id=session_id, cwd=str(tmp_path), mcp_servers=[])
            assert editor.take("user_message_chunk", "agent_message_chunk", "tool_call") == []
            served.model.scripts.append(says("Still here."))
            await agent.prompt(session_id=session_id, prompt=prompt("Are you there?"))
            assert editor.text() == "Still here."


_COMMAND = {"name": "exec_command", "arguments": {"cmd": "echo one; exit 3"}}


@claim("acp:sessions")
async def test_a_copy_goes_on_by_itself(tmp_path: Path) -> None:
    async with serve(tmp_path) as served, acp_session(served, tmp_path) as (_, agent, first):
        served.model.scripts += [says("Here."), says("There.")]
        await agent.prompt(session_id=first, prompt=prompt("Where?"))
        copy = await agent.fork_session(session_id=first, cwd=str(tmp_path), mcp_servers=[])
        assert copy.session_id != first
        await agent.prompt(session_id=copy.session_id, prompt=prompt("And now?"))
        assert [text for _, text in served.model.inputs()] == ["Where?", "Here.", "And now?"]


@claim("acp:both")
async def test_a_turn_of_another_client_is_told_and_may_be_joined_late(tmp_path: Path) -> None:
    gate = Gate()
    script = says("Never ", "mind.")
    async with serve(tmp_path, config=WINDOW) as served, served.client() as codex:
        thread_id = await codex.start_thread(cwd=str(tmp_path))
        served.model.scripts.append([*script[:3], gate, *script[3:]])
        asked = {"threadId": thread_id, "input": [{"type": "text", "text": "Begin."}]}
        await codex.call("turn/start", asked)
        await codex.wait_for("item/agentMessage/delta")
        async with acp_socket(served.urls[0]) as (editor, agent):
            await agent.load_session(session_id=thread_id, cwd=str(tmp_path), mcp_servers=[])
            assert editor.text("user_message_chunk") == "Begin."
            assert editor.text() == "Never "
            gate.opened.set()
            await editor.until(lambda: editor.text() == "Never mind.")
            await codex.wait_for("turn/completed")
            # The other way round.
            served.model.scripts.append(says("Yes."))
            await agent.prompt(session_id=thread_id, prompt=prompt("Both?"))
            seen = await codex.until("turn/completed")
            said = [each["params"]["item"] for each in seen if each["method"] == "item/completed"]
            assert [(item["type"], item.get("text")) for item in said] == [
                ("userMessage", None),
                ("agentMessage", "Yes."),
            ]
            assert editor.text("user_message_chunk") == "Begin."


@claim("acp:mcp-servers")
async def test_servers_of_the_editor_run_for_its_session(tmp_path: Path) -> None:
    server = McpServerStdio(
        name="my server",
        command=sys.executable,
        args=[str(MCP_PEER)],
        env=[EnvVariable(name="TOKEN", value=SECRET)],
    )
    async with (
        serve(tmp_path, config=WINDOW) as served,
        acp_socket(served.urls[0]) as (
            editor,
            agent,
        ),
    ):
        opened = await agent.new_session(cwd=str(tmp_path), mcp_servers=[server])
        call = {"namespace": "mcp__my_server", "name": "wipe", "arguments": {}}
        served.model.scripts += [calls(call), says("Wiped.")]
        await agent.prompt(session_id=opened.session_id, prompt=prompt("Wipe it."))
        (asked,) = editor.asked
        assert [option["optionId"] for option in asked["options"]] == [
            "accept",
            "session",
            "always",
            "decline",
        ]
        assert asked["toolCall"] == {
            "toolCallId": "call_1",
            "status": "pending",
            "title": "mcp.my_server.wipe",
            "kind": "execute",
            "rawInput": {"server": "my_server", "tool": "wipe", "arguments": {}},
        }
        (done,) = editor.take("tool_call_update")
        content = [{"type": "content", "content": {"type": "text", "text": "wipe ran"}}]
        assert (done["status"], done["content"]) == ("completed", content)
        # A session that comes to a thread brings its servers, too.
        again = McpServerStdio(name="other", command=sys.executable, args=[str(MCP_PEER)], env=[])
        await agent.load_session(
            session_id=opened.session_id, cwd=str(tmp_path), mcp_servers=[again]
        )
        await agent.prompt(session_id=opened.session_id, prompt=prompt("/mcp"))
        assert "- other: " in editor.text()
    for file in tmp_path.rglob("*"):
        assert file.is_dir() or SECRET.encode() not in file.read_bytes(), file


STDIO = {"name": "a b", "command": "x"}
NO_PLACES: list[tuple[dict[str, Any], str]] = [
    ({"cwd": "relative", "mcpServers": []}, "cwd"),
    ({"mcpServers": []}, "cwd"),
    ({"cwd": "/", "additionalDirectories": ["x"]}, "additionalDirectories.0"),
    ({"cwd": "/", "additionalDirectories": ["/x"] * 65}, "additionalDirectories"),
    ({"cwd": "/", "mcpServers": [{"name": "a", "args": []}]}, "mcpServers.0.command"),
    ({"cwd": "/", "mcpServers": [{"type": "http", "name": "a"}]}, "mcpServers.0.url"),
    ({"cwd": "/", "mcpServers": [{"type": "sse", "name": "a"}]}, "mcpServers.0.type"),
    ({"cwd": "/", "mcpServers": [{"name": "", "command": "a"}]}, "mcpServers.0.name"),
    ({"cwd": "/", "mcpServers": [STDIO, {**STDIO, "name": "a_b"}]}, "mcpServers.1.name"),
    ({"cwd": "/", "mcpServers": [STDIO] * 65}, "mcpServers"),
]
"""Parameters of `session/new`, and the field that the error names."""


@claim("acp:errors")
async def test_a_place_that_makes_no_sense_is_refused(tmp_path: Path) -> None:
    async with serve(tmp_path) as served, served.pipe(f"{served.urls[0]}/acp") as pipe:

        async def refused(method: str, params: Any) -> tuple[int, str | None]:
            message = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
            await pipe.send(json.dumps(message))
            answer = json.loads(await pipe.receive())
            return answer["error"]["code"], answer["error"]["data"].get("field")

        assert await refused("session/new", {"cwd": "/"}) == (-32600, None)
        assert await refused("initialize", {}) == (-32602, "protocolVersion")
        hello = {"jsonrpc": "2.0", "id": 0, "method": "initialize"}
        await pipe.send(json.dumps({**hello, "params": {"protocolVersion": 1}}))
        await pipe.receive()
        for params, field in NO_PLACES:
            assert await refused("session/new", params) == (-32602, field)
        unknown = {"sessionId": "01a00000-0000-7000-8000-000000000000"}
        block = {"type": "text", "text": "Hello."}
        assert await refused("session/prompt", {**unknown, "prompt": [block]}) == (
            -32002,
            "sessionId",
        )
        assert await refused("session/prompt", {**unknown, "prompt": []}) == (-32602, "prompt")
        audio = {"type": "audio", "data": "", "mimeType": "audio/wav"}
        assert await refused("session/prompt", {**unknown, "prompt": [audio]}) == (
            -32602,
            "prompt.0",
        )
        gone = await refused("session/load", {**unknown, "cwd": "/", "mcpServers": []})
        assert gone == (-32002, None)
        assert await refused("session/set_model", unknown) == (-32601, None)
        assert await refused("initialize", {"protocolVersion": 1}) == (-32600, None)
