"""cli: `app-server completion`, in the shells that it is for, and `app-server help`."""

import os
import pty
import select
import subprocess
import time
from pathlib import Path

import pytest

from app_server.cli import schema, serve
from app_server.cli.help.command_help import PARSERS
from app_server.cli.help.completion import MODULES, SHELLS, main
from tests.support.processes import EXECUTABLE

PATIENCE_S = 60.0


@pytest.fixture
def scripts(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Path:
    """Return a folder with the script of each shell, by its name."""
    for shell in SHELLS:
        assert main([shell]) == 0
        (tmp_path / shell).write_text(capsys.readouterr().out)
    return tmp_path


def lines(command: list[str], folder: Path) -> list[str]:
    environment = {**os.environ, "HOME": str(folder)}
    ran = subprocess.run(
        command, capture_output=True, text=True, check=True, cwd=folder, env=environment, timeout=60
    )
    assert ran.stderr == ""
    return ran.stdout.splitlines()


BASH = """\
source ./bash
complete -p app-server
typed() { COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); _shtab_app_server; echo "${COMPREPLY[*]}"; }
typed app-server mc
typed app-server mcp lo
typed app-server signal send --t
typed app-server usage --by d
typed app-server config check ./fi
typed app-server --ws-to
typed app-server help stat
"""


@pytest.mark.slow
def test_bash_completes_commands_options_and_values(scripts: Path) -> None:
    assert lines(["bash", "--norc", "-c", BASH], scripts) == [
        "complete -o bashdefault -F _shtab_app_server app-server",
        "mcp mcp-server",
        "logs login logout",
        "--token-file --thread --type --ttl",
        "day",
        "./fish",
        "--ws-token-file --ws-token-sha256",
        "status",
    ]


FISH = """\
source ./fish
for typed in 'mc' 'mcp lo' 'usage --by d' 'config check ./zs' '--ws-to' 'help stat'
    complete -C "app-server $typed" | string split -f 1 \\t | sort | string join ' '
end
# `string split` fails where there is nothing to split.
true
"""


@pytest.mark.slow
def test_fish_completes_commands_options_and_values(scripts: Path) -> None:
    assert lines(["fish", "--no-config", "-c", FISH], scripts) == [
        "mcp mcp-server",
        "login logout logs",
        "day",
        "./zsh",
        "--ws-token-file --ws-token-sha256",
        "status",
    ]


@pytest.mark.slow
def test_zsh_completes_commands_options_and_values(scripts: Path) -> None:
    functions = scripts / "functions"
    functions.mkdir()
    (scripts / "zsh").rename(functions / "_app-server")
    environment = {"HOME": str(scripts), "PATH": os.environ["PATH"], "TERM": "dumb"}
    child, terminal = pty.fork()
    if child == 0:
        os.chdir(scripts)
        os.execvpe("zsh", ["zsh", "-f", "-i"], environment)  # noqa: S606
    try:
        setting_up = "fpath=(./functions $fpath); autoload -Uz compinit; compinit -u -D"
        type_line(terminal, f"{setting_up}; PS1='rea''dy '\n", "ready ")
        type_line(terminal, "app-server usag\t", "app-server usage ")
        type_line(terminal, "\x15app-server mcp logi\t", "app-server mcp login ")
        type_line(terminal, "\x15app-server usage --by da\t", "app-server usage --by day ")
    finally:
        os.close(terminal)
        os.waitpid(child, 0)


def type_line(terminal: int, line: str, shown: str) -> None:
    """Type into a terminal, and read it until it shows a text."""
    os.write(terminal, line.encode())
    read, give_up_s = "", time.monotonic() + PATIENCE_S
    while shown not in read.replace("\b", ""):
        assert select.select([terminal], [], [], give_up_s - time.monotonic())[0], read
        read += os.read(terminal, 4096).decode()


def test_every_command_is_completed() -> None:
    commands = {*serve.LAZY_COMMANDS, *schema.COMMANDS, *PARSERS, "serve", "receiver"}
    assert commands == {*MODULES, *schema.COMMANDS, *PARSERS, "serve"}


@pytest.mark.process
@pytest.mark.parametrize(
    ("words", "first"),
    [
        ([], "usage: app-server [options]"),
        (["help"], "usage: app-server [options]"),
        (["status"], "usage: app-server status [-h]"),
        (["mcp", "remove"], "usage: app-server mcp remove [-h]"),
        (["receiver"], "usage: app-server receiver [-h]"),
        (["demo"], "usage: app-server demo"),
        (["generate-ts"], "usage: app-server generate-ts [-h]"),
    ],
)
def test_the_help_of_a_command_is_printed(words: list[str], first: str) -> None:
    ran = subprocess.run(
        [str(EXECUTABLE), "help", *words], capture_output=True, text=True, check=True, timeout=60
    )
    assert ran.stdout.startswith(first)
