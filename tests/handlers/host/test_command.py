"""command/exec and what can be asked of what it runs: real programs, over real sockets."""

import json
import os
import re
from pathlib import Path
from typing import Any

import anyio
import pytest

from app_server.handlers.host.client_programs import DEFAULT_CAP
from app_server.host.commands import local_commands
from app_server.host.programs import MAX_PROGRAMS
from tests.support.event_loop.clock import LoopClock
from tests.support.harness import REQUIREMENTS, WAIT_S, WireClient, claim, serve
from tests.support.host.programs import (
    FULL_ACCESS,
    collect_output,
    encoded,
    output,
    read_pid,
    wait_until_gone,
)
from tests.support.host.quick_spawner import QUICK_SPAWNER
from tests.support.host.stopped import STOPPED

pytestmark = pytest.mark.process

METHOD = "command/exec"
DELTA = "command/exec/outputDelta"


async def run(client: WireClient, *command: str, **options: Any) -> tuple[int, str, str]:
    """Run a program without a sandbox, unless something else is said."""
    options = {"sandboxPolicy": FULL_ACCESS, **options}
    answer = await client.call(METHOD, {"command": list(command), **options})
    return tuple(answer.values())


async def refusal(client: WireClient, method: str, **params: Any) -> tuple[int, str]:
    error = await client.refusal(method, params)
    return error.code, error.message


@claim("command-exec:buffered")
async def test_a_program_is_run_to_its_end(tmp_path: Path) -> None:
    async with serve(tmp_path) as served, served.client() as client:
        assert await run(client, "true") == (0, "", "")
        script = "echo out; echo err >&2; exit 3"
        assert await run(client, "sh", "-c", script) == (3, "out\n", "err\n")
        assert await run(client, "sh", "-c", "kill -9 $$") == (137, "", "")
        assert await run(client, "printf", r"\377\303\244x") == (0, "\ufffdäx", "")
        assert await run(client, "cat") == (0, "", "")
        assert await run(client, "pwd", cwd="/usr") == (0, "/usr\n", "")
        assert await run(client, "pwd") == (0, f"{os.path.realpath(tmp_path)}\n", "")
        (tmp_path / "folder").mkdir()
        _, printed, _ = await run(client, "pwd", cwd="folder")
        assert printed == f"{os.path.realpath(tmp_path)}/folder\n"


