"""Arguments with files: what is read, what is refused, what is uploaded."""

import asyncio
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import anyio
import anyio.lowlevel
import httpx
import pytest
from mcp.shared.exceptions import MCPError
from pydantic import SecretStr
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from app_server.apps.files import files, upload
from app_server.apps.files.files import MAX_FILE_BYTES, MAX_FILES, FileSupport, SandboxState
from app_server.apps.files.schema import SENTENCE, with_paths
from app_server.apps.files.upload import (
    FINISH_S,
    MAX_ANSWER_BYTES,
    REQUEST_S,
    RETRY_S,
    Content,
    UploadFailed,
    Uploads,
    UploadTarget,
)
from protocol.model import JsonObject
from tests.support.apps.files_peer import FileStore, FolderEnvironment
from tests.support.apps.peer import LocalClient, Served, listed, returns, serve_tools
from tests.support.harness import WAIT_S, claim

TOKEN = "s3cr3t-token"
STATE = "codex/sandbox-state-meta"
FILES = {"openai/fileParams": ["file", "more"]}
SCHEMA = {
    "type": "object",
    "properties": {
        "file": {"type": "object", "description": "A file.", "x": 1},
        "more": {"type": "array", "items": {"type": "object"}, "maxItems": 9, "default": []},
        "note": {"type": "string"},
    },
    "required": ["file"],
}


def target(api: str) -> UploadTarget:
    return UploadTarget(api, {"authorization": SecretStr(f"Bearer {TOKEN}")})


@dataclass
class Desk:
    """A client of a tool that takes files, a folder, and a file store."""

    served: Served
    client: LocalClient
    environment: FolderEnvironment
    store: FileStore

    @property
    def folder(self) -> Path:
        return self.environment.folder

    def state(self, **more: Any) -> JsonObject:
        return {
            "environmentInstanceId": self.environment.instance,
            "permissionProfile": {"type": "managed"},
            "codexLinuxSandboxExe": None,
            "sandboxCwd": self.folder.as_uri(),
            "useLegacyLandlock": False,
            **more,
        }

    async def send(self, arguments: JsonObject, **state: Any) -> Any:
        return await self.client.call("send", arguments, **{STATE: self.state(**state)})

    async def refusal(self, arguments: JsonObject, **state: Any) -> tuple[int, str]:
        """Return why a call was refused, after nothing was uploaded and nothing forwarded."""
        code, message = await self.refusal_later(arguments, **state)
        assert self.store.requests == []
        return code, message

    async def refusal_later(self, arguments: JsonObject, **state: Any) -> tuple[int, str]:
        try:
            answer = await self.send(arguments, **state)
        except MCPError as exc:
            assert self.served.pool.exchanges == []
            assert self.environment.open_pins == 0
            return exc.code, exc.message
        raise AssertionError(f"answered: {answer}")


@asynccontextmanager
async def open_desk(tmp_path: Path, **store: Any) -> AsyncIterator[Desk]:
    folder = tmp_path / "folder"
    folder.mkdir()
    environment = FolderEnvironment(folder)
    tool = listed("send", meta=FILES, inputSchema=SCHEMA)
    async with FileStore(**store).serve() as files_store:
        support = FileSupport(environment, Uploads(target(files_store.api)))
        async with (
            serve_tools([tool, listed("plain")], files=support) as served,
            served.client() as client,
        ):
            yield Desk(served, client, environment, files_store)


async def test_tools_with_files_ask_for_paths(tmp_path: Path) -> None:
    async with open_desk(tmp_path) as desk:
        tools = {t["name"]: t for t in (await desk.client.request("tools/list"))["tools"]}
        assert desk.client.hello["capabilities"]["experimental"] == {
            "codex/sandbox-state-meta": {},
            "codex/tool-input-meta": {},
        }
    assert tools["send"]["inputSchema"] == {
        **SCHEMA,
        "properties": {
            "file": {"type": "string", "description": f"A file. {SENTENCE}"},
            "more": {
                "type": "array",
                "items": {"type": "string"},
                "maxItems": 9,
                "description": SENTENCE,
            },
            "note": {"type": "string"},
        },
    }
    assert tools["plain"]["inputSchema"] == {"type": "object"}


