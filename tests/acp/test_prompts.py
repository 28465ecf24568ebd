"""Prompts, what is told of their turns, commands, options, and cancels."""

from pathlib import Path
from typing import Any

import acp
import anyio
import pytest
from acp.schema import (
    EmbeddedResourceContentBlock,
    ImageContentBlock,
    ResourceContentBlock,
    TextContentBlock,
    TextResourceContents,
)

from tests.support.clients.acp import TERMINALS, acp_session, prompt
from tests.support.harness import WAIT_S, claim, serve
from tests.support.model import Gate, Refusal, calls, says

WINDOW = "model_context_window = 100000\n"
PATCH = "*** Begin Patch\n*** Update File: a.txt\n@@\n-alpha\n+beta\n*** End Patch\n"
PNG = (
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAA"
    "AABJRU5ErkJggg=="
)


@claim("acp:prompt")
async def test_a_prompt_is_answered_piece_by_piece_with_its_usage(tmp_path: Path) -> None:
    async with serve(tmp_path, config=WINDOW) as served:
        served.model.scripts.append(says("One ", "two."))
        async with acp_session(served, tmp_path) as (editor, agent, session_id):
            ended = await agent.prompt(session_id=session_id, prompt=prompt("Count.\nAll."))
            assert ended.model_dump(mode="json", by_alias=True, exclude_unset=True) == {
                "stopReason": "end_turn",
                "usage": {
                    "totalTokens": 15,
                    "inputTokens": 8,
                    "cachedReadTokens": 2,
                    "cachedWriteTokens": 0,
                    "outputTokens": 5,
                    "thoughtTokens": 1,
                },
            }
            commands, *told = editor.take()
            assert commands["sessionUpdate"] == "available_commands_update"
            chunk = {"sessionUpdate": "agent_message_chunk", "messageId": "msg_1"}
            assert told == [
                {"sessionUpdate": "session_info_update", "title": "Count."},
                {**chunk, "content": {"type": "text", "text": "One "}},
                {**chunk, "content": {"type": "text", "text": "two."}},
                {"sessionUpdate": "usage_update", "used": 15, "size": 100000},
            ]


@claim("acp:prompt")
async def test_what_a_prompt_mentions_reaches_the_model(tmp_path: Path) -> None:
    uri = (tmp_path / "a.txt").as_uri()
    blocks = [
        TextContentBlock(type="text", text="What do "),
        ResourceContentBlock(type="resource_link", name="b.txt", uri="file:///b.txt"),
        TextContentBlock(type="text", text=" and "),
        EmbeddedResourceContentBlock(
            type="resource", resource=TextResourceContents(uri=uri, text="alpha")
        ),
        TextContentBlock(type="text", text=" say?"),
        ImageContentBlock(type="image", data=PNG, mime_type="image/png"),
    ]
    async with serve(tmp_path) as served:
        async with acp_session(served, tmp_path) as (_, agent, session_id):
            await agent.prompt(session_id=session_id, prompt=blocks)
        (message,) = served.model.items()
        assert message["content"] == [
            {
                "type": "input_text",
                "text": f"What do [@b.txt](file:///b.txt) and [@a.txt]({uri}) say?",
            },
            {"type": "input_image", "image_url": f"data:image/png;base64,{PNG}"},
            {"type": "input_text", "text": f'\n<context ref="{uri}">\nalpha\n</context>'},
        ]


@claim("acp:cancel")
async def test_a_cancel_ends_the_turn_and_the_next_prompt_works(tmp_path: Path) -> None:
    gate = Gate()
    script = says("Never ", "finished.")
    async with (
        serve(tmp_path) as served,
        acp_session(served, tmp_path) as (
            editor,
            agent,
            session_id,
        ),
    ):
        served.model.scripts.append([*script[:3], gate, *script[3:]])
        async with anyio.create_task_group() as tasks:

            async def asks() -> None:
                ended = await agent.prompt(session_id=session_id, prompt=prompt("Go on."))
                assert ended.stop_reason == "cancelled"

            tasks.start_soon(asks)
            await editor.until(lambda: editor.text() == "Never ")
            await agent.cancel(session_id=session_id)
        gate.opened.set()
        served.model.scripts.append(says("Here."))
        editor.take()
        ended = await agent.prompt(session_id=session_id, prompt=prompt("Are you there?"))
        assert (ended.stop_reason, editor.text()) == ("end_turn", "Here.")