@claim("command-exec:buffered")
async def test_variables_are_laid_over_those_of_the_server(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FROM_SERVER", "server")
    monkeypatch.setenv("OPENAI_API_KEY", "sk-secret")
    async with serve(tmp_path) as served, served.client() as client:
        script = "echo $FROM_SERVER-$A-${HOME-unset}-${OPENAI_API_KEY-unset}"
        changes = {"A": "a", "HOME": None}
        _, printed, _ = await run(client, "sh", "-c", script, env=changes)
        assert printed == "server-a-unset-unset\n"
        _, printed, _ = await run(client, "sh", "-c", script, env={"OPENAI_API_KEY": "mine"})
        assert printed.endswith("-mine\n")
        for wrong in ({"": "x"}, {"A=B": "x"}, {"A": "\0"}):
            error = await client.refusal(METHOD, {"command": ["true"], "env": wrong})
            assert (error.code, error.data["field"]) == (-32602, "env")


@claim("command-exec:bounds")
async def test_output_is_kept_up_to_its_bound(tmp_path: Path) -> None:
    async with serve(tmp_path) as served, served.client() as client:
        script = "echo 1234567890; echo abcdefgh >&2"
        assert await run(client, "sh", "-c", script, outputBytesCap=4) == (0, "1234", "abcd")
        assert await run(client, "echo", "x", outputBytesCap=0) == (0, "", "")
        lots = ("sh", "-c", "head -c 3000000 /dev/zero | tr '\\0' a")
        assert await run(client, *lots) == (0, "a" * DEFAULT_CAP, "")
        assert await run(client, *lots, disableOutputCap=True) == (0, "a" * 3_000_000, "")


@claim("command-exec:bounds")
async def test_time_is_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = LoopClock(monkeypatch)
    pids = tmp_path / "pid"
    async with serve(tmp_path) as served, served.client() as client:
        script = f"read _; echo begun; sleep 1000 & echo $! > {pids}; wait"
        command = {"command": ["sh", "-c", script], "sandboxPolicy": FULL_ACCESS}
        fed = {"processId": "p", "streamStdin": True}
        request = await client.request(METHOD, {**command, **fed, "timeoutMs": 600_000})
        # It gets its input when its time has begun to count: the start has a limit of its own.
        await client.call(f"{METHOD}/write", {"processId": "p", "deltaBase64": "Cg=="})
        pid = await read_pid(pids)
        clock.put_forward(600)
        answer = await client.answer(request)
        assert answer["result"] == {"exitCode": 124, "stdout": "begun\n", "stderr": ""}
        await wait_until_gone(pid)
        assert await run(client, "sleep", "1000", timeoutMs=0) == (124, "", "")
        assert await run(client, "true", disableTimeout=True) == (0, "", "")


NEEDS_ID = "command/exec tty or streaming requires a client-supplied processId"
GONE = "failed to spawn command: No such file or directory (os error 2)"
SIZE = {"rows": 1, "cols": 1}

REFUSED: list[tuple[str, int, dict[str, Any]]] = [
    ("command must not be empty", -32600, {"command": []}),
    # Of several wrong members the first one is named, the time limit last.
    ("command must not be empty", -32600, {"command": [], "timeoutMs": -1}),
    ("command/exec size requires tty: true", -32602, {"size": SIZE, "timeoutMs": -1}),
    (
        "Invalid params: `command`: the program is not empty, and no argument has a NUL",
        -32602,
        {"command": [""]},
    ),
    (NEEDS_ID, -32600, {"streamStdin": True}),
    (NEEDS_ID, -32600, {"streamStdoutStderr": True}),
    (NEEDS_ID, -32600, {"tty": True}),
    ("command/exec size requires tty: true", -32602, {"size": SIZE}),
    (
        "command/exec size rows and cols must be greater than 0",
        -32602,
        {"size": {"rows": 0, "cols": 1}, "tty": True, "processId": "p"},
    ),
    ("command/exec timeoutMs must be non-negative, got -1", -32602, {"timeoutMs": -1}),
    (
        "command/exec cannot set both timeoutMs and disableTimeout",
        -32602,
        {"timeoutMs": 1, "disableTimeout": True},
    ),
    (
        "command/exec cannot set both outputBytesCap and disableOutputCap",
        -32602,
        {"outputBytesCap": 1, "disableOutputCap": True},
    ),
    (
        "`permissionProfile` cannot be combined with `sandboxPolicy`",
        -32600,
        {"permissionProfile": ":workspace", "sandboxPolicy": FULL_ACCESS},
    ),
    (GONE, -32603, {"command": ["nothing-of-this-name"], "sandboxPolicy": FULL_ACCESS}),
    (GONE, -32603, {"cwd": "/nothing", "sandboxPolicy": FULL_ACCESS}),
    (
        "failed to spawn command: Permission denied (os error 13)",
        -32603,
        {"command": ["/etc/passwd"], "sandboxPolicy": FULL_ACCESS},
    ),
]


@claim("command-exec:refused")
async def test_what_makes_no_sense_is_refused(tmp_path: Path) -> None:
    async with serve(tmp_path) as served, served.client() as client:
        for message, code, params in REFUSED:
            asked = {"command": ["true"], **params}
            assert await refusal(client, METHOD, **asked) == (code, message)
        none = 'no active command/exec for process id "p"'
        for method, more in (
            ("write", {"deltaBase64": ""}),
            ("terminate", {}),
            ("resize", {"size": SIZE}),
        ):
            assert await refusal(client, f"{METHOD}/{method}", processId="p", **more) == (
                -32600,
                none,
            )
        assert await refusal(client, f"{METHOD}/write", processId="p") == (
            -32602,
            "command/exec/write requires deltaBase64 or closeStdin",
        )
        code, message = await refusal(client, f"{METHOD}/write", processId="p", deltaBase64="!")
        assert (code, message.partition(":")[0]) == (-32602, "invalid deltaBase64")


@claim("command-exec:stream")
async def test_output_is_sent_as_it_comes_and_before_the_response(tmp_path: Path) -> None:
    async with serve(tmp_path) as served, served.client() as client:
        streamed = {"processId": "p", "streamStdoutStderr": True}
        assert await run(client, "sh", "-c", "echo out; echo err >&2", **streamed) == (0, "", "")
        told = client.take_kept()
        assert [output(told, stream) for stream in ("stdout", "stderr")] == [b"out\n", b"err\n"]
        assert [message["params"]["capReached"] for message in told] == [False, False]
        await run(
            client, "sh", "-c", "echo 0123; sleep 0.1; echo 456", outputBytesCap=6, **streamed
        )
        told = client.take_kept()
        assert output(told) == b"0123\n4"
        assert [message["params"]["capReached"] for message in told][-1]
        assert sum(message["params"]["capReached"] for message in told) == 1


@claim("command-exec:stream")
async def test_input_is_written_and_closed(tmp_path: Path) -> None:
    async with serve(tmp_path) as served, served.client() as client:
        streams = {"streamStdin": True, "streamStdoutStderr": True, "sandboxPolicy": FULL_ACCESS}
        request = await client.request(METHOD, {"command": ["cat"], "processId": "p", **streams})
        write: dict[str, Any] = {"processId": "p"}
        for text in ("hello\n", "again\n"):
            assert (
                await client.call(f"{METHOD}/write", {**write, "deltaBase64": encoded(text)}) == {}
            )
            assert await collect_output(client, DELTA, text.encode()) == text.encode()
        duplicate = await refusal(client, METHOD, command=["cat"], processId="p")
        assert duplicate == (-32600, 'duplicate active command/exec process id: "p"')
        no_terminal = await refusal(
            client, f"{METHOD}/resize", processId="p", size={"rows": 1, "cols": 1}
        )
        assert no_terminal == (-32600, "failed to resize PTY: process is not attached to a PTY")
        last = {**write, "deltaBase64": encoded("bye"), "closeStdin": True}
        assert await client.call(f"{METHOD}/write", last) == {}
        answer = await client.answer(request)
        assert answer["result"] == {"exitCode": 0, "stdout": "", "stderr": ""}
        assert output(client.take_kept()) == b"bye"


@claim("command-exec:stream")
async def test_input_has_bounds_and_an_end(tmp_path: Path) -> None:
    async with serve(tmp_path) as served, served.client() as client:
        options = {"sandboxPolicy": FULL_ACCESS, "disableTimeout": True}
        closed = {"command": ["sleep", "1000"], "processId": "closed", **options}
        deaf = {"command": ["sleep", "1000"], "processId": "deaf", "streamStdin": True, **options}
        requests = [await client.request(METHOD, params) for params in (closed, deaf)]
        some = encoded("x" * 9_000_000)
        for _ in range(2):
            # The first one that is there is asked until it has been started.
            refused = await refusal(client, f"{METHOD}/write", processId="closed", deltaBase64="")
        assert refused == (-32600, "stdin streaming is not enabled for this command/exec")
        await client.call(f"{METHOD}/write", {"processId": "deaf", "deltaBase64": some})
        code, message = await refusal(client, f"{METHOD}/write", processId="deaf", deltaBase64=some)
        assert code == -32600
        assert re.fullmatch(
            r"this command/exec does not read its stdin: \d+ bytes wait, and the limit is 16777216",
            message,
        )
        for _ in range(2):
            end = {"processId": "deaf", "closeStdin": True}
            assert await client.call(f"{METHOD}/write", end) == {}
        late = await refusal(client, f"{METHOD}/write", processId="deaf", deltaBase64=encoded("x"))
        assert late == (-32600, "stdin is already closed")
        # It waits behind no write.
        for process_id, request in zip(("closed", "deaf"), requests, strict=True):
            assert await client.call(f"{METHOD}/terminate", {"processId": process_id}) == {}
            assert (await client.answer(request))["result"]["exitCode"] in STOPPED


@claim("command-exec:terminal")
async def test_a_program_can_have_a_terminal(tmp_path: Path) -> None:
    async with serve(tmp_path) as served, served.client() as client:
        tty = {"processId": "p", "tty": True}
        script = (
            "stty size; trap 'stty size; exit 5' WINCH; echo ready; while :; do sleep 0.01; done"
        )
        assert await run(client, "stty", "size", **tty) == (0, "", "")
        assert output(client.take_kept()) == b"24 80\r\n"
        request = await client.request(
            METHOD,
            {
                "command": ["sh", "-c", script],
                "size": {"rows": 10, "cols": 20},
                "sandboxPolicy": FULL_ACCESS,
                "disableTimeout": True,
                **tty,
            },
        )
        assert await collect_output(client, DELTA, b"ready\r\n") == b"10 20\r\nready\r\n"
        resize = {"processId": "p", "size": {"rows": 33, "cols": 44}}
        assert await client.call(f"{METHOD}/resize", resize) == {}
        assert (await client.answer(request))["result"]["exitCode"] == 5
        assert output(client.take_kept()) == b"33 44\r\n"


@claim("command-exec:sandbox")
async def test_a_program_is_confined_as_the_client_or_the_settings_say(tmp_path: Path) -> None:
    work = tmp_path / "work"
    work.mkdir()
    places = {"inside": work / "file", "outside": tmp_path / "file"}
    script = "; ".join(f"echo x > {place}" for place in places.values())

    async def reached(client: WireClient, **options: Any) -> list[str]:
        params = {"command": ["sh", "-c", script], "cwd": str(work), **options}
        await client.call(METHOD, params)
        found = [name for name, place in places.items() if place.exists()]
        for place in places.values():
            place.unlink(missing_ok=True)
        return found

    write = {"type": "workspaceWrite", "excludeSlashTmp": True, "excludeTmpdirEnvVar": True}
    async with serve(tmp_path / "home") as served, served.client() as client:
        assert await reached(client) == []
        assert await reached(client, sandboxPolicy={"type": "readOnly"}) == []
        assert await reached(client, sandboxPolicy=write) == ["inside"]
        assert await reached(client, sandboxPolicy=FULL_ACCESS) == ["inside", "outside"]
        assert await reached(client, permissionProfile=":read-only") == []
        assert await reached(client, permissionProfile=":danger-full-access") == [
            "inside",
            "outside",
        ]
        unknown = await client.refusal(METHOD, {"command": ["true"], "permissionProfile": "nope"})
        assert (unknown.code, "`nope`" in unknown.message) == (-32600, True)
    settings = (
        'sandbox_mode = "workspace-write"\n[sandbox_workspace_write]\nexclude_slash_tmp = true\n'
        "exclude_tmpdir_env_var = true\n"
    )
    async with serve(tmp_path / "home 2", config=settings) as served, served.client() as client:
        assert await reached(client) == ["inside"]
    home = tmp_path / "home 3"
    home.mkdir()
    (home / REQUIREMENTS).write_text('allowed_sandbox_modes = ["read-only"]\n')
    async with serve(home, config=settings) as served, served.client() as client:
        assert await reached(client) == []
        refused = await client.refusal(METHOD, {"command": ["true"], "sandboxPolicy": FULL_ACCESS})
        assert refused.data["code"] == "settingNotAllowed"


@claim("command-exec:ended")
async def test_programs_end_with_their_connection(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(local_commands, "SPAWNER", QUICK_SPAWNER)
    script = f"trap '' TERM; sleep 1000 & echo $! > {tmp_path}/pid; wait"
    async with serve(tmp_path) as served:
        async with served.client() as client:
            params = {"command": ["sh", "-c", script], "disableTimeout": True}
            await client.request(METHOD, {**params, "sandboxPolicy": FULL_ACCESS})
            pid = await read_pid(tmp_path / "pid")
            [load] = served.services.conversations.loads()
            assert load.in_flight == 1
        await wait_until_gone(pid)


@claim("command-exec:ended")
async def test_what_a_program_leaves_behind_ends_with_it(tmp_path: Path) -> None:
    async with serve(tmp_path) as served, served.client() as client:
        script = f"sleep 1000 & echo $! > {tmp_path}/pid; echo done"
        assert await run(client, "sh", "-c", script) == (0, "done\n", "")
        await wait_until_gone(await read_pid(tmp_path / "pid"))


@claim("command-exec:bounds")
async def test_programs_of_a_connection_are_counted(tmp_path: Path) -> None:
    async with serve(tmp_path) as served, served.client() as client:
        params = {
            "command": ["sleep", "1000"],
            "sandboxPolicy": FULL_ACCESS,
            "streamStdoutStderr": True,
            "disableTimeout": True,
        }
        for number in range(MAX_PROGRAMS):
            await client.request(METHOD, {**params, "processId": str(number)})
        assert await refusal(client, METHOD, **params, processId="more") == (
            -32600,
            f"a connection runs at most {MAX_PROGRAMS} command/exec at once",
        )


@claim("command-exec:slow-client")
async def test_a_program_waits_for_a_client_that_does_not_read(tmp_path: Path) -> None:
    size = 64 * 1024 * 1024
    async with serve(tmp_path) as served, served.client() as client:
        params = {
            "command": ["sh", "-c", f"head -c {size} /dev/zero; echo > {tmp_path}/done"],
            "processId": "p",
            "streamStdoutStderr": True,
            "disableOutputCap": True,
            "disableTimeout": True,
            "sandboxPolicy": FULL_ACCESS,
        }
        request = await client.request(METHOD, params)
        # The harness reads nothing yet: sockets take some of it, and the rest waits.
        with anyio.fail_after(WAIT_S):
            while not any(load.chars for load in served.services.conversations.loads()):
                await anyio.sleep(0.01)
        assert max(load.chars for load in served.services.conversations.loads()) < 8 * 1024 * 1024
        assert not (tmp_path / "done").exists()
        total = 0
        while True:
            message = json.loads(await client.pipe.receive())
            if "method" not in message:
                break
            total += len(output([message]))
        assert message == {"id": request, "result": {"exitCode": 0, "stdout": "", "stderr": ""}}
        assert total == size
