"""mcp: one server of the SDK for many threads, in each revision and on each transport."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import anyio
import pytest

from tests.mcp.both_revisions import ASKING, SETTINGS, Running, Setting, running
from tests.support.harness import WAIT_S, claim
from tests.support.mcp_peers.calls import raw_call, start_asking, steps_until_settled
from tests.support.model import calls, says

COMMON = [(setting, "home") for setting in SETTINGS]
COMMON += [(Setting("stdio", "auto"), "folder"), (Setting("http", "2025"), "folder")]
EVERYWHERE = pytest.mark.parametrize(
    ("setting", "share"), COMMON, ids=[f"{setting}-{share}" for setting, share in COMMON]
)
WHERE_IT_MAY_ASK = pytest.mark.parametrize("setting", ASKING, ids=str)


async def three(run: Running) -> list[str]:
    """Start two threads more; gives all."""
    return [run.thread_id, await run.new_thread(), await run.new_thread()]


async def said_to(run: Running, thread_id: str, tool: str) -> Any:
    params = {"threadId": thread_id, "server": "raw", "tool": tool}
    result = await run.client.call("mcpServer/tool/call", params)
    return result["content"][0]["text"]


def calls_once(request: dict[str, Any]) -> Any:
    """Choose what the model of each thread does: two calls, and then no more."""
    if request["input"][-1]["type"] == "function_call_output":
        return says("ok")
    return calls(raw_call("meta"), raw_call("progress"))


async def until_over(run: Running, turns: int) -> list[dict[str, Any]]:
    """Return all messages up to the end of so many turns."""
    return [one for _ in range(turns) for one in await run.client.until("turn/completed")]


def params_of(messages: Sequence[dict[str, Any]], method: str) -> dict[str, Any]:
    """Return the params of the messages of a method, by thread; of each thread there is one."""
    found = [one["params"] for one in messages if one.get("method") == method]
    assert len({params["threadId"] for params in found}) == len(found)
    return {params["threadId"]: params for params in found}


async def until_slow(
    run: Running, thread_id: str, begun: Sequence[str], ended: Sequence[str]
) -> None:
    """Wait until the server says, to another thread, of which threads it has or had slow calls."""
    with anyio.fail_after(WAIT_S):
        while True:
            found = json.loads(await said_to(run, thread_id, "slowness"))
            if (sorted(found["begun"]), found["ended"]) == (begun, ended):
                return
            assert set(found["ended"]) <= set(ended)


async def status(run: Running, thread_id: str) -> tuple[int, int | None]:
    """Return how many threads have the server of this one, and its process."""
    [row] = (await run.client.call("mcpServerStatus/list", {"threadId": thread_id}))["data"]
    return row["sharedBy"], row["pid"]


@claim("mcp:shared")
@pytest.mark.parametrize("transport", ["stdio", "http"])
@pytest.mark.parametrize(
    ("protocol", "shared_by"), [("2026-07-28", (3, 3, 3)), ("auto", (1, 2, 2))]
)
async def test_a_server_without_session_is_shared_once_that_is_known(
    tmp_path: Path, transport: str, protocol: str, shared_by: tuple[int, ...]
) -> None:
    async with running(tmp_path, Setting(transport, protocol)) as run:
        found = [await status(run, thread_id) for thread_id in await three(run)]
        assert tuple(threads for threads, _ in found) == shared_by
        assert found[1] == found[2]


@claim("mcp:shared")
@EVERYWHERE
async def test_metadata_and_progress_of_each_call_are_those_of_its_thread(
    tmp_path: Path, setting: Setting, share: str
) -> None:
    async with running(tmp_path, setting, share=f'"{share}"') as run:
        threads = await three(run)
        [common] = {await status(run, thread_id) for thread_id in threads}
        assert (common[0], common[1] is None) == (3, setting.transport != "stdio")
        run.served.model.choose = calls_once
        turns = {}
        for thread_id in threads:
            params = {"threadId": thread_id, "input": [{"type": "text", "text": "go"}]}
            turns[thread_id] = (await run.client.call("turn/start", params))["turn"]["id"]
        messages = await until_over(run, 3)
        told = {
            message["params"]["threadId"]: json.loads(item["result"]["content"][0]["text"])
            for message in messages
            if message.get("method") == "item/completed"
            and (item := message["params"]["item"]).get("tool") == "meta"
        }
        assert {one: meta["threadId"] for one, meta in told.items()} == dict(
            zip(threads, threads, strict=True)
        )
        metadata = {one: meta["x-codex-turn-metadata"]["turn_id"] for one, meta in told.items()}
        assert metadata == turns
        reported = params_of(messages, "item/mcpToolCall/progress")
        assert {one: params["turnId"] for one, params in reported.items()} == turns
        assert {params["message"] for params in reported.values()} == {"half way"}


@claim("mcp:shared")
@WHERE_IT_MAY_ASK
async def test_each_form_is_asked_and_answered_in_its_thread(
    tmp_path: Path, setting: Setting
) -> None:
    async with running(tmp_path, setting, share='"home"') as run:
        threads = await three(run)
        # A question that names no call needs its server for itself.
        rounds = (
            [list(threads)] if setting.questions_name_their_call else [[one] for one in threads]
        )
        for together in rounds:
            for thread_id in together:
                await start_asking(run.served, run.client, thread_id, raw_call("form"))
            questions = [
                await run.client.wait_for("mcpServer/elicitation/request") for _ in together
            ]
            assert {one["params"]["threadId"] for one in questions} == set(together)
            for one in reversed(questions):
                content = {"which": one["params"]["threadId"]}
                answer = {"action": "accept", "content": content}
                await run.client.send({"id": one["id"], "result": answer})
            for message in await until_over(run, len(together)):
                params = message["params"]
                if message.get("method") != "item/completed" or "server" not in params["item"]:
                    continue
                together.remove(params["threadId"])
                [block] = params["item"]["result"]["content"]
                said = {"action": "accept", "content": {"which": params["threadId"]}}
                assert json.loads(block["text"]) == said
            assert together == []


@claim("mcp:shared")
@EVERYWHERE
async def test_an_interrupt_cancels_the_call_of_its_thread_alone(
    tmp_path: Path, setting: Setting, share: str
) -> None:
    async with running(tmp_path, setting, share=f'"{share}"') as run:
        one, other, third = await three(run)
        for thread_id in (one, other):
            await start_asking(run.served, run.client, thread_id, raw_call("slow"))
        ended: list[str] = []
        await until_slow(run, third, sorted([one, other]), ended)
        for thread_id in (other, one):
            await run.client.call("turn/interrupt", {"threadId": thread_id, "turnId": ""})
            completed = await run.client.wait_for("turn/completed")
            turn = completed["params"]["turn"]
            assert (completed["params"]["threadId"], turn["status"]) == (thread_id, "interrupted")
            ended.append(thread_id)
            await until_slow(run, third, sorted([one, other]), ended)


@claim("mcp:shared")
@EVERYWHERE
async def test_what_cannot_be_shared_has_an_instance_of_its_own(
    tmp_path: Path, setting: Setting, share: str
) -> None:
    folder = tmp_path / "folder"
    folder.mkdir()
    async with running(tmp_path, setting, share=f'"{share}"') as run:
        is_process = setting.transport == "stdio"
        changed = {"env.WHO": "me"} if is_process else {"http_headers.x-who": "me"}

        async def started(**params: Any) -> str:
            thread_id = await run.client.start_thread(**params)
            assert (await steps_until_settled(run.client, "raw"))["raw"][-1] == ("ready", None)
            return thread_id

        away = [await started(cwd=str(folder)) for _ in range(2)]
        settings = {f"mcp_servers.raw.{key}": value for key, value in changed.items()}
        changed_settings = await started(config=settings)
        # These travel with each call.
        policy = await started(approvalPolicy="never", sandbox="read-only")
        found = [await status(run, one) for one in (run.thread_id, policy, *away, changed_settings)]
        # What no process is started for has no folder, unless it was asked for one for each.
        if is_process or share == "folder":
            assert [row[0] for row in found] == [2, 2, 2, 2, 1]
        else:
            assert [row[0] for row in found] == [4, 4, 4, 4, 1]
        if is_process:
            assert len({row[1] for row in found}) == 3
