"""environments: files of an exec server's machine."""

import errno
import json
import os
from pathlib import Path
from typing import Any

import pytest

from app_server.host.exec import protocol as exec_protocol
from app_server.host.exec.protocol import CREDIT_BYTES, WINDOW_BYTES
from tests.support.harness import claim
from tests.support.host.exec_conversations import listening
from tests.support.host.exec_peer import ExecClient, exec_client
from tests.support.turn_tools.patches import INSIDE_ONLY, patch_of

FULL = {"type": "dangerFullAccess"}
READ_ONLY = {"type": "readOnly", "networkAccess": False}


async def output(client: ExecClient, number: int) -> tuple[bytes, Any]:
    """Give all output of a process, crediting it, and how it ended."""
    content, taken = b"", 0
    while True:
        match await client.receive():
            case (1, process_id, data):
                assert process_id == number
                content += data
                taken += len(data)
                if taken >= CREDIT_BYTES:
                    await client.send(
                        "process/credit", processId=number, stream="stdout", bytes=taken
                    )
                    taken = 0
            case {"method": "process/exited", "params": ended}:
                return content, ended


@claim("environment:files")
async def test_a_file_is_read_whole(tmp_path: Path) -> None:
    content = os.urandom(3 * WINDOW_BYTES)
    (tmp_path / "a").write_bytes(content)
    async with listening() as url, exec_client(url) as client:
        opened = await client.call(
            "file/open", processId=1, path=f"{tmp_path}/a", roots=[], sandboxPolicy=FULL
        )
        assert opened == {"result": {"pid": 0, "size": len(content)}}
        read, ended = await output(client, 1)
        assert (read == content, ended["exitCode"]) == (True, 0)


@claim("environment:files")
async def test_a_file_that_nobody_takes_waits_and_can_be_let_go(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(bytes(3 * WINDOW_BYTES))
    async with listening() as url, exec_client(url) as client:
        params = {"path": f"{tmp_path}/a", "roots": [], "sandboxPolicy": FULL}
        await client.call("file/open", processId=1, **params)
        taken = 0
        while taken < WINDOW_BYTES:
            taken += len((await client.receive())[2])
        assert taken == WINDOW_BYTES
        await client.send("process/kill", processId=1)
        ended = await client.receive_next()
        assert ended["method"] == "process/exited"


@claim("environment:files")
@pytest.mark.parametrize(
    ("name", "number", "message"),
    [
        ("none", errno.ENOENT, "No such file or directory"),
        ("", errno.EINVAL, "it is not a file"),
        ("pipe", errno.EINVAL, "it is not a file"),
        ("secret/auth.json", None, "not allowed by the sandbox"),
        ("real/auth.json", None, "not allowed by the sandbox"),
        ("link", None, "not allowed by the sandbox"),
    ],
)
async def test_what_may_not_be_read_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, number: int | None, message: str
) -> None:
    monkeypatch.setenv("APP_SERVER_HOME", f"{tmp_path}/secret")
    (tmp_path / "real").mkdir()
    (tmp_path / "secret").symlink_to("real")
    (tmp_path / "secret/auth.json").write_text("{}")
    (tmp_path / "link").symlink_to("secret/auth.json")
    os.mkfifo(tmp_path / "pipe")
    async with listening() as url, exec_client(url) as client:
        answer = await client.call(
            "file/open",
            processId=1,
            path=f"{tmp_path}/{name}",
            roots=[str(tmp_path)],
            sandboxPolicy=READ_ONLY,
        )
        expected = {"code": -32000, "message": message, "data": {"errno": number}}
        assert answer == {"error": expected}


@claim("environment:files")
async def test_paths_must_be_absolute() -> None:
    async with listening() as url, exec_client(url) as client:
        params = {"roots": [], "sandboxPolicy": FULL}
        for path in ("a", "", "/a\0"):
            answer = await client.call("file/open", processId=1, path=path, **params)
            assert answer["error"]["message"] == "bad parameters of file/open: path"
        answer = await client.call(
            "file/open", processId=1, path="/a", roots=["x"], sandboxPolicy=FULL
        )
        assert answer["error"]["message"] == "roots must be absolute paths"


