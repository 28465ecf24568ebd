"""host: a file of another environment, as its client sees it."""

import json

import anyio
import pytest
from websockets.asyncio.server import ServerConnection

from app_server.host.exec.client.process import read_beginning
from app_server.host.exec.client.starts import file_open
from protocol.exec.processes import WorkPolicy
from protocol.turns.policy import DangerFullAccessSandboxPolicy
from tests.support.harness import WAIT_S, claim
from tests.support.host.played_exec_server import connected, playing, welcome

POLICY = WorkPolicy(sandbox_policy=DangerFullAccessSandboxPolicy())


@claim("environment:files")
@pytest.mark.parametrize(
    ("code", "limit_bytes", "content"), [(0, 9, b"begin"), (1, 5, b"begin"), (1, 9, None)]
)
async def test_a_file_that_is_not_read_to_where_it_was_wanted_is_no_file(
    code: int, limit_bytes: int, content: bytes | None
) -> None:
    async def play(socket: ServerConnection) -> None:
        await welcome(socket)
        opened = json.loads(await socket.recv())
        await socket.send(json.dumps({"id": opened["id"], "result": {"pid": 0, "size": 100}}))
        await socket.send(b"\1\0\0\0\1begin")
        ended = {"processId": 1, "exitCode": code, "signal": None}
        await socket.send(json.dumps({"method": "process/exited", "params": ended}))
        await socket.wait_closed()

    with anyio.fail_after(WAIT_S):
        async with playing(play) as url, connected(url) as connection:
            opening = connection.start(file_open("/a", POLICY))
            if content is not None:
                assert await read_beginning(opening, limit_bytes) == (content, 100)
                return
            with pytest.raises(ConnectionError, match=r"^it was not read to its end$"):
                await read_beginning(opening, limit_bytes)
