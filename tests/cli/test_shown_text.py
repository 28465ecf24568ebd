"""What users and files say of themselves controls no terminal, and makes no lines, when printed."""

import json
import re
from pathlib import Path

import anyio
import pytest

from tests.support.forks import fork_program
from tests.support.harness import environment_without
from tests.support.processes import START_S

pytestmark = pytest.mark.process

HOSTILE = "x\x1b[2J\x1b]0;title\x07\x9b31m\x7f\r\nenabled: forged"
CONTROLS = re.compile(r"[^\n\t\x20-\x7e\xa0-\U0010ffff]")

COMMANDS = (
    ("mcp", "list"),
    ("mcp", "get", "shown"),
    ("mcp", "get", HOSTILE),
    ("mcp", "add", HOSTILE, "--", "x"),
    ("mcp", "remove", HOSTILE),
    ("doctor", "--only", "config", "--only", "model", "--only", "mcp"),
    ("doctor", "--only", HOSTILE),
    ("doctor", "--only", "ports", "--listen", f"unix://{HOSTILE}"),
    ("status", "--home", f"/nowhere/{HOSTILE}"),
    ("signal", "--url", f"unix:///nowhere/{HOSTILE}", "list"),
    ("signal", "send", "--thread", HOSTILE, HOSTILE),
    ("inspect", HOSTILE),
    ("-c", HOSTILE),
    ("--listen", HOSTILE),
    ("--listen", f"unix:///nowhere/{HOSTILE}/{'x' * 200}"),
    ("--model", HOSTILE, "--nonsense"),
    ("receiver", "--session", HOSTILE, "--router-url", "ws://127.0.0.1:1"),
    ("exec-server", "--listen", HOSTILE),
    (HOSTILE,),
)


async def shown(home: Path, *words: str) -> str:
    """Return all that a command prints, byte for byte."""
    process = await fork_program(
        "app_server.cli.entry",
        *words,
        environment=environment_without("OPENAI_API_KEY", "APP_SERVER_URL")
        | {"APP_SERVER_HOME": str(home)},
        folder=home,
    )
    try:
        with anyio.fail_after(START_S):
            out, err = await process.communicate()
    finally:
        await process.aclose()
    return (out + err).decode()


@pytest.mark.parametrize("words", COMMANDS, ids=lambda words: " ".join(map(ascii, words[:3])))
async def test_no_command_prints_what_terminals_obey(
    tmp_path: Path, words: tuple[str, ...]
) -> None:
    quoted = json.dumps(HOSTILE).replace("\x7f", "\\u007f")
    (tmp_path / "config.toml").write_text(
        f"model_provider = {quoted}\n"
        f"[model_providers.{quoted}]\nname = {quoted}\nbase_url = {quoted}\n"
        f"[mcp_servers.shown]\ncommand = {quoted}\nargs = [{quoted}]\ncwd = {quoted}\n"
        f"[mcp_servers.{quoted}]\ncommand = {quoted}\n"
        f"[unknown.{quoted}]\nx = 1\n"
    )
    assert CONTROLS.findall(await shown(tmp_path, *words)) == []


@pytest.mark.parametrize("words", [("mcp", "list"), ("mcp", "get", "shown"), ("doctor",)])
async def test_a_configured_text_makes_no_line_of_its_own(
    tmp_path: Path, words: tuple[str, ...]
) -> None:
    quoted = json.dumps(HOSTILE).replace("\x7f", "\\u007f")
    (tmp_path / "config.toml").write_text(
        f"[mcp_servers.shown]\ncommand = {quoted}\nargs = [{quoted}]\n"
    )
    skipped = [word for name in ("sandbox", "model", "threads") for word in ("--skip", name)]
    found = await shown(tmp_path, *words, *(skipped if words == ("doctor",) else ()))
    assert [line for line in found.splitlines() if line.startswith("enabled: forged")] == []
    assert "x\\x1b[2J" in found
