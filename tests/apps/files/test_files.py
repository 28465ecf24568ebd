"""Arguments with files: what is read, what is refused, what is uploaded."""

import asyncio
import os
from pathlib import Path

import anyio
import anyio.lowlevel
import pytest
from mcp.shared.exceptions import MCPError
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from app_server.apps.files.files import MAX_FILE_BYTES, MAX_FILES
from protocol.model import Json, JsonObject
from tests.support.apps.files.calls import TOKEN, open_desk
from tests.support.apps.peer import returns
from tests.support.harness import WAIT_S, claim


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
    tmp_path: Path,
) -> None:
    content = bytes(range(256)) * 2000
    async with open_desk(tmp_path, memory_bytes=10, finished={"status": "success"}) as desk:
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


def two_files(**bounds: object) -> JsonObject:
    array = {"type": "array", "items": {"type": "object"}, **bounds}
    return {"type": "object", "properties": {"file": {"type": "object"}, "more": array}}


@claim("apps:r3")
@pytest.mark.parametrize(
    ("bounds", "more", "refusal"),
    [
        ({"minItems": 2}, ["a"], "`more` must have at least 2 files, got 1"),
        ({"minItems": 1}, [], "`more` must have at least 1 files, got 0"),
        ({"minItems": 2}, "a", "`more` must have at least 2 files, got 1"),
        ({"maxItems": 1}, ["a", "b"], "`more` must have at most 1 files, got 2"),
        ({"maxItems": 0}, ["a"], "`more` must have at most 0 files, got 1"),
        ({"uniqueItems": True}, ["a", "b", "a"], "`more[2]` is the same file as `more[0]`"),
        ({"uniqueItems": True}, ["a", "./a"], "`more[1]` is the same file as `more[0]`"),
    ],
)
async def test_an_array_out_of_its_bounds_is_refused_before_anything_is_read(
    tmp_path: Path, bounds: JsonObject, more: Json, refusal: str
) -> None:
    async with open_desk(tmp_path, two_files(**bounds)) as desk:
        (desk.folder / "a").write_bytes(b"a")
        assert await desk.refusal({"file": "a", "more": more}) == (-32602, refusal)
        assert desk.environment.pinned == []


@pytest.mark.parametrize(
    ("bounds", "more"),
    [
        ({"minItems": 2, "maxItems": 2, "uniqueItems": True}, ["a", "b"]),
        ({"uniqueItems": False}, ["a", "a"]),
        ({"minItems": True, "maxItems": -1, "uniqueItems": "x"}, ["a", "a"]),
        ({"minItems": 2}, None),
    ],
)
async def test_an_array_within_its_bounds_is_uploaded(
    tmp_path: Path, bounds: JsonObject, more: Json
) -> None:
    async with open_desk(tmp_path, two_files(**bounds)) as desk:
        for name in "ab":
            (desk.folder / name).write_bytes(b"a")
        await desk.send({"more": more})
        [(_, sent)] = desk.served.pool.asked()
        uploaded = sent["arguments"]["more"]
        named = uploaded and [file["file_name"] for file in uploaded]
        assert named == more


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
    tmp_path: Path,
) -> None:
    because = "upload of `a` for `file` failed: "
    async with open_desk(tmp_path) as desk:
        with (desk.folder / "a").open("wb") as sparse:
            sparse.truncate(MAX_FILE_BYTES + 1)
        refusal = await desk.refusal({"file": "a"})
        assert refusal == (-32602, f"{because}it is larger than 536870912 bytes")
    (tmp_path / "small").mkdir()
    async with open_desk(tmp_path / "small", max_bytes=4) as desk:
        file = desk.folder / "a"
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