@claim("acp:cancel")
async def test_a_request_that_is_cancelled_interrupts_its_turn(tmp_path: Path) -> None:
    gate = Gate()
    async with serve(tmp_path) as served, served.client() as codex:
        thread_id = await codex.start_thread(cwd=str(tmp_path))
        served.model.scripts.append([*says("Never")[:3], gate])
        async with served.pipe(f"{served.urls[0]}/acp") as pipe:
            await pipe.send(_request(0, "initialize", '{"protocolVersion":1}'))
            await pipe.receive()
            place = f'{{"sessionId":"{thread_id}","cwd":"{tmp_path}","mcpServers":[]}}'
            await pipe.send(_request(1, "session/resume", place))
            await pipe.receive()
            block = '[{"type":"text","text":"Go on."}]'
            begin = f'{{"sessionId":"{thread_id}","prompt":{block}}}'
            await pipe.send(_request("p", "session/prompt", begin))
            await codex.wait_for("item/agentMessage/delta")
            await pipe.send(
                '{"jsonrpc":"2.0","method":"$/cancel_request","params":{"requestId":"p"}}'
            )
            ended = await codex.wait_for("turn/completed")
            assert ended["params"]["turn"]["status"] == "interrupted"
            with anyio.fail_after(WAIT_S):
                while '"id":"p"' not in (answer := await pipe.receive()):
                    pass
            assert '"code":-32800' in answer
        gate.opened.set()


def _request(number: int | str, method: str, params: str) -> str:
    shown = f'"{number}"' if isinstance(number, str) else number
    return f'{{"jsonrpc":"2.0","id":{shown},"method":"{method}","params":{params}}}'


