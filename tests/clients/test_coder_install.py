"""`coder install`: what is written, what is left alone, what is refused."""

import os
import stat
import tomllib
from pathlib import Path
from typing import Any

import pytest

from app_server.clients.coder.install_cli import ENV_VARS, NotOurs, Wanted, changes_for
from tests.support.clients.coder import CODER, environment, run_coder
from tests.support.receiver.peer import KEY
from tests.support.receiver.processes import EXECUTABLE

RECEIVER = {"command": str(EXECUTABLE), "args": ["receiver"], "env_vars": list(ENV_VARS)}


@pytest.fixture(name="variables")
def _variables(tmp_path: Path) -> dict[str, str]:
    """Return the variables of a user with two homes, whose shell does not find the launcher."""
    made = environment(tmp_path, HOME=str(tmp_path / "user"))
    return made | {"PATH": f"{tmp_path / 'bin'}:/usr/bin:/bin"}


def servers(path: Path) -> Any:
    """Return the MCP servers of a config.toml."""
    return tomllib.loads(path.read_text())["mcp_servers"]


def files(folder: Path) -> dict[Path, bytes | str]:
    """Return all files and links with what is in them."""
    return {
        path: os.readlink(path) if path.is_symlink() else path.read_bytes()
        for path in folder.rglob("*")
        if path.is_symlink() or path.is_file()
    }


@pytest.mark.slow
def test_an_installation_is_written_once(tmp_path: Path, variables: dict[str, str]) -> None:
    theirs = tmp_path / "user" / ".codex" / "config.toml"
    ours = tmp_path / "home" / "config.toml"
    link = tmp_path / "user" / ".local" / "bin" / "coder"
    capable = f"ok   codex: {tmp_path / 'bin' / 'codex'}\nok   app-server: listens on WebSockets\n"

    def report(verdict: str) -> str:
        return capable + "".join(
            f"{verdict:<4} {what}\n"
            for what in (
                f"receiver: [mcp_servers.prism] in {theirs}",
                f"receiver: [mcp_servers.prism] in {ours}",
                f"launcher: {link} ({link.parent} is not on PATH)",
            )
        )

    before = files(tmp_path)
    checked = run_coder(variables, "install", "--check")
    assert (checked.returncode, checked.stdout, checked.stderr) == (0, report("todo"), "")
    assert files(tmp_path) == before

    first = run_coder(variables, "install")
    assert (first.returncode, first.stdout, first.stderr) == (0, report("new"), "")
    assert servers(theirs) == servers(ours) == {"prism": RECEIVER}
    assert stat.S_IMODE(ours.stat().st_mode) == 0o600
    assert os.path.realpath(link) == os.path.realpath(CODER)
    assert not (tmp_path / "given.json").exists()

    written = files(tmp_path)
    for words in ((), ("--check",), ("-bin", str(link.parent))):
        again = run_coder(variables, "install", *words)
        assert (again.returncode, again.stdout) == (0, report("ok"))
    assert files(tmp_path) == written
    assert not any(KEY.encode() in text for text in written.values() if isinstance(text, bytes))


def test_the_launcher_that_was_installed_is_the_launcher(
    tmp_path: Path, variables: dict[str, str]
) -> None:
    folder = tmp_path / "bin"
    assert run_coder(variables, "install", "-bin", str(folder)).returncode == 0

    result = run_coder(variables, "install", "--check")

    assert f"ok   launcher: {folder / 'coder'}\n" in result.stdout


def test_everything_else_in_the_file_stays_as_it_is(
    tmp_path: Path, variables: dict[str, str]
) -> None:
    one = variables | {"CODEX_HOME": str(tmp_path / "home")}
    config = tmp_path / "dotfiles" / "config.toml"
    config.parent.mkdir()
    (tmp_path / "home").mkdir()
    (tmp_path / "home" / "config.toml").symlink_to(config)
    before = (
        '# mine\nmodel = "x"  # the best\n\n[mcp_servers.other]\ncommand = "other" # keep\n\n'
        '[mcp_servers.prism] # my receiver\ncommand = "app-server"\n'
        'args = ["receiver", "--session", "Old", "--wake", "Question"]\n'
        'startup_timeout_sec = 20 # slow\n\n[tui]\ntheme = "dark"\n'
    )
    config.write_text(before)
    (tmp_path / "bin" / "app-server").symlink_to(EXECUTABLE)

    words = ("-router-url", "wss://r.example/x", "-session", "Texi", "-key-file", "key")
    result = run_coder(one, "install", *words, cwd=tmp_path)

    assert result.returncode == 0, result.stdout
    assert (tmp_path / "home" / "config.toml").is_symlink()
    left, _, rest = config.read_text().partition("args = ")
    assert left == before.partition("args = ")[0]
    assert servers(config)["prism"] == {
        "command": "app-server",
        "args": [
            *("receiver", "--session", "Texi", "--wake", "Question"),
            *("--router-url", "wss://r.example/x", "--key-file", str(tmp_path / "key")),
        ],
        "startup_timeout_sec": 20,
        "env_vars": list(ENV_VARS),
    }
    assert "startup_timeout_sec = 20 # slow\n" in rest
    assert rest.endswith('\n[tui]\ntheme = "dark"\n')
    assert not (tmp_path / "user" / ".codex").exists()


