"""process/*: real programs of clients, over real sockets."""

from pathlib import Path
from typing import Any

import pytest

from app_server.handlers.host.processes import MAX_KEPT
from tests.support.harness import WireClient, claim, serve
from tests.support.host.programs import (
    collect_output,
    encoded,
    output,
    read_pid,
    wait_until_gone,
)
from tests.support.host.stopped import STOPPED

pytestmark = pytest.mark.process

DELTA = "process/outputDelta"


async def spawn(client: WireClient, handle: str, *command: str, **options: Any) -> None:
    params = {"processHandle": handle, "cwd": "/", "command": list(command), **options}
    assert await client.call("process/spawn", params) == {}


async def end_of(client: WireClient, handle: str) -> tuple[list[Any], dict[str, Any]]:
    """Return what came until a program's end, and what was told of that."""
    messages = await client.until("process/exited")
    params = messages.pop()["params"]
    assert params.pop("processHandle") == handle
    return messages, params


def ended(code: int, stdout: str = "", stderr: str = "", **more: Any) -> dict[str, Any]:
    return {
        "exitCode": code,
        "outputDrainTimedOut": False,
        "stdout": stdout,
        "stdoutCapReached": False,
        "stderr": stderr,
        "stderrCapReached": False,
        **more,
    }


@claim("process:spawn")
async def test_a_program_runs_and_its_exit_is_sent(tmp_path: Path) -> None:
    async with serve(tmp_path) as served, served.client() as client:
        await spawn(client, "p", "sh", "-c", "echo out; echo err >&2; exit 3")
        assert await end_of(client, "p") == ([], ended(3, "out\n", "err\n"))
        await spawn(client, "p", "sh", "-c", "kill -9 $$")
        assert (await end_of(client, "p"))[1] == ended(137)
        script = f"echo $A-${{HOME-unset}}; pwd; echo x > {tmp_path}/outside"
        await spawn(client, "p", "sh", "-c", script, env={"A": "a", "HOME": None}, cwd="/usr/..")
        assert (await end_of(client, "p"))[1] == ended(0, "a-unset\n/\n")
        assert (tmp_path / "outside").exists()


@claim("process:stream")
async def test_output_and_input_are_streamed_after_the_answer(tmp_path: Path) -> None:
    async with serve(tmp_path) as served, served.client() as client:
        await spawn(client, "p", "cat", streamStdin=True, streamStdoutStderr=True)
        assert client.take_kept() == []
        write: dict[str, Any] = {"processHandle": "p", "deltaBase64": encoded("hello\n")}
        assert await client.call("process/writeStdin", write) == {}
        assert await collect_output(client, DELTA, b"hello\n") == b"hello\n"
        write = {"processHandle": "p", "deltaBase64": encoded("bye"), "closeStdin": True}
        assert await client.call("process/writeStdin", write) == {}
        messages, end = await end_of(client, "p")
        assert (output(messages), end) == (b"bye", ended(0))
        await spawn(client, "p", "echo", "at once", streamStdoutStderr=True)
        messages, end = await end_of(client, "p")
        assert (output(messages), end) == (b"at once\n", ended(0))


@claim("process:stream")
async def test_a_terminal_is_resized(tmp_path: Path) -> None:
    async with serve(tmp_path) as served, served.client() as client:
        script = (
            "stty size; trap 'stty size; exit 5' WINCH; echo ready; while :; do sleep 0.01; done"
        )
        size = {"rows": 10, "cols": 20}
        await spawn(client, "p", "sh", "-c", script, tty=True, size=size, timeoutMs=None)
        assert await collect_output(client, DELTA, b"ready\r\n") == b"10 20\r\nready\r\n"
        resize = {"processHandle": "p", "size": {"rows": 33, "cols": 44}}
        assert await client.call("process/resizePty", resize) == {}
        messages, end = await end_of(client, "p")
        assert (output(messages), end) == (b"33 44\r\n", ended(5))


