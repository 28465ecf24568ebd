"""Signals and crashes, and the command line, with real processes."""

import asyncio
import json
import sys
from pathlib import Path

import pytest

from app_server.cli.signal import main
from app_server.clients import chosen_server
from app_server.transport.guards import ListenerGuards
from tests.long.crash_signals import POINTS, Point, survive
from tests.support.harness import claim, serve

pytestmark = pytest.mark.process

EXECUTABLE = Path(sys.executable).parent / "app-server"


@claim("signals:crash")
@pytest.mark.parametrize("point", POINTS, ids=lambda point: "-".join(point))
@pytest.mark.slow
async def test_a_crash_at_any_step_neither_loses_nor_doubles_a_signal(
    tmp_path: Path, point: Point
) -> None:
    await survive(tmp_path, [point])


@pytest.mark.slow
async def test_crashes_one_after_the_other_do_not_either(tmp_path: Path) -> None:
    await survive(tmp_path, [("ledger", "1", "after"), ("log", "1", "after")])


async def command(*words: str) -> tuple[int, list[str], str]:
    """Run `app-server signal` and return its status, its lines and what it complains of."""
    process = await asyncio.create_subprocess_exec(
        str(EXECUTABLE), "signal", *words, stdout=-1, stderr=-1
    )
    out, err = await process.communicate()
    assert process.returncode is not None
    return process.returncode, out.decode().splitlines(), err.decode()


@pytest.mark.slow
async def test_the_command_line_sends_follows_lists_and_recalls(tmp_path: Path) -> None:
    async with serve(tmp_path) as served, served.client() as client:
        url = ("--url", served.urls[0])
        here = tmp_path / "here"
        here.mkdir()
        thread_id = await client.start_thread(cwd=str(here))
        question = ("--from", "ann", "--type", "Question")
        status, lines, _ = await command(
            *url, "send", "--cwd", str(here), *question, "--wake", "--wait", "--id", "q1", "hello?"
        )
        stages = [line.split()[1] for line in lines]
        assert (status, stages) == (0, ["inHistory", "seen", "answered"])
        assert "> hello?" in served.model.inputs()[-1][1]
        status, again, _ = await command(
            *url, "send", "--cwd", str(here), *question, "--wake", "--id", "q1", "hello?"
        )
        assert (status, again) == (0, lines[-1:])
        assert len(served.model.requests) == 1
        assert (await command(*url, "send", "--thread", thread_id, *question, "--id", "q2", "x"))[
            0
        ] == 0
        status, lines, _ = await command("recall", "q2", *url)
        assert (status, lines[0].split()[1:3]) == (0, ["recalled", "q2"])
        status, lines, _ = await command("list", "--thread", thread_id, *url)
        assert [line.split()[1:3] for line in lines] == [["recalled", "q2"], ["answered", "q1"]]
        status, _, complaint = await command(*url, "send", "--name", "nobody", *question, "x")
        assert (status, complaint) == (
            1,
            "app-server signal: no thread has the name 'nobody'\n",
        )


async def test_without_an_address_the_server_of_the_home_is_asked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("APP_SERVER_URL", "ws://127.0.0.1:1")
    home, nowhere = tmp_path / "home", tmp_path / "nowhere"
    async with serve(home, guards=ListenerGuards(token_file=tmp_path / "token")):
        assert await command("--home", str(home), "list") == (0, [], "")
        message = ("--from", "ann", "--type", "Question", "x")
        assert await command("send", "--home", str(home), "--cwd", str(nowhere), *message) == (
            1,
            [],
            f"app-server signal: no thread works in {nowhere}: start one there, or choose another"
            " by its id or its name\n",
        )


def test_without_a_server_the_command_line_says_how_to_start_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(chosen_server, "START_S", 0.0)
    assert main(["list", "--home", str(tmp_path)]) == 1
    assert capsys.readouterr().err == (
        f"app-server signal: no server runs with {tmp_path}. Start one:\n"
        f"  app-server --home {tmp_path} --listen ws://127.0.0.1:4500 &\n"
        f"  app-server signal list --home {tmp_path}\n"
    )


async def test_a_command_without_a_server_says_how_to_start_one() -> None:
    status, _, complaint = await command("--url", "ws://127.0.0.1:1", "list")
    assert status == 1
    assert "Start one with `app-server --listen ws://127.0.0.1:4500`" in complaint
    assert (await command("--url", "nonsense", "list"))[0] == 2


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (
            ("send", "--thread", "t", "--from", "a", "--type", "q", "--steer", "x"),
            "--steer is for signals that wake: give --wake too",
        ),
        (("list", "--stage", "done"), "argument --stage: invalid choice: 'done'"),
    ],
)
async def test_a_wrong_call_is_refused_before_a_server_is_asked(
    words: tuple[str, ...], why: str
) -> None:
    status, _, complaint = await command("--url", "ws://127.0.0.1:1", *words)

    assert status == 2
    assert why in complaint


async def test_help_teaches() -> None:
    status, lines, _ = await command("--help")
    assert status == 0
    assert any("app-server signal send --cwd ." in line for line in lines)
    assert json.dumps(lines).count("--wake") >= 2