async def line_of(client: ExecClient) -> Any:
    """Give the next line that a process prints."""
    line = b""
    while not line.endswith(b"\n"):
        stream, _, data = await client.receive_next()
        assert stream == 1
        line += data
    return json.loads(line)


async def planned(client: ExecClient, folder: Path, text: str) -> Any:
    """Begin a patch, and give the plan."""
    params = {"cwd": str(folder), "roots": [str(folder)], "sandboxPolicy": INSIDE_ONLY}
    await client.call("patch/start", processId=1, **params)
    await client.write(1, json.dumps({"patch": text}).encode() + b"\n")
    return await line_of(client)


ADD = patch_of("*** Add File: a", "+x", "*** Add File: ../b", "+y")


@claim("environment:files")
async def test_a_patch_is_planned_first_and_written_when_it_is_allowed(tmp_path: Path) -> None:
    work = tmp_path.resolve() / "work"
    work.mkdir()
    async with listening() as url, exec_client(url) as client:
        plan = await planned(client, work, ADD)
        inside, outside = plan["files"]
        assert (inside["place"], inside["before"], inside["after"]) == (f"{work}/a", None, "x\n")
        assert plan["outside"] == {outside["place"]: f"{tmp_path.resolve()}/b"}
        assert list(work.iterdir()) == []
        await client.write(1, b'{"write":true}\n')
        assert await line_of(client) == {"failure": None, "changed": []}
        assert (await client.receive_next())["params"]["exitCode"] == 0
        assert {path.name for path in tmp_path.iterdir()} >= {"b"}
        assert (work / "a").read_text() == "x\n"


@claim("environment:files")
@pytest.mark.parametrize("said", [b'{"write":false}\n', b"yes\n", None])
async def test_a_patch_that_is_not_allowed_is_not_written(
    tmp_path: Path, said: bytes | None
) -> None:
    async with listening() as url, exec_client(url) as client:
        await planned(client, tmp_path, ADD)
        if said is None:
            await client.send("process/closeStdin", processId=1)
        else:
            await client.write(1, said)
        assert (await client.receive_next())["params"]["exitCode"] == 0
        assert list(tmp_path.iterdir()) == []


@claim("environment:files")
async def test_a_patch_has_a_bound(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("app_server.host.exec.server.server.MAX_PATCH_BYTES", 1000)
    async with listening() as url, exec_client(url) as client:
        params = {"cwd": str(tmp_path), "roots": [], "sandboxPolicy": FULL}
        await client.call("patch/start", processId=1, **params)
        await client.write(1, bytes(1001))
        assert await client.closed() == (1008, "more input than is taken")
    assert exec_protocol.MAX_PATCH_BYTES == 16 * 1_048_576


@claim("environment:files")
async def test_what_is_no_patch_is_a_failure(tmp_path: Path) -> None:
    async with listening() as url, exec_client(url) as client:
        params = {"cwd": str(tmp_path), "roots": [], "sandboxPolicy": FULL}
        await client.call("patch/start", processId=1, **params)
        await client.write(1, b"nothing\n")
        assert (await line_of(client))["failure"] == "this is no patch"


@claim("environment:files")
async def test_a_place_that_is_not_unicode_is_refused(tmp_path: Path) -> None:
    odd = os.fsencode(tmp_path) + b"/\xff"
    os.mkdir(odd)
    os.symlink(odd, tmp_path / "link")
    async with listening() as url, exec_client(url) as client:
        plan = await planned(client, tmp_path, patch_of("*** Add File: link/a", "+x"))
        assert plan["failure"] == "A path is not Unicode"
        assert os.listdir(odd) == []