@claim("process:bounds")
async def test_output_and_time_are_bounded(tmp_path: Path) -> None:
    async with serve(tmp_path) as served, served.client() as client:
        both: dict[str, Any] = {"stdoutCapReached": True, "stderrCapReached": True}
        script = "echo 0123456789; echo abcdefgh >&2"
        await spawn(client, "p", "sh", "-c", script, outputBytesCap=4)
        assert await end_of(client, "p") == ([], ended(0, "0123", "abcd", **both))
        await spawn(client, "p", "sh", "-c", script, outputBytesCap=4, streamStdoutStderr=True)
        messages, end = await end_of(client, "p")
        assert (output(messages), output(messages, "stderr"), end) == (
            b"0123",
            b"abcd",
            ended(0, **both),
        )
        assert [message["params"]["capReached"] for message in messages] == [True, True]
        lots = ("sh", "-c", "head -c 3000000 /dev/zero | tr '\\0' a")
        for cap in ({}, {"outputBytesCap": None}):
            await spawn(client, "p", *lots, **cap)
            assert (await end_of(client, "p"))[1] == ended(0, "a" * MAX_KEPT, stdoutCapReached=True)
        await spawn(client, "p", *lots, outputBytesCap=None, streamStdoutStderr=True)
        messages, end = await end_of(client, "p")
        assert (output(messages), end) == (b"a" * 3_000_000, ended(0))
        await spawn(client, "p", "sleep", "1000", timeoutMs=100)
        assert (await end_of(client, "p"))[1] == ended(124)


@claim("process:refused")
async def test_what_makes_no_sense_is_refused(tmp_path: Path) -> None:
    size = {"rows": 1, "cols": 1}
    async with serve(tmp_path) as served, served.client() as client:

        async def refusal(method: str, **params: Any) -> tuple[int, str]:
            error = await client.refusal(f"process/{method}", params)
            return error.code, error.message

        base: dict[str, Any] = {"processHandle": "p", "cwd": "/", "command": ["sleep", "1000"]}
        gone = "failed to spawn process: No such file or directory (os error 2)"
        for code, message, changed in (
            (-32600, "command must not be empty", {"command": []}),
            # Of several wrong members the first one in this order is named.
            (-32600, "command must not be empty", {"command": [], "cwd": "/\0", "timeoutMs": -1}),
            (-32602, "process/spawn size requires tty: true", {"size": size, "timeoutMs": -1}),
            (-32600, "processHandle must not be empty", {"processHandle": ""}),
            (-32602, "Invalid params: `cwd`: must be an absolute path", {"cwd": "relative"}),
            (-32602, "process/spawn size requires tty: true", {"size": size}),
            (-32602, "process/spawn timeoutMs must be non-negative, got -1", {"timeoutMs": -1}),
            (-32603, gone, {"command": ["/nothing"]}),
            (-32603, gone, {"cwd": "/nothing"}),
        ):
            assert await refusal("spawn", **{**base, **changed}) == (code, message)
        none = 'no active process for process handle "p"'
        for method, more in (
            ("kill", {}),
            ("writeStdin", {"deltaBase64": ""}),
            ("resizePty", {"size": size}),
        ):
            assert await refusal(method, processHandle="p", **more) == (-32600, none)
        await client.call("process/spawn", base)
        assert await refusal("spawn", **base) == (-32600, 'duplicate active process handle: "p"')
        assert await refusal("resizePty", processHandle="p", size=size) == (
            -32600,
            "failed to resize PTY: process is not attached to a PTY",
        )
        assert await refusal("resizePty", processHandle="p", size={"rows": 0, "cols": 1}) == (
            -32602,
            "process size rows and cols must be greater than 0",
        )
        assert await refusal("writeStdin", processHandle="p", deltaBase64="") == (
            -32600,
            "stdin streaming is not enabled for this process",
        )
        assert await refusal("writeStdin", processHandle="p") == (
            -32602,
            "process/writeStdin requires deltaBase64 or closeStdin",
        )
        assert await client.call("process/kill", {"processHandle": "p"}) == {}
        _, end = await end_of(client, "p")
        assert end in [ended(code) for code in STOPPED]


@claim("process:ended")
@pytest.mark.parametrize(
    "first", ["", pytest.param("trap '' TERM; ", marks=pytest.mark.slow)], ids=["ends", "is killed"]
)
async def test_programs_end_with_their_connection_and_with_what_they_left(
    tmp_path: Path, first: str
) -> None:
    async with serve(tmp_path) as served:
        async with served.client() as client:
            script = f"{first}sleep 1000 & echo $! > {tmp_path}/pid; wait"
            await spawn(client, "p", "sh", "-c", script, timeoutMs=None)
            pid = await read_pid(tmp_path / "pid")
        await wait_until_gone(pid)
        (tmp_path / "pid").unlink()
        async with served.client() as client:
            script = f"sleep 1000 & echo $! > {tmp_path}/pid; echo done"
            await spawn(client, "p", "sh", "-c", script)
            _, end = await end_of(client, "p")
            assert (end["exitCode"], end["stdout"]) == (0, "done\n")
            await wait_until_gone(await read_pid(tmp_path / "pid"))
