"""The log of a server that was used for everything: nothing that anybody said is in it."""

import asyncio
import json
from contextvars import Context, copy_context
from pathlib import Path
from typing import Any

import anyio
import pytest

from app_server.clients.demo.hosted.endpoint import READS, Call, HostedConnector, text_result
from app_server.observability.log_context import current_ids
from tests.support.apps.hosted import Hosted, serve_hosted, sign_in
from tests.support.harness import WAIT_S, WireClient, claim, serve, stdio_server, write_config
from tests.support.mcp_peers.web_peer import WebPeer
from tests.support.model import ScriptedModel, calls, says
from tests.support.processes import running
from tests.support.receiver.signals import signal

WORD = "zqplanted"
"""In everything that is said, by whomever."""

FORM = {
    "mode": "form",
    "message": f"{WORD} question",
    "requestedSchema": {
        "type": "object",
        "properties": {f"{WORD}_colour": {"type": "string", "description": WORD}},
    },
}


def survey() -> HostedConnector:
    """Make an app that asks, reports, fails and declares the word."""
    bare = HostedConnector("survey", "Survey", f"{WORD} description")

    async def ask(call: Call) -> Any:
        answer = await call.caller.ask("elicitation/create", FORM)
        return text_result(f"{WORD} {answer}", {WORD: answer})

    async def fail(call: Call) -> Any:
        raise ValueError(f"{WORD} failure {call.arguments}")

    words = {WORD: {"type": "string", "description": WORD}}
    tools = (bare.tool("ask", WORD, words, READS, ask), bare.tool("fail", WORD, words, READS, fail))
    return HostedConnector(bare.id, bare.name, bare.description, tools)


async def run_turn(client: WireClient, thread_id: str, text: str) -> list[str]:
    """Run a turn, accepting all that is asked; gives the types of the items."""
    user_input = [{"type": "text", "text": text}]
    await client.call("turn/start", {"threadId": thread_id, "input": user_input})
    types: list[str] = []
    while True:
        message = await client.receive()
        method = message.get("method")
        if method == "turn/completed":
            return types
        if method == "item/completed":
            types.append(message["params"]["item"]["type"])
        if method is not None and "id" in message:
            content = {f"{WORD}_colour": f"{WORD} answer"}
            result = {"action": "accept", "content": content, "decision": "accept", "_meta": None}
            await client.send({"id": message["id"], "result": result})


def peer_calls() -> list[Any]:
    """Have a model call all sorts of tools with the word in their arguments."""
    files, app, web = "mcp__files", "mcp__codex_apps__survey", "mcp__web"
    asking = {"method": "elicitation/create", "params": FORM}
    bad = {"method": f"{WORD}/method", "params": {WORD: WORD}}
    functions = [
        *(
            (files, name, {"text": WORD})
            for name in ("meta", "fail", "refuse", "progress", "blocks")
        ),
        *((files, "request", arguments) for arguments in (asking, bad)),
        *((app, name, {WORD: WORD}) for name in ("_ask", "_fail")),
        (web, "look", {"text": WORD}),
    ]
    own = [
        ("exec_command", {"cmd": f"echo {WORD}"}),
        ("exec_command", {"cmd": 5, "words": WORD}),
        ("update_plan", {"plan": [{"step": WORD, "status": "pending"}]}),
        (f"{WORD}_unknown", {"text": WORD}),
        ("view_image", {"path": f"/{WORD}.png"}),
    ]
    return [
        *({"namespace": space, "name": name, "arguments": args} for space, name, args in functions),
        *({"name": name, "arguments": arguments} for name, arguments in own),
        {"name": "apply_patch", "arguments": f"*** Begin Patch {WORD}"},
    ]