@pytest.mark.parametrize(
    ("config", "why"),
    [
        (
            '[mcp_servers.prism]\nurl = "https://x.example"\n',
            "[mcp_servers.prism] is another MCP server; give it another name first",
        ),
        (
            '[mcp_servers.prism]\ncommand = "prism"\n',
            "[mcp_servers.prism] is another MCP server; give it another name first",
        ),
        ("mcp_servers = [\n", "Invalid value (at end of document)"),
    ],
)
def test_a_file_that_cannot_be_changed_is_left_alone_and_named(
    tmp_path: Path, variables: dict[str, str], config: str, why: str
) -> None:
    (tmp_path / "home").mkdir()
    path = tmp_path / "home" / "config.toml"
    path.write_text(config)

    result = run_coder(variables, "install")

    assert result.returncode == 1
    [failed] = [line for line in result.stdout.splitlines() if line.startswith("FAIL")]
    assert failed.startswith(f"FAIL receiver: {path}")
    assert why in failed
    assert path.read_text() == config
    # What is possible is done.
    assert servers(tmp_path / "user" / ".codex" / "config.toml") == {"prism": RECEIVER}


def test_a_folder_that_is_a_file_is_named(tmp_path: Path, variables: dict[str, str]) -> None:
    (tmp_path / "home").write_text("")

    result = run_coder(variables, "install")

    assert result.returncode == 1
    assert f"FAIL receiver: {tmp_path / 'home' / 'config.toml'}: Not a directory\n" in result.stdout


@pytest.mark.slow
def test_without_the_agent_nothing_is_written(tmp_path: Path, variables: dict[str, str]) -> None:
    (tmp_path / "bin" / "codex").unlink()
    before = files(tmp_path)

    result = run_coder(variables, "install")
    checked = run_coder(variables, "install", "--check")

    assert (result.returncode, result.stderr) == (1, "coder: nothing was written\n")
    assert result.stdout == (
        "FAIL codex: not found on PATH\nok   app-server: listens on WebSockets\n"
    )
    assert checked.returncode == 1
    assert files(tmp_path) == before


@pytest.mark.slow
def test_a_program_of_the_same_name_is_not_replaced_and_a_dead_link_is(
    tmp_path: Path, variables: dict[str, str]
) -> None:
    link = tmp_path / "user" / ".local" / "bin" / "coder"
    link.parent.mkdir(parents=True)
    link.write_text("of somebody else")
    refused = run_coder(variables, "install")
    assert refused.returncode == 1
    why = f"FAIL launcher: {link} is another program; choose a folder with -bin\n"
    assert why in refused.stdout
    assert link.read_text() == "of somebody else"

    link.unlink()
    link.symlink_to(tmp_path / "gone" / "coder")
    assert run_coder(variables, "install").returncode == 0
    assert os.path.realpath(link) == os.path.realpath(CODER)


@pytest.mark.parametrize(
    ("entry", "options", "changed"),
    [
        ({"command": "here", "args": ["receiver"], "env_vars": [*ENV_VARS, "MY"]}, {}, {}),
        (
            {"command": "gone", "args": ["-m", "x", "receiver", "--session", "A"]},
            {},
            {"command": "new", "args": ["receiver", "--session", "A"], "env_vars": list(ENV_VARS)},
        ),
        (
            {
                "command": "here",
                "args": ["-m", "x", "receiver", "--session=A", "--session", "B", "--cd", "C"],
                "env_vars": list(ENV_VARS),
            },
            {"--session": "D"},
            {"args": ["-m", "x", "receiver", "--session", "D", "--cd", "C"]},
        ),
        (
            {"command": "here", "args": ["receiver", "--session"], "env_vars": list(ENV_VARS)},
            {"--session": "D"},
            {"args": ["receiver", "--session", "D"]},
        ),
        (
            {"command": "here", "args": ["receiver"], "env_vars": ["MY", *ENV_VARS[1:]]},
            {},
            {"env_vars": ["MY", *ENV_VARS[1:], ENV_VARS[0]]},
        ),
    ],
)
def test_an_entry_is_completed_and_no_more(
    entry: dict[str, Any], options: dict[str, str], changed: dict[str, Any]
) -> None:
    document = {"mcp_servers": {"prism": entry}}

    changes = changes_for(document, Wanted("new", options), lambda name: name == "here")

    assert {keys[-1]: value for keys, value in changes} == changed
    assert all(keys[:-1] == ("mcp_servers", "prism") for keys, _ in changes)


@pytest.mark.parametrize(
    "entry",
    [1, {"args": ["receiver"]}, {"command": "x", "args": "receiver"}, {"command": "x"}],
)
def test_what_is_no_receiver_is_refused(entry: Any) -> None:
    with pytest.raises(NotOurs, match="mcp_servers"):
        changes_for({"mcp_servers": {"prism": entry}}, Wanted("new", {}), lambda _: True)