async def test_without_file_support_tools_and_arguments_stay_as_they_are() -> None:
    tool = listed("send", meta=FILES, inputSchema=SCHEMA)
    async with serve_tools([tool]) as served, served.client() as client:
        [shown] = (await client.request("tools/list"))["tools"]
        assert shown["inputSchema"] == SCHEMA
        await client.call("send", {"file": "/etc/passwd"})
        [(_, sent)] = served.pool.asked()
        assert sent["arguments"] == {"file": "/etc/passwd"}


@pytest.mark.parametrize(
    ("given", "shown"),
    [
        ({"type": ["array", "null"]}, {"type": "array", "items": {"type": "string"}}),
        (
            {"items": {}, "minItems": 1},
            {"type": "array", "items": {"type": "string"}, "minItems": 1},
        ),
        (True, {"type": "string"}),
    ],
)
def test_a_schema_is_masked_whatever_it_was(given: Any, shown: JsonObject) -> None:
    tool = {"inputSchema": {"properties": {"f": given}}}
    once = with_paths(tool, ["f", "absent"])
    assert once["inputSchema"]["properties"] == {"f": {**shown, "description": SENTENCE}}
    assert with_paths(once, ["f"]) == once


@pytest.mark.parametrize("schema", [None, {}, {"properties": []}])
def test_a_tool_without_properties_is_not_masked(schema: Any) -> None:
    assert with_paths({"inputSchema": schema}, ["f"]) == {"inputSchema": schema}


@claim("apps:r3")
async def test_a_file_is_uploaded_in_three_requests_and_takes_the_place_of_its_path(
    tmp_path: Path,
) -> None:
    result = {"content": [], "_meta": {"codex/toolInput": "forged"}}
    async with open_desk(tmp_path) as desk:
        desk.served.pool.answer = returns(result)
        (desk.folder / "a.txt").write_bytes(b"hello")
        answer = await desk.send({"file": "a.txt", "note": "n", "more": None})
        uploaded = {
            "download_url": "https://files.example/1",
            "file_id": "file/1",
            "mime_type": "text/plain",
            "file_name": "a.txt",
            "uri": "sediment://file/1",
            "file_size_bytes": 5,
        }
        arguments = {"file": uploaded, "note": "n", "more": None}
        assert answer == {"content": [], "_meta": {"codex/toolInput": arguments}}
        [(_, sent)] = desk.served.pool.asked()
        assert (sent["name"], sent["arguments"]) == ("send", arguments)
        assert set(sent["_meta"]) == {"_codex_apps"}
        create, put, finish = desk.store.requests
        assert desk.store.steps() == [
            "POST /api/files",
            "PUT /api/put",
            "POST /api/files/file/1/uploaded",
        ]
        assert create.json == {"file_name": "a.txt", "file_size": 5, "use_case": "codex"}
        assert (put.body, finish.json) == (b"hello", {})
        assert (put.headers["x-ms-blob-type"], put.headers["content-length"]) == ("BlockBlob", "5")
        assert [sent.headers.get("authorization") for sent in desk.store.requests] == [
            f"Bearer {TOKEN}",
            None,
            f"Bearer {TOKEN}",
        ]
        [state] = desk.environment.pinned
        assert (state.permission_profile, state.sandbox_cwd) == (
            {"type": "managed"},
            str(desk.folder),
        )


async def test_the_files_of_an_array_keep_their_order_and_large_ones_their_bytes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(files, "MEMORY_BYTES", 10)
    content = bytes(range(256)) * 2000
    async with open_desk(tmp_path, finished={"status": "success"}) as desk:
        (desk.folder / "sub").mkdir()
        (desk.folder / "sub" / "b").write_bytes(content)
        (desk.folder / "empty").write_bytes(b"")
        await desk.send({"more": ["sub/b", str(desk.folder / "empty")]})
        [(_, sent)] = desk.served.pool.asked()
        assert [
            (f["file_id"], f["file_name"], f["file_size_bytes"], f["mime_type"])
            for f in sent["arguments"]["more"]
        ] == [("file/1", "b", len(content), None), ("file/2", "empty", 0, None)]
        puts = [s.body for s in desk.store.requests if s.method == "PUT"]
        assert puts == [content, b""]


@pytest.mark.parametrize("arguments", [{}, {"file": None}, {"file": 1}, {"file": {}, "more": []}])
async def test_arguments_without_a_path_pass_unchanged(
    tmp_path: Path, arguments: JsonObject
) -> None:
    async with open_desk(tmp_path) as desk:
        await desk.client.call("send", arguments)
        [(_, sent)] = desk.served.pool.asked()
        assert (sent["arguments"], desk.store.requests) == (arguments, [])


