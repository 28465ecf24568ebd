"""The launcher: plans, ports and options."""

import asyncio
import re
from pathlib import Path

import pytest

from app_server.clients.coder.plan import Plan
from app_server.peer.connection import NoAppServer, identify, open_client
from tests.support.clients.coder import CODER, environment, read_given, run_coder
from tests.support.harness import WAIT_S, serve

pytestmark = pytest.mark.process


# Plans.


def test_off_shows_an_agent_without_a_server(tmp_path: Path) -> None:
    variables = environment(tmp_path, PRISM_CODEX_APP_SERVER_URL="ws://127.0.0.1:1")

    result = run_coder(
        variables, "-agent", "codex", "-codex-app-server", "off", "-dry-run", cwd=tmp_path
    )

    assert (result.returncode, result.stderr) == (0, "")
    assert result.stdout == (
        f"mode: off\nserver: none\nagent:\n  codex --cd {tmp_path}\nexported:\n"
        "  PRISM_AGENT_SURFACE=codex\n  PRISM_CODEX_APP_SERVER_MODE=off\n"
    )
    assert not (tmp_path / "home").exists()
    assert not (tmp_path / "given.json").exists()


@pytest.mark.parametrize(
    ("mode", "otherwise"),
    [
        (
            "auto",
            "without a server: the agent is started without --remote, and signals wait for tool "
            "results (piggyback)",
        ),
        ("local", "without a server: exit status 2"),
    ],
)
def test_a_dry_run_shows_the_search_the_fallback_and_every_command_line(
    tmp_path: Path, mode: str, otherwise: str
) -> None:
    home = tmp_path / "home"

    result = run_coder(
        environment(tmp_path),
        *("-codex-app-server", mode, "-dry-run", "-cd", "/work"),
        *("-codex-app-server-port", "47150"),
    )

    assert (result.returncode, result.stderr) == (0, "")
    shown = re.sub(r"python[0-9.]* -m", "python -m", result.stdout)
    assert shown.splitlines() == [
        f"mode: {mode}",
        f"server: ports 47150 to 47199 in order; one that answers as an app-server of {home} is "
        "reused,",
        "  on the first free one is started:",
        f"  {CODER.parent}/python -m app_server.cli.serve"
        f" --listen ws://127.0.0.1:47150 --home {home}",
        otherwise,
        "agent:",
        "  codex --remote ws://127.0.0.1:47150 --cd /work",
        "exported:",
        "  PRISM_AGENT_SURFACE=codex",
        f"  PRISM_CODEX_APP_SERVER_MODE={mode}",
        "  PRISM_CODEX_APP_SERVER_URL=ws://127.0.0.1:47150",
    ]
    assert not home.exists()


FULL_AUTO = ("--sandbox", "workspace-write", "--ask-for-approval", "on-request")


@pytest.mark.parametrize(
    ("given", "passed_on"),
    [
        (("-sandbox", "read-only", "-ask-for-approval", "never"), None),
        (("--sandbox", "read-only", "--ask-for-approval", "never"), None),
        (("-full-auto",), FULL_AUTO),
        (("--full-auto",), FULL_AUTO),
        (
            ("-full-auto", "-sandbox", "read-only"),
            ("--sandbox", "read-only", "--ask-for-approval", "on-request"),
        ),
        (
            ("-ask-for-approval", "never", "-full-auto"),
            ("--sandbox", "workspace-write", "--ask-for-approval", "never"),
        ),
    ],
)
def test_options_become_those_of_the_agent(
    tmp_path: Path, given: tuple[str, ...], passed_on: tuple[str, ...] | None
) -> None:
    passed_on = passed_on or ("--sandbox", "read-only", "--ask-for-approval", "never")
    variables = environment(tmp_path, "exit 7")

    result = run_coder(
        variables,
        *("-codex-app-server", "off", "-cd", "/work", *given),
        *("--", "--model", "a b", "--"),
    )

    assert (result.returncode, result.stderr) == (7, "")
    assert read_given(tmp_path)["words"] == ["--cd", "/work", *passed_on, "--model", "a b", "--"]


def test_the_ports_are_the_range_or_a_hundred(tmp_path: Path) -> None:
    def ports(first: int) -> tuple[int, int]:
        tried = Plan("codex", "auto", tmp_path, tmp_path, [], first_port=first).ports
        return tried[0], tried[-1]

    assert [ports(first) for first in (47100, 47199, 47200, 5000, 65500)] == [
        (47100, 47199),
        (47199, 47199),
        (47200, 47299),
        (5000, 5099),
        (65500, 65535),
    ]


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (("-codex-app-server", "maybe"), "invalid choice: 'maybe'"),
        (("-codex-app-server-url", "ws://10.0.0.5:1"), "ws://127.0.0.1:PORT"),
        (("-codex-app-server-url", "unix:///x"), "ws://127.0.0.1:PORT"),
        (("-codex-app-server-url", "ws://127.0.0.1:65536"), "ws://127.0.0.1:PORT"),
        (("-codex-app-server-url", "ws://[::1:1"), "ws://127.0.0.1:PORT"),
        (("-codex-app-server-port", "0"), "must be a whole number from 1 to 65535"),
        (("-codex-app-server-port", "x"), "must be a whole number from 1 to 65535"),
        (("-x",), "unrecognized arguments: -x; what is for the agent follows --"),
        (("fix", "it"), "unrecognized arguments: fix it; what is for the agent follows --"),
        (("install", "-x"), "unrecognized arguments: -x"),
        (("install", "-router-url", "ws://10.0.0.5"), "ws:// would send the key in the clear"),
        (("install", "-session", ""), "-session must be a name"),
    ],
)
def test_a_wrong_call_ends_with_2(tmp_path: Path, words: tuple[str, ...], why: str) -> None:
    result = run_coder(environment(tmp_path), *words)

    assert result.returncode == 2
    assert why in result.stderr
    assert not (tmp_path / "given.json").exists()


async def test_who_hangs_up_or_speaks_otherwise_is_no_app_server(tmp_path: Path) -> None:
    async def hang_up(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.close()

    server = await asyncio.start_server(hang_up, "127.0.0.1", 0)
    url = f"ws://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    with pytest.raises(NoAppServer):
        await identify(url, "test", timeout_s=WAIT_S)
    server.close()
    await server.wait_closed()
    with pytest.raises(ConnectionRefusedError):
        await identify(url, "test", timeout_s=WAIT_S)
    async with serve(tmp_path / "home") as served, open_client(served.urls[0], "test") as client:
        assert client.server == await identify(served.urls[0], "test", timeout_s=WAIT_S)
