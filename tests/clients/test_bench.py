"""`app-server bench`: few calls against real servers, and every figure that it writes."""

import asyncio
import json
import os
import socket
import sys
from pathlib import Path

import pytest

from app_server.cli.bench import as_json, main, table
from app_server.clients import chosen_server
from app_server.clients.bench.model import asked_for
from app_server.clients.bench.rows import ROWS
from app_server.clients.bench.run import (
    Figures,
    Measured,
    Samples,
    bench,
    processor_seconds,
)
from app_server.host.listening import listener_of
from app_server.peer.address import ServerAddress
from app_server.transport.address import Address, TcpAddress, UnixAddress
from tests.support.harness import serve

NAMES = [row.name for row in ROWS]
ON_LINUX = pytest.mark.skipif(sys.platform != "linux", reason="processor time needs /proc")


async def run_command(*words: str) -> tuple[int | None, str, str]:
    """Run the command as users do; returns its exit status, stdout and stderr."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "app_server.cli.serve", "bench", *words),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    out, err = await process.communicate()
    return process.returncode, out.decode(), err.decode()


@pytest.mark.parametrize(
    "names", [NAMES[:2], pytest.param(NAMES, marks=pytest.mark.slow, id="every row")]
)
async def test_rows_are_measured_on_every_server_and_threads_are_deleted(
    tmp_path: Path, names: list[str]
) -> None:
    told: list[str] = []
    async with serve(tmp_path / "a") as first, serve(tmp_path / "b") as second:
        targets = [ServerAddress(first.urls[0], pid=os.getpid()), ServerAddress(second.urls[0])]
        rows = [row for row in ROWS if row.name in names]
        measured = await bench(targets, rows, 1, told.append)
        assert [row.name for row in measured] == names
        for row in measured:
            ours, theirs = row.figures
            assert 0 < ours.p50_ms <= ours.p99_ms
            assert 0 < theirs.p50_ms <= theirs.p99_ms
            assert theirs.processor_ms is None
        assert told == [
            *(f"preparing {target.url}" for target in targets),
            *(f"measuring {name}" for name in names),
        ]
        for served in (first, second):
            async with served.client() as client:
                assert (await client.call("thread/list", {}))["data"] == []


@ON_LINUX
async def test_the_command_finds_the_process_and_writes_json(tmp_path: Path) -> None:
    async with serve(tmp_path) as served:
        (url,) = served.urls
        status, out, err = await run_command(url, "--steps", "2", "--row", "thread/list", "--json")
    assert (status, err) == (0, f"preparing {url}\nmeasuring thread/list of 10\n")
    report = json.loads(out)
    assert report["targets"] == [{"url": url, "pid": os.getpid()}]
    (row,) = report["rows"]
    assert row["name"] == "thread/list of 10"
    (figures,) = row["figures"]
    assert list(figures) == ["p50Ms", "p99Ms", "processorMs"]
    assert all(value > 0 for value in figures.values())


@pytest.mark.parametrize(
    "address", [TcpAddress("127.0.0.1", 0), UnixAddress(Path("s"))], ids=["tcp", "unix"]
)
async def test_without_an_address_the_server_of_the_home_is_measured(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, address: Address
) -> None:
    monkeypatch.setenv("APP_SERVER_URL", "ws://127.0.0.1:1")
    if isinstance(address, UnixAddress):
        address = UnixAddress(tmp_path / address.path)
    async with serve(tmp_path, listen=[address]) as served:
        row = ("--row", "thread/loaded/list", "--steps", "2", "--json")
        status, out, err = await run_command("--home", str(tmp_path), *row)
    (url,) = served.urls
    assert (status, err) == (0, f"preparing {url}\nmeasuring thread/loaded/list\n")
    assert json.loads(out)["targets"] == [{"url": url, "pid": os.getpid()}]


async def test_a_server_that_is_not_there_is_named() -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        url = f"ws://127.0.0.1:{probe.getsockname()[1]}"
        status, out, err = await run_command(url, "--steps", "1")
    assert (status, out) == (1, "")
    assert "app-server bench: " in err
    assert url.removeprefix("ws://127.0.0.1:") in err


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        (["--pid", "1", "--pid", "2"], "--pid must be given once for every URL"),
        (["--token-file", "a", "--token-file", "b"], "--token-file must be given once, or once"),
        (["ws://a", "--row", "nothing"], f"--row 'nothing' is part of no row: {NAMES[0]}"),
        (["ws://a", "ws://b", "--pid", "1"], "--pid must be given once for every URL"),
        (["ws://a", "--steps", "0"], "argument --steps: must be a whole number of at least 1"),
        (["ws://a", "--pid", "x"], "argument --pid: must be a whole number of at least 1"),
        (["ws://a", "ws://b:0"], "'ws://b:0' is no address of a server: use ws://127.0.0.1:PORT"),
        (["ws://me:secret@a"], "bench: error: the address of a server has no user: a token is in"),
        (["ws://a:65536"], "'ws://a:65536' is no address of a server"),
        (["ws://[a"], "'ws://[a' is no address of a server"),
        (
            ["http://me:secret@a"],
            "bench: error: the address of a server has no user: a token is in",
        ),
        (["http://a?secret"], "'http://a' is no address of a server"),
        (["unix://"], "'unix://' is no address of a server"),
    ],
)
def test_a_wrong_call_gets_a_line_with_what_is_wrong(
    words: list[str], problem: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        main(words)
    assert ended.value.code == 2
    complaint = capsys.readouterr().err
    assert problem in complaint
    assert "secret" not in complaint


def test_without_an_address_and_a_server_the_error_says_how_to_start_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(chosen_server, "START_S", 0.0)
    assert main(["--home", str(tmp_path)]) == 1
    assert capsys.readouterr().err == (
        f"app-server bench: no server runs with {tmp_path}. Start one:\n"
        f"  app-server --home {tmp_path} --listen ws://127.0.0.1:4500 &\n"
        f"  app-server bench --home {tmp_path}\n"
    )


def test_help_explains_what_is_shown(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["--help"])
    assert ended.value.code == 0
    out = capsys.readouterr().out
    for part in ("p50 ", "p99 ", "cpu ", "examples:", "exit status"):
        assert part in out


def test_samples_are_broken_down_to_single_calls() -> None:
    samples = Samples([0.004, 0.002, 0.001], 0.003)
    assert samples.figures(2) == Figures(p50_ms=1.0, p99_ms=2.0, processor_ms=0.5)
    assert Samples([0.001], None).figures(1) == Figures(1.0, 1.0, None)


def test_servers_stand_side_by_side() -> None:
    targets = [ServerAddress("ws://a:1", pid=7), ServerAddress("ws://b:2")]
    measured = [Measured("row", [Figures(2.0, 4.0, 1.0), Figures(1.0, 2.0, None)])]
    assert table(targets, measured) == [
        "A  ws://a:1  pid 7",
        "B  ws://b:2  pid -",
        "",
        "       A p50    A p99    A cpu    B p50    B p99    B cpu  p50/  cpu/",
        "row    2.000    4.000    1.000    1.000    2.000        -  0.50     -",
    ]
    assert json.loads(as_json(targets, measured)) == {
        "targets": [{"url": "ws://a:1", "pid": 7}, {"url": "ws://b:2", "pid": None}],
        "rows": [
            {
                "name": "row",
                "figures": [
                    {"p50Ms": 2.0, "p99Ms": 4.0, "processorMs": 1.0},
                    {"p50Ms": 1.0, "p99Ms": 2.0, "processorMs": None},
                ],
            }
        ],
    }


@ON_LINUX
def test_a_listener_is_found_and_its_processor_time_grows() -> None:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port = listener.getsockname()[1]
        assert listener_of(port) is None
        listener.listen()
        assert listener_of(port) == os.getpid()
    before = processor_seconds(os.getpid())
    assert before is not None
    while processor_seconds(os.getpid()) == before:
        pass
    assert processor_seconds(2**22 + 1) is None


@pytest.mark.parametrize(
    ("texts", "tools", "asked"),
    [
        (["deltas 2000"], [], ("deltas", 2000, None)),
        # Tools stand behind the input in what servers send, and are long.
        (["deltas 2000"], ["x" * 10_000], ("deltas", 2000, None)),
        (["deltas 5", "events 7"], [], ("events", 7, None)),
        (["flood"], [], ("flood", 1, None)),
        (["hello"], [], ("deltas", 1, None)),
        (["deltas 5", "run true"], [], ("run", 1, "true")),
    ],
)
def test_the_model_answers_the_last_message_wherever_it_stands(
    texts: list[str], tools: list[str], asked: tuple[str, int, str | None]
) -> None:
    body = {"input": [{"type": "input_text", "text": text} for text in texts], "tools": tools}
    assert asked_for(json.dumps(body, separators=(",", ":")).encode()) == asked


def test_the_model_answers_once_its_command_was_run() -> None:
    said = {"type": "input_text", "text": "run true"}
    body = json.dumps({"input": [said, {"type": "function_call_output"}]}, separators=(",", ":"))
    assert asked_for(body.encode()) == ("deltas", 1, None)
