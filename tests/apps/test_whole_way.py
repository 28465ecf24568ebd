"""Apps: the whole way from a client of a local route to the hosted endpoint and back."""

import hashlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import anyio
import anyio.lowlevel
import pytest

from app_server.apps.files.files import FileSupport
from app_server.apps.files.upload import Uploads, UploadTarget
from app_server.apps.inventory.inventory import build_inventory
from app_server.apps.inventory.names import allocate_routes
from app_server.apps.routes.generation import Generation, GenerationPorts, open_generation
from app_server.apps.upstream.sessions import UpstreamPool
from app_server.clients.demo.hosted.endpoint import DAY_URI, QUESTIONS
from protocol.model import JsonObject
from tests.support.apps.files.peer import FolderEnvironment
from tests.support.apps.hosted import Hosted, serve_hosted
from tests.support.apps.peer import Asked, Guard, LocalClient, connect
from tests.support.harness import WAIT_S, claim

CAPABILITIES: JsonObject = {
    "elicitation": {"form": {}, "url": {}},
    "extensions": {"openai/form": {}},
}


@dataclass
class Way:
    """Everything between a client and the endpoint."""

    hosted: Hosted
    pool: UpstreamPool
    generation: Generation

    @asynccontextmanager
    async def client(self, app: str, asked: Asked | None = None) -> AsyncIterator[LocalClient]:
        server = f"codex_apps__{app}"
        url, bearer = self.generation.url(server), self.generation.bearer(server)
        async with connect(url, bearer, capabilities=CAPABILITIES, asked=asked) as client:
            yield client


@asynccontextmanager
async def way(environment: FolderEnvironment | None = None) -> AsyncIterator[Way]:
    with anyio.fail_after(3 * WAIT_S):
        async with serve_hosted() as hosted, anyio.create_task_group() as tasks:
            pool = UpstreamPool(hosted.target(elicitation=True))
            await tasks.start(lambda task_status: pool.run(task_status=task_status))

            async def refresh() -> None:
                await pool.fetch_tools()

            inventory = build_inventory(await pool.fetch_tools())
            routes = allocate_routes(inventory)
            store = UploadTarget(hosted.endpoint.base_url, hosted.target().headers)
            files = None if environment is None else FileSupport(environment, Uploads(store))
            ports = GenerationPorts(pool, Guard(), files, refresh)
            generation = await open_generation(tasks, inventory, routes, ports)
            yield Way(hosted, pool, generation)
            await generation.close()
            assert pool.counters.open == 0
            pool.shut_down()


def answering(answer: JsonObject, asked: list[tuple[str, JsonObject]]) -> Asked:
    async def reply(method: str, params: JsonObject) -> JsonObject:
        asked.append((method, params))
        return answer

    return reply


async def test_a_tool_of_an_app_is_called_and_its_result_comes_back() -> None:
    async with way() as on:
        async with on.client("calendar") as client:
            listed = await client.request("tools/list")
            assert [tool["name"] for tool in listed["tools"]] == ["_list_events", "_create_event"]
            await client.call("_create_event", {"day": "2030-05-01", "title": "Picnic"}, mine=1)
            read = await client.request("resources/read", {"uri": DAY_URI})
        assert read["contents"][0]["uri"] == DAY_URI
        (call,) = on.hosted.script.messages("tools/call")
        call_id = call["params"]["_meta"]["_codex_apps"].pop("call_id")
        assert call_id
        assert call["params"] == {
            "name": "calendar_create_event",
            "arguments": {"day": "2030-05-01", "title": "Picnic"},
            "_meta": {
                "mine": 1,
                "_codex_apps": {"resource_uri": "/connectors/demo_calendar/create_event"},
            },
        }


@claim("apps:t-31")
@pytest.mark.parametrize("mode", QUESTIONS)
async def test_a_question_comes_all_the_way_down_and_its_answer_all_the_way_up(mode: str) -> None:
    answer: JsonObject = {"action": "accept", "content": {"colour": "red"}, "_meta": {"by": 1}}
    asked: list[tuple[str, JsonObject]] = []
    async with way() as on, on.client("survey", answering(answer, asked)) as client:
        result = await client.call(f"_ask_by_{mode.replace('/', '_')}")
    assert asked == [QUESTIONS[mode]]
    assert result["structuredContent"] == {"answer": answer}


@claim("apps:t-33")
async def test_mail_is_read_once_the_user_has_signed_in() -> None:
    asked: list[tuple[str, Any]] = []
    async with way() as on, on.client("mail", answering({"action": "accept"}, asked)) as client:
        first = await client.call("_read_inbox")
        second = await client.call("_read_inbox")
        assert on.pool.counters.fetches == 2
    (question,) = asked
    assert question[1]["url"] == "https://chatgpt.com/apps/mail/demo_mail"
    assert first["isError"] is True
    assert second["isError"] is False


@claim("apps:r3")
async def test_a_file_is_in_the_drive_by_its_path(tmp_path: Path) -> None:
    environment = FolderEnvironment(tmp_path)
    data = b"Dear diary"
    (tmp_path / "notes.txt").write_bytes(data)
    state = {
        "environmentInstanceId": environment.instance,
        "permissionProfile": {"type": "managed"},
        "codexLinuxSandboxExe": None,
        "sandboxCwd": tmp_path.as_uri(),
        "useLegacyLandlock": False,
    }
    async with way(environment) as on, on.client("drive") as client:
        meta = {"codex/sandbox-state-meta": state}
        result = await client.call("_save_file", {"file": "notes.txt"}, **meta)
        (created,) = on.hosted.script.messages("POST /backend-api/files")
        (call,) = on.hosted.script.messages("tools/call")
    digest = hashlib.sha256(data).hexdigest()
    file = {"name": "notes.txt", "bytes": len(data), "sha256": digest}
    assert result["structuredContent"] == {"file": file}
    assert created == {"file_name": "notes.txt", "file_size": len(data), "use_case": "codex"}
    assert result["_meta"]["codex/toolInput"] == call["params"]["arguments"]


@claim("apps:b5")
async def test_a_client_that_leaves_takes_its_session_with_it() -> None:
    async with way() as on:
        async with on.client("calendar") as one, on.client("calendar") as other:
            await one.call("_list_events")
            await other.call("_list_events")
            assert on.pool.counters.open == 2
        while on.pool.counters.open:
            await anyio.lowlevel.checkpoint()
        assert on.pool.counters.closed == {"ended": 2}
