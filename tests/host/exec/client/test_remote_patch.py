"""host: a patch in another environment, as its client sees it."""

import json
import threading
from collections.abc import Awaitable, Callable
from dataclasses import replace

import pytest
from websockets.asyncio.server import ServerConnection

from app_server.host.exec.client import remote_patch
from app_server.host.exec.client.remote_patch import planned_elsewhere
from app_server.host.exec.client.starts import patch_start
from app_server.host.exec.protocol import line_of
from app_server.patch.parse import NotWritten
from protocol.exec.processes import WorkPolicy
from protocol.model import WireModel
from protocol.turns.policy import DangerFullAccessSandboxPolicy
from tests.support.harness import WAIT_S, claim
from tests.support.host.played_exec_server import connected, playing, welcome

POLICY = WorkPolicy(sandbox_policy=DangerFullAccessSandboxPolicy())
PATCH = patch_start("/", POLICY)
PLAN = {
    "files": [
        {"kind": "add", "named": "a", "path": "/a", "place": "/a", "before": None, "after": "x\n"}
    ]
}


def answering(*lines: bytes | None) -> Callable[[ServerConnection], Awaitable[None]]:
    """Play an exec server that answers each line of a patch so; None: it exits, b"": it waits."""

    async def play(socket: ServerConnection) -> None:
        await welcome(socket)
        started = json.loads(await socket.recv())
        await socket.send(json.dumps({"id": started["id"], "result": {"pid": 0}}))
        for line in lines:
            taken = b""
            while not taken.endswith(b"\n"):
                frame = await socket.recv()
                assert isinstance(frame, bytes)
                taken += frame
            if line:
                await socket.send(b"\1\0\0\0\1" + line)
        if None in lines:
            ended = {"processId": 1, "exitCode": 0, "signal": None}
            await socket.send(json.dumps({"method": "process/exited", "params": ended}))
        await socket.wait_closed()

    return play


def line(message: object) -> bytes:
    return json.dumps(message).encode() + b"\n"


@claim("environment:files")
@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (line([]), "the exec server gave an answer that makes no sense"),
        (b"x" * 2001, "the exec server gave an answer that is too long"),
        (b"", "no answer in 0.05 s"),
        (None, "the connection to the exec server was lost"),
    ],
)
async def test_a_plan_that_does_not_come_says_why(answer: bytes | None, reason: str) -> None:
    start = replace(PATCH, read_limit_bytes=2000)
    plan_s = 0.05 if answer == b"" else WAIT_S
    async with playing(answering(answer)) as url, connected(url) as connection:
        connection.end_s = 0
        with pytest.raises(ConnectionError) as caught:
            async with planned_elsewhere(connection.start(start), "a patch", plan_s=plan_s):
                raise AssertionError("there is no plan")
        assert str(caught.value) == reason


@claim("environment:files")
@pytest.mark.parametrize(
    ("answer", "text", "changed"),
    [
        (line({"failure": "disk full", "changed": [-1, 0, 1]}), "disk full", [0]),
        (line([]), "the exec server gave an answer that makes no sense", None),
        (b"", "no answer in 0.05 s", None),
        (None, "the connection to the exec server was lost", None),
    ],
)
async def test_what_became_of_a_patch_is_what_the_exec_server_says(
    answer: bytes | None, text: str, changed: list[int] | None
) -> None:
    async with playing(answering(line(PLAN), answer)) as url, connected(url) as connection:
        connection.end_s = 0
        async with planned_elsewhere(connection.start(PATCH), "a patch") as patch:
            assert [change.place for change in patch.plan.changes] == ["/a"]
            patch.write_s = 0.05 if answer == b"" else WAIT_S
            with pytest.raises(NotWritten) as caught:
                await patch.write()
        if changed is None:
            text = f"Failed to write files: {text}; it is not known which files were changed"
        assert (str(caught.value), caught.value.changed) == (
            text,
            None if changed is None else tuple(changed),
        )


async def test_a_patch_is_written_and_read_as_json_beside_the_event_loop(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    rendered_in: set[int] = set()

    def render(message: WireModel) -> bytes:
        rendered_in.add(threading.get_ident())
        return line_of(message)

    monkeypatch.setattr(remote_patch, "line_of", render)
    async with playing(answering(line(PLAN))) as url, connected(url) as connection:
        connection.end_s = 0
        async with planned_elsewhere(connection.start(PATCH), "a patch"):
            assert rendered_in.isdisjoint({threading.get_ident()})