@claim("apps:r3")
async def test_what_is_not_pinned_to_its_instance_is_not_read(tmp_path: Path) -> None:
    async with open_desk(tmp_path) as desk:
        (desk.folder / "a").write_bytes(b"a")
        because = "upload of `a` for `file` failed: "
        call = {"file": "a"}
        with pytest.raises(MCPError, match="the environment of the turn is not known"):
            await desk.client.call("send", call)
        assert await desk.refusal(call, environmentInstanceId=None) == (
            -32602,
            f"{because}the instance of the environment is not known",
        )
        another = (-32602, f"{because}the environment is another one now")
        assert await desk.refusal(call, environmentInstanceId="instance-2") == another
        assert await desk.refusal(call, environmentId="elsewhere") == another
        desk.environment.is_replaced = True
        assert await desk.refusal(call) == another
        assert desk.environment.pinned == []


@claim("apps:r3")
async def test_an_array_with_anything_but_paths_is_refused_before_anything_is_read(
    tmp_path: Path,
) -> None:
    async with open_desk(tmp_path) as desk:
        (desk.folder / "a").write_bytes(b"a")
        refusal = await desk.refusal({"file": "a", "more": ["a", 7]})
        assert refusal == (-32602, "`more[1]` must be the path of a file")
        many = await desk.refusal({"more": ["a"] * (MAX_FILES + 1)})
        assert many == (
            -32602,
            "upload of `a` for `more[32]` failed: a call has at most 32 files",
        )
        assert desk.environment.pinned == []


@claim("apps:r3")
async def test_what_the_sandbox_does_not_allow_is_not_read(tmp_path: Path) -> None:
    async with open_desk(tmp_path) as desk:
        outside = tmp_path / "secret"
        outside.write_bytes(b"secret")
        (desk.folder / "link").symlink_to(outside)
        (desk.folder / "folder").symlink_to(tmp_path)
        (desk.folder / "sub").mkdir()
        os.mkfifo(desk.folder / "pipe")
        denied = "the sandbox does not allow it"
        for path, reason in (
            (str(outside), denied),
            ("../secret", denied),
            ("sub/../../secret", denied),
            ("link", denied),
            ("folder/secret", denied),
            ("a\0b", "it is not a path"),
            ("absent", "there is no such file"),
            ("sub", "it is not a regular file"),
            ("pipe", "it is not a regular file"),
        ):
            refusal = await desk.refusal({"file": path})
            assert refusal == (-32602, f"upload of `{path}` for `file` failed: {reason}")
        _, shown = await desk.refusal({"file": "x" * 301})
        assert shown.startswith(f"upload of `{'x' * 300}` for")


@claim("apps:r3")
async def test_all_files_of_an_array_are_read_before_one_is_uploaded(tmp_path: Path) -> None:
    async with open_desk(tmp_path) as desk:
        (desk.folder / "a").write_bytes(b"a")
        refusal = await desk.refusal({"more": ["a", "absent"]})
        assert refusal == (
            -32602,
            "upload of `absent` for `more[1]` failed: there is no such file",
        )


@claim("apps:r3")
async def test_a_file_has_a_bound_and_just_the_size_that_was_announced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with open_desk(tmp_path) as desk:
        file = desk.folder / "a"
        because = "upload of `a` for `file` failed: "
        with file.open("wb") as sparse:
            sparse.truncate(MAX_FILE_BYTES + 1)
        refusal = await desk.refusal({"file": "a"})
        assert refusal == (-32602, f"{because}it is larger than 536870912 bytes")
        monkeypatch.setattr(files, "MAX_FILE_BYTES", 4)
        for now, changed in ((b"12345", "more"), (b"123", "fewer")):
            file.write_bytes(b"1234")
            desk.environment.content_at_read = now
            refusal = await desk.refusal({"file": "a"})
            assert refusal == (-32602, f"{because}it has {changed} bytes than it had before")
        desk.environment.content_at_read = None
        file.write_bytes(b"1234")
        await desk.send({"file": "a"})
        assert len(desk.served.pool.exchanges) == 1


