"""cli: the server that is meant where no address is given."""

import time
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path

import pytest

from app_server.cli.inspect import main
from app_server.clients import chosen_server
from app_server.clients.chosen_server import (
    MAX_SHOWN,
    NoOneServer,
    choose_server,
    server_address,
)
from app_server.peer.address import ServerAddress
from app_server.threads.files.servers import announced
from app_server.threads.servers import ServerEntry

STARTED_AT = 1_800_000_000
COMMAND = "app-server inspect"


@pytest.fixture(autouse=True)
def _no_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chosen_server, "START_S", 0.0)


def entry(pid: int, *addresses: str, token_file: str | None = None) -> ServerEntry:
    return ServerEntry(pid, "1.0", STARTED_AT, addresses, token_file)


def choose(home: Path, *entries: ServerEntry) -> ServerAddress:
    with ExitStack() as stack:
        for each in entries:
            stack.enter_context(announced(home, each))
        return choose_server(home, COMMAND)


def refusal(home: Path, *entries: ServerEntry) -> NoOneServer:
    with pytest.raises(NoOneServer) as caught:
        choose(home, *entries)
    return caught.value


@pytest.mark.parametrize(
    ("addresses", "url", "has_token"),
    [
        (["ws://127.0.0.1:1", "ws://127.0.0.1:2"], "ws://127.0.0.1:1", True),
        (["stdio://", "ws://[::1]:1"], "ws://[::1]:1", True),
        (["ws://127.0.0.1:1", "unix:///s"], "unix:///s", False),
        (["ws://0.0.0.0:80"], "ws://127.0.0.1:80", True),
        (["ws://[::]:80"], "ws://[::1]:80", True),
    ],
)
def test_the_one_that_runs_and_how_to_connect_to_it(
    tmp_path: Path, addresses: Sequence[str], url: str, has_token: bool
) -> None:
    stdio_only = entry(6, "stdio://")
    chosen = choose(tmp_path, stdio_only, entry(7, *addresses, token_file="/t"))
    assert (chosen.pid, chosen.url) == (7, url)
    assert chosen.token_file == (Path("/t") if has_token else None)


def test_a_server_that_starts_is_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(chosen_server, "START_S", 30.0)
    with ExitStack() as stack:
        starts = iter([lambda: stack.enter_context(announced(tmp_path, entry(7, "unix:///s")))])
        monkeypatch.setattr(time, "sleep", lambda _: next(starts)())
        assert choose_server(tmp_path, COMMAND).pid == 7


def test_of_several_the_calls_are_listed(tmp_path: Path) -> None:
    servers = [
        entry(7, "ws://127.0.0.1:1", token_file="/my token"),
        entry(8, "unix:///s"),
        entry(9, "ws://127.0.0.1:2"),
    ]
    several = refusal(tmp_path, *servers)
    assert several.exit_status == 2
    since = "since 2027-01-15T08:00:00Z"
    lines = [
        f"3 servers run with {tmp_path}. Choose one by its address:",
        f"  {COMMAND} ws://127.0.0.1:1 --token-file '/my token'   # process 7, {since}",
        f"  {COMMAND} unix:///s   # process 8, {since}",
        f"  {COMMAND} ws://127.0.0.1:2   # process 9, {since}",
    ]
    assert str(several).splitlines() == lines
    many = [entry(100 + number, "unix:///s") for number in range(MAX_SHOWN)]
    shown = str(refusal(tmp_path, *servers, *many)).splitlines()
    assert (len(shown), shown[1:4]) == (MAX_SHOWN + 2, lines[1:])
    assert shown[-1] == "  … and 3 more: app-server status"


def test_a_server_that_others_cannot_connect_to_is_named(tmp_path: Path) -> None:
    only_stdio = refusal(tmp_path, entry(7, "stdio://"), entry(8))
    assert only_stdio.exit_status == 1
    assert str(only_stdio).startswith(
        f"no server that runs with {tmp_path} has an address for other programs (processes 7, 8). "
        f"Start one:\n  app-server --home {tmp_path} --listen ws://127.0.0.1:4500 &\n"
    )


def test_with_the_usual_home_no_option_is_needed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("APP_SERVER_HOME", str(tmp_path))
    assert str(refusal(tmp_path)).splitlines()[1:3] == [
        "  app-server --listen ws://127.0.0.1:4500 &",
        f"  {COMMAND}",
    ]


def test_where_the_address_is_an_option_the_calls_have_it(tmp_path: Path) -> None:
    with (
        announced(tmp_path, entry(7, "ws://127.0.0.1:1")),
        announced(tmp_path, entry(8, "unix:///s")),
        pytest.raises(NoOneServer) as caught,
    ):
        choose_server(tmp_path, "app-server signal list", "--url")
    assert [line.partition("   #")[0] for line in str(caught.value).splitlines()[1:]] == [
        "  app-server signal list --url ws://127.0.0.1:1",
        "  app-server signal list --url unix:///s",
    ]


@pytest.mark.parametrize(
    ("url", "home", "variable", "expected"),
    [
        ("ws://a:1", "there", "ws://v:1", "ws://a:1"),
        (None, "there", "ws://v:1", "ws://127.0.0.1:1"),
        (None, None, "ws://v:1", "ws://v:1"),
        (None, None, "", "ws://127.0.0.1:1"),
    ],
)
def test_what_names_the_server(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    url: str | None,
    home: str | None,
    variable: str,
    expected: str,
) -> None:
    there = tmp_path / "there"
    there.mkdir()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("APP_SERVER_HOME", str(there))
    monkeypatch.setenv("APP_SERVER_URL", variable)
    monkeypatch.setenv("APP_SERVER_TOKEN_FILE", "/variable")
    with announced(there, entry(7, "ws://127.0.0.1:1", token_file="/t")):
        found = server_address(url, home, None, COMMAND)
        with_option = server_address(url, home, Path("/option"), COMMAND)
    is_found = expected == "ws://127.0.0.1:1"
    pid, token_file = (7, "/t") if is_found else (None, "/variable")
    assert found == ServerAddress(expected, Path(token_file), pid)
    assert with_option == ServerAddress(expected, Path("/option"), pid)


def test_several_are_a_wrong_call_and_none_is_a_failure(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("APP_SERVER_URL", raising=False)
    words = ["--home", str(tmp_path)]
    assert main(words) == 1
    assert capsys.readouterr().err == (
        f"app-server inspect: no server runs with {tmp_path}. Start one:\n"
        f"  app-server --home {tmp_path} --listen ws://127.0.0.1:4500 &\n"
        f"  app-server inspect --home {tmp_path}\n"
        "To wait for a server that does not run yet, name its address: app-server inspect URL\n"
    )
    with announced(tmp_path, entry(7, "unix:///a")), announced(tmp_path, entry(8, "unix:///b")):
        assert main(words) == 2
    (tmp_path / "servers").rmdir()
    (tmp_path / "servers").write_text("no folder")
    assert main(words) == 1
    errors = capsys.readouterr().err
    assert f"2 servers run with {tmp_path}" in errors
    assert f"app-server inspect: {tmp_path / 'servers'}: Not a directory" in errors
