"""The older interface beside conversations: its events, its other methods, the MCP server."""

import asyncio
from pathlib import Path

import anyio
import pytest

from tests.support.accounts.account import call_back
from tests.support.clients.older import OldClient, events, old_client, text
from tests.support.harness import WAIT_S, claim, environment_without, serve, write_config
from tests.support.model import ScriptedModel, calls, says
from tests.support.processes import EXECUTABLE
from tests.support.wire.pipes import LinePipe


@claim("older:listeners")
async def test_events_have_the_form_that_was_asked_for(tmp_path: Path) -> None:
    async with serve(tmp_path) as served, old_client(served) as client:
        started = await client.call("thread/start", {})
        thread_id = started["thread"]["id"]
        listen = {"conversationId": thread_id}
        send = {"conversationId": thread_id, "items": [{"type": "text", "text": "hi"}]}
        await client.call("sendUserMessage", send)
        await client.until("turn/completed")
        listener = await client.call("addConversationListener", listen)
        await client.call("sendUserMessage", send)
        await client.until("codex/event/task_complete")
        assert await client.call("removeConversationListener", listener) == {}
        await client.call("sendUserMessage", send)
        await client.until("turn/completed")
        again = await client.ask("removeConversationListener", listener)
        assert again["error"]["message"] == (
            "Invalid params: `subscriptionId` is not that of a listener"
        )


@claim("older:listeners")
@pytest.mark.parametrize("resumed", [False, True])
async def test_who_begins_a_conversation_need_not_ask_for_its_events(
    tmp_path: Path, resumed: bool
) -> None:
    async with serve(tmp_path) as served, old_client(served) as client:
        if resumed:
            async with old_client(served) as other:
                started = await other.call("newConversation", {})
            conversation = {"conversationId": started["conversationId"]}
            await client.call("resumeConversation", conversation)
        else:
            started = await client.call("newConversation", {})
            conversation = {"conversationId": started["conversationId"]}
        send = {**conversation, "items": text("hi")}
        await client.call("sendUserMessage", send)
        seen = await client.until("codex/event/task_complete")
        assert "turn/started" not in {message["method"] for message in seen}
        # From the first listener on, listeners decide.
        listener = await client.call("addConversationListener", conversation)
        await client.call("removeConversationListener", listener)
        await client.call("sendUserMessage", send)
        seen = await client.until("turn/completed")
        assert events(seen) == []


@claim("older:others")
async def test_the_other_methods_of_the_older_interface(tmp_path: Path) -> None:
    async with serve(tmp_path) as served, old_client(served) as client:
        assert (await client.call("getUserAgent"))["userAgent"].startswith("old/0.169.0 ")
        assert await client.call("userInfo") == {"allegedUserEmail": None}
        assert (
            await client.call("setDefaultModel", {"model": "mine", "reasoningEffort": None}) == {}
        )
        saved = (await client.call("getUserSavedConfig"))["config"]
        assert (saved["model"], saved["modelReasoningEffort"], saved["profiles"]) == (
            "mine",
            None,
            {},
        )
        ran = await client.call(
            "execOneOffCommand",
            {
                "command": ["sh", "-c", "echo out; echo err >&2; exit 3"],
                "cwd": str(tmp_path),
                "sandboxPolicy": {"mode": "read-only"},
            },
        )
        assert ran == {"exitCode": 3, "stdout": "out\n", "stderr": "err\n"}
        # Today's methods go on beside them.
        assert (await client.call("thread/loaded/list", {}))["data"] == []


@claim("older:mcp-server")
async def test_the_mcp_server_speaks_it_too(tmp_path: Path) -> None:
    ask = {"name": "exec_command", "arguments": {"cmd": "touch made", "login": False}}
    async with ScriptedModel().serve() as model:
        write_config(tmp_path, model.url)
        model.scripts += [calls(ask), says("Done.")]
        process = await asyncio.create_subprocess_exec(
            *(str(EXECUTABLE), "mcp-server", "--home", str(tmp_path)),
            env=environment_without("OPENAI_API_KEY"),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            cwd=tmp_path,
        )
        try:
            assert process.stdin is not None
            assert process.stdout is not None
            client = OldClient(LinePipe(process.stdout, process.stdin))
            info = {"name": "old", "version": "1"}
            hello = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": info}
            assert (await client.call("initialize", hello))["serverInfo"]["title"] == "Codex"
            await client.send({"jsonrpc": "2.0", "method": "notifications/initialized"})
            models = await client.call("model/list", {})
            assert models["items"][0]["id"] == "scripted"
            assert models["items"] == models["data"]
            started = await client.listen(cwd=str(tmp_path), approvalPolicy="untrusted")
            send = {"conversationId": started["conversationId"], "items": text("go")}
            await client.call("sendUserMessage", send)
            seen = await client.until(
                "codex/event/task_complete", lambda asked: {"decision": "denied"}
            )
            assert all(message["jsonrpc"] == "2.0" for message in seen)
            (asked,) = (message for message in seen if "id" in message)
            assert asked["method"] == "execCommandApproval"
            assert dict(events(seen))["task_complete"] == {"last_agent_message": "Done."}
            assert not (tmp_path / "made").exists()
            # So do today's methods.
            modes = (await client.call("collaborationMode/list", {}))["data"]
            assert [mode["mode"] for mode in modes] == ["plan", "default"]
            assert (await client.call("account/read", {}))["account"] is None
            thread_id = (await client.call("thread/start", {"cwd": "/"}))["thread"]["id"]
            turn = {"threadId": thread_id, "input": [{"type": "text", "text": "hi"}]}
            await client.call("turn/start", {**turn, "outputSchema": {"type": "object"}})
            await client.until("turn/completed")
            assert model.requests[-1]["text"]["format"]["schema"] == {"type": "object"}
            again = await client.ask("nosuch/method", {})
            assert again["error"]["code"] == -32601
            # MCP goes on beside it.
            names = [tool["name"] for tool in (await client.call("tools/list", {}))["tools"]]
            assert names == ["codex", "codex-reply"]
            process.stdin.close()
            with anyio.fail_after(WAIT_S):
                assert await process.wait() == 0
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()


@claim("older:accounts")
async def test_signing_in_and_out_is_notified_in_the_older_form_too(
    tmp_path: Path,
) -> None:
    async with serve(tmp_path) as served, old_client(served) as client:
        call_back(served, 0)
        await client.call("getUserAgent")
        await client.call("account/login/start", {"type": "apiKey", "apiKey": "sk-1"})
        await client.until("authStatusChange")
        await client.call("account/logout")
        seen = await client.until("authStatusChange")
        assert [(message["method"], message["params"]) for message in seen] == [
            ("account/updated", {"authMode": None, "planType": None}),
            ("authStatusChange", {"authMethod": None}),
        ]
        begun = await client.call("account/login/start", {"type": "chatgpt"})
        await client.call("account/login/cancel", {"loginId": begun["loginId"]})
        (*_, told) = await client.until("loginChatGptComplete")
        assert told["params"]["loginId"] == begun["loginId"]
        assert told["params"]["success"] is False
        assert set(told["params"]) == {"loginId", "success", "error"}


@claim("older:models")
async def test_models_are_listed_in_the_older_form(tmp_path: Path) -> None:
    async with serve(tmp_path) as served, old_client(served) as client:
        plain = await client.call("model/list", {"limit": 1})
        assert "items" not in plain
        listed = await client.call("model/list", {"pageSize": 1})
        assert listed == {**plain, "items": plain["data"]}
        assert len(listed["items"]) == 1
        # The connection speaks the older interface now.
        assert await client.call("model/list", {"limit": 1}) == listed