async def test_an_upload_that_fails_fails_the_call(tmp_path: Path) -> None:
    async with open_desk(tmp_path, answers={"put": [Response(status_code=503)]}) as desk:
        (desk.folder / "a").write_bytes(b"a")
        assert await desk.refusal_later({"more": ["a"]}) == (
            -32603,
            "upload of `a` for `more[0]` failed: the file store answered with status 503",
        )


@claim("apps:t-36")
async def test_a_call_that_is_cancelled_during_an_upload_is_not_forwarded(tmp_path: Path) -> None:
    reached, gone = asyncio.Event(), asyncio.Event()

    async def never(request: Request) -> Response:
        reached.set()
        while not await request.is_disconnected():
            await anyio.lowlevel.checkpoint()
        gone.set()
        return Response()

    async with open_desk(tmp_path, answers={"uploaded": [never]}) as desk:
        for name in "ab":
            (desk.folder / name).write_bytes(b"a")
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(desk.send, {"file": "a", "more": ["b"]})
            with anyio.fail_after(WAIT_S):
                await reached.wait()
            tasks.cancel_scope.cancel()
        with anyio.fail_after(WAIT_S):
            await gone.wait()
        assert (len(desk.store.requests), desk.served.pool.exchanges) == (3, [])
        await desk.send({"file": "b"})
        assert len(desk.served.pool.exchanges) == 1
        assert desk.environment.open_pins == 0


@claim("apps:t-37")
async def test_a_shutdown_during_an_upload_forwards_nothing(tmp_path: Path) -> None:
    reached = asyncio.Event()

    async def never(request: Request) -> Response:
        reached.set()
        while not await request.is_disconnected():
            await anyio.lowlevel.checkpoint()
        return Response()

    async with open_desk(tmp_path, answers={"put": [never]}) as desk:
        (desk.folder / "a").write_bytes(b"a")
        async with anyio.create_task_group() as tasks:
            refusals = []

            async def call() -> None:
                refusals.append(await desk.refusal_later({"file": "a"}))

            tasks.start_soon(call)
            with anyio.fail_after(WAIT_S):
                await reached.wait()
            with anyio.fail_after(WAIT_S):
                await desk.served.generation.close()
    assert refusals == [(-32603, "these app servers have been shut down")]


@claim("apps:r4")
@pytest.mark.parametrize(
    ("arguments", "looked_at"),
    [({"more": ["a", "b"]}, ["a", "b"]), ({"file": "a", "more": ["b"]}, ["a"])],
)
async def test_a_change_of_credentials_stops_uploads(
    tmp_path: Path, arguments: JsonObject, looked_at: list[str]
) -> None:
    async with open_desk(tmp_path) as desk:

        async def change(request: Request) -> Response:
            desk.served.guard.held = False
            return JSONResponse({"status": "success", "download_url": "https://a.example"})

        desk.store.answers["uploaded"] = [change]
        for name in "ab":
            (desk.folder / name).write_bytes(b"a")
        refusal = await desk.refusal_later(arguments)
        assert refusal == (-32603, "the credentials for apps are out of date")
        assert len(desk.store.requests) == 3
        assert desk.environment.looked_at == [str(desk.folder / name) for name in looked_at]
        desk.served.guard.held = True


@pytest.mark.parametrize(
    "state",
    [
        7,
        {},
        {"permissionProfile": {}, "sandboxCwd": "/tmp"},
        {"permissionProfile": {}, "sandboxCwd": "file://elsewhere/tmp"},
        {"permissionProfile": {}, "sandboxCwd": "file:relative"},
        {"permissionProfile": {}, "sandboxCwd": 1},
        {"permissionProfile": [], "sandboxCwd": "file:///tmp"},
        {"permissionProfile": {}, "sandboxCwd": "file:///tmp", "environmentInstanceId": 1},
    ],
)
def test_a_sandbox_state_that_makes_no_sense_is_refused(state: Any) -> None:
    with pytest.raises(MCPError) as refused:
        SandboxState.parse(state)
    assert refused.value.code == -32602


def test_a_sandbox_state_is_read_with_what_it_leaves_out() -> None:
    given = {"permissionProfile": {"a": 1}, "sandboxCwd": "file:///a%20b", "useMxc": False}
    assert SandboxState.parse(given) == SandboxState(
        environmentId="local",
        environmentInstanceId=None,
        permissionProfile={"a": 1},
        codexLinuxSandboxExe=None,
        sandboxCwd="file:///a%20b",
        useLegacyLandlock=False,
    )
    assert SandboxState.parse(given).sandbox_cwd == "/a b"


