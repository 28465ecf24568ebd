"""host: the shell of a command, and its profile."""

import shutil
from pathlib import Path

import pytest

from app_server.host.commands.local_commands import CommandLaunch, TerminalSize
from app_server.host.commands.shell import UnknownShell, find_shell, shell_command, shown_line
from app_server.permissions.sandbox.policy import UNRESTRICTED
from tests.support.host.commands import Printed, commands, finished

BASH = shutil.which("bash") or "bash"
SHELLS = [path for name in ("bash", "dash", "ksh", "zsh") if (path := shutil.which(name))]


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """Give a home whose profile talks, and sets something."""
    profile = "echo from the profile; echo and an error >&2; SET_BY_PROFILE=1; f() { echo f; }\n"
    for name in (".profile", ".bash_profile", ".zprofile"):
        (tmp_path / name).write_text(profile)
    return tmp_path


async def run(home: Path, argv: list[str], terminal: TerminalSize | None = None) -> tuple[int, str]:
    env = {"PATH": "/usr/bin:/bin", "HOME": str(home)}
    async with commands() as local:
        printed = Printed()
        launch = CommandLaunch(argv, env, str(home), terminal)
        status = await finished(await local.start(launch, UNRESTRICTED, printed.take))
    assert status is not None
    return status, printed.of("stdout").decode().replace("\r\n", "\n")


@pytest.mark.parametrize("shell", SHELLS)
@pytest.mark.parametrize("terminal", [None, TerminalSize()])
async def test_a_profile_is_read_and_what_it_prints_is_not_there(
    home: Path, shell: str, terminal: TerminalSize | None
) -> None:
    line = 'echo "$SET_BY_PROFILE $# $0"; f; echo error >&2; exit 3'
    argv = shell_command(shell, line, login=True)
    assert await run(home, argv, terminal) == (3, f"1 0 {shell}\nf\nerror\n")


async def test_a_command_has_no_descriptors_of_ours(home: Path) -> None:
    argv = shell_command(BASH, "ls /proc/self/fd", login=True)
    assert await run(home, argv) == (0, "0\n1\n2\n3\n")


async def test_lines_are_counted_as_they_were_written(home: Path) -> None:
    line = "echo one\nno-such-program\ncat <<END\ntext\nEND\nif"
    status, printed = await run(home, shell_command(BASH, line, login=True))
    assert status == 2
    assert "line 2: no-such-program: command not found" in printed
    assert "line 7: syntax error" in printed
    assert printed.startswith("one\n")


async def test_a_profile_that_ends_the_shell_ends_the_command(home: Path) -> None:
    (home / ".bash_profile").write_text("echo no; exit 7\n")
    assert await run(home, shell_command(BASH, "echo never", login=True)) == (7, "")


async def test_without_login_no_profile_is_read(home: Path) -> None:
    argv = shell_command(BASH, 'echo "[$SET_BY_PROFILE]"', login=False)
    assert argv == [BASH, "-c", 'echo "[$SET_BY_PROFILE]"']
    assert await run(home, argv) == (0, "[]\n")


def test_other_shells_run_as_they_are() -> None:
    assert shell_command("/usr/bin/fish", "ls", login=True) == ["/usr/bin/fish", "-lc", "ls"]


def test_clients_are_shown_the_shell_and_the_line() -> None:
    assert shown_line("/bin/bash", "cat a.txt", login=True) == "/bin/bash -lc 'cat a.txt'"
    assert shown_line("/bin/bash", "ls", login=False) == "/bin/bash -c ls"


def test_a_shell_is_found_by_its_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SHELL", "/bin/of-the-user")
    assert find_shell(None) == "/bin/of-the-user"
    assert find_shell("sh") == shutil.which("sh")
    assert find_shell("/bin/sh") == "/bin/sh"
    for name in ("no-such-shell", "./sh", ""):
        with pytest.raises(UnknownShell, match="no program"):
            find_shell(name)