@claim("acp:tools")
async def test_a_command_and_a_patch_are_told_with_kinds_places_and_output(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("alpha\n")
    command = {"name": "exec_command", "arguments": {"cmd": "cat a.txt"}}
    patch = {"name": "apply_patch", "arguments": {"input": PATCH}}
    async with serve(tmp_path, config='sandbox_mode = "workspace-write"') as served:
        served.model.scripts += [calls(command), calls(patch), says("Done.")]
        async with acp_session(served, tmp_path) as (editor, agent, session_id):
            await agent.prompt(session_id=session_id, prompt=prompt("Work."))
            told = editor.take("tool_call", "tool_call_update")
        path = str(tmp_path / "a.txt")
        text = {"type": "content", "content": {"type": "text", "text": "alpha\n"}}
        diff: dict[str, Any] = {
            "type": "diff",
            "path": path,
            "oldText": "alpha\n",
            "newText": "beta\n",
        }
        diff["_meta"] = {"kind": "update"}
        call, update = {"toolCallId": "call_1"}, "tool_call_update"
        assert told == [
            {
                "sessionUpdate": "tool_call",
                **call,
                "status": "in_progress",
                "title": "cat a.txt",
                "kind": "read",
                "locations": [{"path": path}],
                "rawInput": {"command": "cat a.txt", "cwd": str(tmp_path)},
            },
            {"sessionUpdate": update, **call, "content": [text]},
            {
                "sessionUpdate": update,
                **call,
                "status": "completed",
                "content": [text],
                "rawOutput": {"exitCode": 0},
            },
            {
                "sessionUpdate": "tool_call",
                **call,
                "status": "in_progress",
                "title": "Edit files",
                "kind": "edit",
                "locations": [{"path": path}],
                "content": [diff],
            },
            {"sessionUpdate": update, **call, "status": "completed", "content": [diff]},
        ]


@claim("acp:tools")
async def test_a_terminal_of_the_editor_gets_output_as_it_comes(tmp_path: Path) -> None:
    line = "echo one; while [ ! -e go ]; do sleep 0.05; done; echo two; exit 3"
    command = {"name": "exec_command", "arguments": {"cmd": line, "yield_time_ms": 30000}}
    config = 'sandbox_mode = "danger-full-access"'
    async with serve(tmp_path, config=config) as served:
        served.model.scripts += [calls(command), says("Ran.")]
        async with (
            acp_session(served, tmp_path, TERMINALS) as (editor, agent, session_id),
            anyio.create_task_group() as tasks,
        ):

            def shown() -> str:
                metas = [each.get("_meta", {}) for each in editor.updates]
                return "".join(
                    meta["terminal_output"]["data"] for meta in metas if "terminal_output" in meta
                )

            async def asks() -> None:
                await agent.prompt(session_id=session_id, prompt=prompt("Run it."))

            tasks.start_soon(asks)
            await editor.until(lambda: shown() == "one\n")
            (tmp_path / "go").touch()
            await editor.until(lambda: shown() == "one\ntwo\n")
        first, *_, last = editor.take("tool_call", "tool_call_update")
        assert first["content"] == [{"type": "terminal", "terminalId": "call_1"}]
        assert first["_meta"] == {"terminal_info": {"terminal_id": "call_1", "cwd": str(tmp_path)}}
        assert last == {
            "sessionUpdate": "tool_call_update",
            "toolCallId": "call_1",
            "status": "failed",
            "rawOutput": {"exitCode": 3},
            "_meta": {"terminal_exit": {"terminal_id": "call_1", "exit_code": 3, "signal": None}},
        }


@claim("acp:tools")
async def test_a_plan_is_told(tmp_path: Path) -> None:
    steps = [{"step": "a", "status": "completed"}, {"step": "b", "status": "in_progress"}]
    async with serve(tmp_path) as served:
        served.model.scripts += [calls({"name": "update_plan", "arguments": {"plan": steps}})]
        async with acp_session(served, tmp_path) as (editor, agent, session_id):
            await agent.prompt(session_id=session_id, prompt=prompt("Plan."))
            assert editor.take("plan") == [
                {
                    "sessionUpdate": "plan",
                    "entries": [
                        {"content": "a", "priority": "medium", "status": "completed"},
                        {"content": "b", "priority": "medium", "status": "in_progress"},
                    ],
                }
            ]


@claim("acp:options")
async def test_options_are_settings_of_the_thread(tmp_path: Path) -> None:
    config = 'sandbox_mode = "read-only"\napproval_policy = "on-request"'
    async with (
        serve(tmp_path, config=config) as served,
        served.client() as codex,
        acp_session(served, tmp_path) as (editor, agent, session_id),
    ):
        asked = {"threadId": session_id, "excludeTurns": True}
        await codex.call("thread/resume", asked)
        opened = await agent.resume_session(
            session_id=session_id, cwd=str(tmp_path), mcp_servers=[]
        )
        assert opened.modes.current_mode_id == "read-only"
        shown = {each.id: each.current_value for each in opened.config_options}
        assert shown == {
            "mode": "read-only",
            "collaboration_mode": "default",
            "model": "scripted",
            "reasoning_effort": "medium",
        }
        # From here to there.
        await agent.set_session_mode(session_id=session_id, mode_id="agent-full-access")
        update = await codex.wait_for("thread/settings/updated")
        settings = update["params"]["threadSettings"]
        assert settings["sandboxPolicy"]["type"] == "dangerFullAccess"
        assert settings["approvalPolicy"] == "never"
        answer = await agent.set_config_option(
            session_id=session_id, config_id="reasoning_effort", value="high"
        )
        chosen = {each.id: each.current_value for each in answer.config_options}
        assert (chosen["mode"], chosen["reasoning_effort"]) == ("agent-full-access", "high")
        # And from there to here.
        editor.take()
        change = {"threadId": session_id, "permissions": ":workspace"}
        await codex.call("thread/settings/update", {**change, "approvalPolicy": "untrusted"})
        await editor.until(lambda: editor.take("current_mode_update"))
        for option, value in (("mode", "none"), ("none", "x"), ("model", "gpt-none")):
            with pytest.raises(acp.RequestError) as refused:
                await agent.set_config_option(session_id=session_id, config_id=option, value=value)
            assert refused.value.code == -32602


@claim("acp:commands")
async def test_commands_do_what_they_say(tmp_path: Path) -> None:
    async with (
        serve(tmp_path, config=WINDOW) as served,
        acp_session(served, tmp_path) as (
            editor,
            agent,
            session_id,
        ),
    ):
        commands = editor.take("available_commands_update")[0]["availableCommands"]

        async def said(text: str) -> str:
            editor.take()
            ended = await agent.prompt(session_id=session_id, prompt=prompt(text))
            assert ended.stop_reason == "end_turn"
            return editor.text()

        assert (await said("/rename The name")) == "The session is named 'The name'."
        assert {"sessionUpdate": "session_info_update", "title": "The name"} in editor.updates
        assert (await said("/goal")) == "There is no goal."
        assert (await said("/mcp")) == "There are no MCP servers."
        assert f"- Folder: {tmp_path}\n" in (await said("/status"))
        served.model.scripts.append(says("Looked at."))
        assert (await said("/review the tests")) == "Looked at."
        served.model.scripts.append(says("The sum."))
        await said("/compact")
        ended = [each for each in editor.updates if each.get("title") == "Compact the context"]
        assert [each["status"] for each in ended] == ["in_progress"]
        served.model.scripts.append(says("An answer."))
        assert (await said("/no-such-command")) == "An answer."
        assert (await said("/plan")).startswith("Plan mode is on")
        assert [each["name"] for each in commands] == [
            "plan", "review", "review-branch", "review-commit", "compact", "goal", "rename", "mcp",
            "skills", "status",
        ]  # fmt: skip


@claim("acp:errors")
async def test_a_turn_that_fails_answers_with_why(tmp_path: Path) -> None:
    async with serve(tmp_path) as served, acp_session(served, tmp_path) as (_, agent, session_id):
        served.model.scripts.append(Refusal(400, {"error": {"message": "no such thing"}}))
        with pytest.raises(acp.RequestError) as failed:
            await agent.prompt(session_id=session_id, prompt=prompt("Try."))
        assert failed.value.code == -32603
        assert isinstance(failed.value.data, dict)
        assert failed.value.data["code"] == "turnFailed"