# Uploads alone.


class Time:
    """A clock that moves when somebody sleeps."""

    def __init__(self) -> None:
        self.now_s = 0.0
        self.slept: list[float] = []

    def now(self) -> float:
        return self.now_s

    async def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.now_s += seconds


async def chunks() -> AsyncIterator[bytes]:
    yield b"he"
    yield b"llo"


HELLO = Content("a.txt", 5, chunks)


async def failure(store: FileStore, time: Time | None = None) -> str:
    """Return why an upload fails."""
    clock = time or Time()
    with pytest.raises(UploadFailed) as failed:
        await Uploads(target(store.api), clock.sleep, clock.now).upload(HELLO)
    assert TOKEN not in str(failed.value)
    assert "sig=" not in str(failed.value)
    return str(failed.value)


async def test_a_file_that_is_not_there_yet_is_asked_for_again(tmp_path: Path) -> None:
    time = Time()
    retry = JSONResponse({"status": "retry"})
    async with FileStore(answers={"uploaded": [retry] * 3}).serve() as store:
        await Uploads(target(store.api), time.sleep, time.now).upload(HELLO)
        assert time.slept == [RETRY_S] * 3
    time = Time()
    async with FileStore(finished={"status": "retry"}).serve() as store:
        assert await failure(store, time) == "it was not there after 30 s"
    assert time.slept == [0.25] * int(FINISH_S / RETRY_S)


@pytest.mark.parametrize(
    ("word", "answer", "reason"),
    [
        ("files", Response(status_code=500), "the file store answered with status 500"),
        ("files", Response(status_code=302), "the file store answered with status 302"),
        ("files", Response(b"["), "the file store did not answer with a JSON object"),
        ("files", JSONResponse([]), "the file store did not answer with a JSON object"),
        ("files", JSONResponse({"file_id": "f"}), "the file store gave no upload_url"),
        ("files", JSONResponse({"upload_url": "u"}), "the file store gave no file_id"),
        (
            "files",
            JSONResponse({"file_id": "f", "upload_url": "ftp://a.example"}),
            "the file store gave an address that is not https",
        ),
        (
            "files",
            JSONResponse({"file_id": "f", "upload_url": "https://a\x00"}),
            "the file store gave no address",
        ),
        ("files", Response(b"x" * (MAX_ANSWER_BYTES + 1)), "the file store said too much"),
        ("put", Response(status_code=403), "the file store answered with status 403"),
        ("uploaded", JSONResponse({"status": "success"}), "the file store gave no download_url"),
        (
            "uploaded",
            JSONResponse({"status": "error", "error_message": "a virus"}),
            "a virus",
        ),
        ("uploaded", JSONResponse({"status": 1}), "it was not accepted"),
    ],
)
async def test_an_upload_fails_with_a_reason_and_without_addresses(
    word: str, answer: Response, reason: str
) -> None:
    async with FileStore(answers={word: [answer]}).serve() as store:
        assert await failure(store) == reason


async def test_a_store_that_is_not_there_or_too_slow_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    async with FileStore().serve() as store:
        pass
    assert await failure(store) == "the file store cannot be reached: ConnectError"
    monkeypatch.setattr(upload, "REQUEST_S", 0)
    async with FileStore().serve() as store:
        assert await failure(store) == "the file store did not answer within 0 s"
    assert REQUEST_S == 60.0


async def test_an_address_without_tls_is_for_a_store_on_loopback_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked = []

    def answer(request: httpx.Request) -> httpx.Response:
        asked.append(str(request.url))
        return httpx.Response(200, json={"file_id": "f", "upload_url": "http://127.0.0.1:1/x"})

    real = httpx.AsyncClient
    trusting: list[Any] = []

    def client(**options: Any) -> httpx.AsyncClient:
        trusting.append(options["trust_env"])
        return real(**{**options, "transport": httpx.MockTransport(answer)})

    monkeypatch.setattr(httpx, "AsyncClient", client)
    for api in ("https://a.example/api", "http://localhost:1/api"):
        with pytest.raises(UploadFailed, match="an address that is not https"):
            await Uploads(target(api)).upload(HELLO)
    assert asked == ["https://a.example/api/files", "http://localhost:1/api/files"]
    assert trusting == [True, False]


def test_credentials_of_uploads_are_not_shown() -> None:
    assert TOKEN not in repr(target("https://a.example"))
