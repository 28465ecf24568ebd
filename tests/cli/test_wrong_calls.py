"""cli: numbers and addresses that cannot be meant are refused, with the rule."""

import os
import sys
from pathlib import Path

import pytest

from app_server.cli import serve, signal
from app_server.clients.coder import cli as coder
from app_server.clients.receiver import cli as receiver

HUGE = "9" * 30


def refusal(error: pytest.ExceptionInfo[SystemExit], out: pytest.CaptureFixture[str]) -> str:
    assert error.value.code == 2
    return out.readouterr().err.splitlines()[-1]


@pytest.mark.parametrize("port", ["-1", "65536", HUGE, "x", ""])
def test_a_port_of_the_demo_router(port: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        receiver.main(["--demo-router", f"--port={port}"])
    assert refusal(caught, capsys) == (
        "app-server receiver: error: argument --port: must be a whole number from 0 to 65535"
    )


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        ("list --limit=0", "argument --limit: must be a whole number of at least 1"),
        ("list --limit=x", "argument --limit: must be a whole number of at least 1"),
        ("wake set --thread t", "give one of --at, --in, --every, --process and --file"),
        (
            "wake set --thread t --in 5 --every 60",
            "give one of --at, --in, --every, --process and --file",
        ),
        ("wake set --thread t --in 5 --until 2100-01-01", "--until is for --every"),
        (
            "wake set --thread t --at soon",
            "argument --at: must be a time such as 2026-12-01T08:00:00Z",
        ),
        (
            "wake set --thread t --every 59",
            "argument --every: must be a whole number from 60 to 31622400",
        ),
        (
            "send --cwd . --from a --type T --ttl=4294967296 hi",
            "argument --ttl: must be a whole number from 0 to 4294967295",
        ),
    ],
)
def test_a_number_of_a_signal(
    words: str, complaint: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as caught:
        signal.main(words.split())
    assert refusal(caught, capsys).endswith(complaint)


@pytest.mark.parametrize("url", ["ws://127.0.0.1:65536", "ws://127.0.0.1:0", "ws://[::1", "a b"])
@pytest.mark.parametrize("is_option", [True, False])
def test_an_address_of_a_server_for_signals(
    url: str, is_option: bool, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("APP_SERVER_URL", raising=False)
    if not is_option:
        monkeypatch.setitem(os.environ, "APP_SERVER_URL", url)
    with pytest.raises(SystemExit) as caught:
        signal.main([*(["--url", url] if is_option else []), "list"])
    assert refusal(caught, capsys) == (
        f"app-server signal: error: {url!r} is no address of a server: "
        "use ws://127.0.0.1:PORT or unix://PATH"
    )


@pytest.mark.parametrize(
    ("words", "rule"),
    [
        ("--ws-max-clock-skew-seconds=x", "must be 0 to 86400 seconds"),
        ("--ws-max-clock-skew-seconds=-1", "must be 0 to 86400 seconds"),
        ("--drain-seconds=x", "must be a number of seconds of at least 0"),
        ("--drain-seconds=nan", "must be a number of seconds of at least 0"),
        ("--drain-seconds=-1", "must be a number of seconds of at least 0"),
    ],
)
def test_seconds_of_a_server(words: str, rule: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        serve.main([words])
    assert refusal(caught, capsys).endswith(f"argument {words.partition('=')[0]}: {rule}")


@pytest.mark.parametrize(
    ("name", "complaint"),
    [
        ("", "must name a folder"),
        ("gone", "there is no folder {}"),
        ("file", "{} is no folder"),
        ("file/inside", "{}: Not a directory"),
        ("loop", "{}: Too many levels of symbolic links"),
        ("a" * 256, "{}: File name too long"),
    ],
)
@pytest.mark.parametrize("program", ["app-server receiver", "coder"])
def test_a_folder_that_an_agent_cannot_work_in(
    program: str,
    name: str,
    complaint: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    (tmp_path / "file").touch()
    (tmp_path / "loop").symlink_to("loop")
    monkeypatch.chdir(tmp_path)
    is_coder = program == "coder"
    with pytest.raises(SystemExit) as caught:
        if is_coder:
            monkeypatch.setattr(sys, "argv", ["coder", "-dry-run", "-cd", name])
            coder.main()
        else:
            receiver.main(["--cd", name])
    option = "-cd/--cd" if is_coder else "--cd"
    assert refusal(caught, capsys) == (
        f"{program}: error: argument {option}: " + complaint.format(tmp_path / name)
    )