async def use(client: WireClient, home: Path, model: ScriptedModel) -> None:
    """Do a bit of everything that a client can do."""
    thread_id = await client.start_thread(approvalPolicy="on-request", sandbox="danger-full-access")
    await client.wait_for(
        "mcpServer/startupStatus/updated",
        lambda p: (p["name"], p["status"]) == ("codex_apps__survey", "ready"),
    )
    model.scripts += [calls(*peer_calls()), says(f"{WORD} said")]
    types = await run_turn(client, thread_id, f"{WORD} asked")
    assert types.count("mcpToolCall") == 10
    await client.call("thread/name/set", {"threadId": thread_id, "name": WORD})
    delivered = {"signal": signal(f"s-{WORD}", summary=WORD, payload=WORD)}
    target = {"target": {"threadId": thread_id}, "mode": "passive"}
    await client.call("signal/deliver", {**delivered, **target})
    model.scripts += [says(WORD)]
    await run_turn(client, thread_id, WORD)
    model.scripts += [[{"type": WORD}, {"type": "response.failed", "response": {WORD: WORD}}]]
    await run_turn(client, thread_id, WORD)
    (home / f"{WORD}.txt").write_text(WORD)
    await client.call("command/exec", {"command": ["echo", WORD], "cwd": str(home)})
    await client.call("fs/readFile", {"path": str(home / f"{WORD}.txt")})
    await client.call("thread/search", {"searchTerm": WORD})
    await client.call("mcpServerStatus/list", {"detail": "full"})
    for method, params in (
        ("thread/read", {"threadId": WORD}),
        ("turn/start", {"threadId": thread_id, "input": WORD}),
        ("fs/readFile", {"path": f"/{WORD}"}),
        ("command/exec", {"command": [f"/{WORD}"]}),
        ("mcpServer/tool/call", {"threadId": thread_id, "server": WORD, "tool": WORD}),
        ("mcpServer/resource/read", {"threadId": thread_id, "server": "files", "uri": WORD}),
    ):
        await client.request(method, params)
    spawned = {"command": ["cat"], "processHandle": "p", "cwd": str(home), "streamStdin": True}
    await client.call("process/spawn", {**spawned, "timeoutMs": None})
    await client.call("fs/watch", {"watchId": "w", "path": str(home)})
    await client.call("skills/list", {"cwds": [str(home)]})
    searching = {"sessionId": "s", "roots": [str(home)]}
    await client.call("fuzzyFileSearch/sessionStart", searching)
    await client.call("config/mcpServer/reload")
    signing_in = {"type": "apiKey", "apiKey": f"sk-{WORD}"}
    await client.call("account/login/start", signing_in)
    await client.call("account/logout")
    # All has an answer before the end.
    await client.call("thread/loaded/list", {})


def settings(home: Path, hosted: Hosted, web: WebPeer) -> str:
    """Configure the app and two servers, and sign in."""
    config = sign_in(home, hosted) + stdio_server("files", "garbage")
    return f'{config}[mcp_servers.web]\nurl = "{web.url}"\n[features]\nauth_elicitation = true\n'


@pytest.mark.process
@claim("log:content")
async def test_nothing_that_was_said_is_in_the_log_and_no_line_has_ids_of_what_is_over(
    tmp_path: Path,
) -> None:
    model = ScriptedModel()
    async with (
        model.serve(),
        serve_hosted([survey()]) as hosted,
        WebPeer(tools=[{"name": "look", "description": WORD}]).serve() as web,
    ):
        write_config(tmp_path, model.url, settings(tmp_path, hosted, web))
        levels = {"LOG_FORMAT": "json", "LOG_LEVEL": "debug"}
        async with running(tmp_path, **levels) as server, server.client() as client:
            await use(client, tmp_path, model)
            server.process.terminate()
            server.process.terminate()
            assert server.process.stderr is not None
            with anyio.fail_after(60):
                text = (await server.process.stderr.read()).decode()
    lines = [json.loads(line) for line in text.splitlines()]
    assert [line for line in lines if WORD in json.dumps(line).lower()] == []
    said = [line["fields"]["message"] for line in lines]
    end = said.index("signal 15")
    ids = {"connectionId", "requestId", "method", "turnId"}
    # The line of the last answer is written behind the answer, perhaps behind the signal too.
    at_the_end = [line for line, text in zip(lines, said, strict=True) if text[:8] != "answered"]
    at_the_end = at_the_end[at_the_end.index(lines[end]) :]
    assert [line for line in at_the_end if ids & set(line)] == []
    # A request is over with its answer; what it began goes on without its ids, turns apart.
    over: dict[Any, str] = {}
    late = []
    for line in lines:
        asked = line.get("connectionId"), line.get("requestId")
        if asked in over and "turnId" not in line:
            late.append((over[asked], line))
        if line["fields"]["message"].startswith("answered"):
            over[asked] = line["method"]
    assert late == []


@claim("log:ids")
async def test_no_task_that_outlives_a_request_belongs_to_it(tmp_path: Path) -> None:
    made: list[tuple[asyncio.Task[Any], Context]] = []

    def note(loop: asyncio.AbstractEventLoop, work: Any, context: Context | None = None) -> Any:
        context = copy_context() if context is None else context
        task: asyncio.Task[Any] = asyncio.Task(work, loop=loop, context=context)
        made.append((task, context))
        return task

    async with (
        serve_hosted([survey()]) as hosted,
        WebPeer(tools=[{"name": "look", "description": WORD}]).serve() as web,
        serve(tmp_path, config=settings(tmp_path, hosted, web), with_apps=True) as served,
        served.client() as client,
    ):
        asyncio.get_running_loop().set_task_factory(note)
        await use(client, tmp_path, served.model)
        over = {"requestId", "turnId"}

        def late() -> list[str]:
            return [
                f"{task.get_name()}: {context.run(current_ids)}"
                for task, context in made
                if not task.done() and over & set(context.run(current_ids))
            ]

        # What an answer was sent by ends a moment after it.
        with anyio.move_on_after(WAIT_S):
            while late():
                await client.call("thread/loaded/list", {})
        assert late() == []
        asyncio.get_running_loop().set_task_factory(None)
