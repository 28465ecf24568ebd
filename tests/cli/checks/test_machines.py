"""Homes and machines in which one thing is broken: each is named, with what to do about it."""

import errno
import json
import os
import resource
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import anyio.to_thread
import pytest

from app_server.cli import doctor as command
from app_server.cli.checks import machine
from app_server.cli.checks.catalogue import CHECKS, run_checks
from app_server.cli.checks.machine import Machine
from app_server.host.sandbox import machine_sandbox
from app_server.host.sandbox.machine_sandbox import MachineSandbox
from app_server.threads.checks import Check
from app_server.transport.socket_file import NO_FOLDER
from tests.support.harness import claim, environment_without, stdio_server
from tests.support.harness import write_config as write_model
from tests.support.mcp_peers.web_peer import Answer, WebPeer
from tests.support.model import ScriptedModel
from tests.support.threads.stores import created, open_store

SECRET = "hunter2-Zx9_qwerty"
BEFORE_S = 631_152_000.0
"""The year 1990."""

NEED_SETTINGS = ("keyring", "model", "mcp")


def write(home: Path, config: str) -> None:
    (home / "config.toml").write_text(config)


async def found(machine: Machine, *names: str) -> list[Check]:
    """Run some checks as the command does, and return those that have found something."""
    specs = [spec for spec in CHECKS if spec.name in names]
    assert len(specs) == len(names)
    return [check for check in await run_checks(specs, machine) if check.status != "ok"]


async def one(machine: Machine, name: str) -> Check:
    (check,) = await found(machine, name)
    return check


def shown(check: Check) -> tuple[str, str, list[str], str | None]:
    return check.name, check.status, check.details, check.todo


@claim("doctor:machines")
async def test_no_sandbox(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine_sandbox, "bubblewraps", list)
    check = await one(Machine(home=tmp_path, sandbox=MachineSandbox()), "sandbox")
    assert (check.name, check.status) == ("sandbox", "error")
    assert check.details[0].startswith("no sandbox is installed: install the package `bubblewrap`")
    assert check.todo == "until then commands run only in threads with full access"


@contextmanager
def small_files(limit_bytes: int) -> Iterator[None]:
    """Let no file of this process grow beyond a size."""
    before, wrote_bytecode = resource.getrlimit(resource.RLIMIT_FSIZE), not sys.dont_write_bytecode
    # Python 3.11 puts a file that was cut by the limit in the place of a module's bytecode.
    sys.dont_write_bytecode = True
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit_bytes, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        sys.dont_write_bytecode = not wrote_bytecode


@claim("doctor:machines")
async def test_a_disk_that_takes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with small_files(1000):
        check = await one(Machine(home=tmp_path), "disk")
    assert check.status == "error"
    assert check.details[0] == f"{tmp_path}: File too large"
    assert check.todo == "raise the limit on the size of files (ulimit -f)"
    for number, todo in (
        (errno.ENOSPC, "make room on this disk: what cannot be stored is refused"),
        (errno.EDQUOT, "make room within the quota of this user: what cannot be stored is refused"),
    ):

        def refuse(folder: Path, number: int = number) -> None:
            raise OSError(number, os.strerror(number))

        monkeypatch.setattr(machine, "_write", refuse)
        check = await one(Machine(home=tmp_path / "not" / "there"), "disk")
        assert check.details[0] == f"{tmp_path}: {os.strerror(number)}"
        assert check.todo == todo
    assert list(tmp_path.iterdir()) == []


async def test_a_disk_with_little_space(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    usage = shutil.disk_usage(tmp_path)
    monkeypatch.setattr(shutil, "disk_usage", lambda path: usage._replace(free=1 << 20))
    assert shown(await one(Machine(home=tmp_path), "threads")) == (
        "home",
        "error",
        ["1 MiB are free"],
        "make room on this disk: what cannot be stored is refused",
    )


@claim("doctor:machines")
async def test_a_port_and_a_socket_that_are_taken(tmp_path: Path) -> None:
    path = tmp_path / "taken.sock"
    with (
        socket.create_server(("127.0.0.1", 0)) as listener,
        socket.socket(socket.AF_UNIX) as at_path,
    ):
        at_path.bind(str(path))
        at_path.listen()
        port = listener.getsockname()[1]
        nowhere = tmp_path / "nowhere"
        listen = [f"ws://127.0.0.1:{port}", f"unix://{path}", f"unix://{nowhere}/x/y", "http://x"]
        check = await one(Machine(home=tmp_path, listen=listen), "ports")
    name = Path("/proc/self/comm").read_text().strip()
    assert check.details == [
        f"127.0.0.1:{port} is taken by {name} (process {os.getpid()})",
        f"{path} is taken: a server listens there",
        f"{nowhere} {NO_FOLDER}",
        "cannot listen on 'http://x': use ws://127.0.0.1:PORT, unix://PATH, stdio:// or off",
    ]
    assert check.todo == (
        "end that program, or choose another port (0: any free one); use that server, or choose "
        "another path; make that folder, or choose another path; choose another address for "
        "--listen"
    )
    # What nobody listens on any more is free.
    assert await found(Machine(home=tmp_path, listen=listen[:2]), "ports") == []


async def test_a_taken_port_alone_says_what_to_do(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listen = [f"ws://127.0.0.1:{listener.getsockname()[1]}"]
        check = await one(Machine(home=tmp_path, listen=listen), "ports")
    assert check.todo == "end that program, or choose another port (0: any free one)"


@pytest.mark.process
@claim("doctor:machines")
async def test_mcp_servers_that_do_not_start(tmp_path: Path) -> None:
    write(
        tmp_path,
        stdio_server("good")
        + '[mcp_servers.gone]\ncommand = "/nowhere/server"\nrequired = true\n'
        + f"[mcp_servers.dead]\ncommand = {json.dumps(sys.executable)}\nargs = ['-c', 'exit(3)']\n"
        + '[mcp_servers.off]\ncommand = "x"\nenabled = false\n'
        + '[mcp_servers.web]\nurl = "http://127.0.0.1:9/mcp"\n',
    )
    check = await one(Machine(home=tmp_path, cwd=tmp_path), "mcp")
    assert (check.status, check.message) == ("error", "1 of 4 start, 1 is disabled")
    told = {detail.split(":")[0]: detail for detail in check.details}
    assert told.keys() == {"good", "gone", "dead", "web"}
    assert told["good"].endswith(" tools")
    gone = "/nowhere/server: No such file or directory (os error 2)"
    assert told["gone"] == f"gone: MCP startup failed: {gone}"
    assert "exit status" in told["dead"] or "exit code" in told["dead"], told["dead"]
    assert check.todo is not None
    assert check.todo.split("; ") == [
        "run the command of [mcp_servers.dead] by hand, and look at what it says",
        "run the command of [mcp_servers.gone] by hand, and look at what it says",
        "look at url of [mcp_servers.web], and whether that server runs",
    ]


@claim("doctor:machines")
async def test_a_model_that_cannot_be_reached_or_refuses(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    provider = '[model_providers.mine]\nname = "mine"\nbase_url = "URL"\nenv_key = "MY_MODEL_KEY"\n'
    config = f'model_provider = "mine"\n{provider}'
    write(tmp_path, config.replace("URL", f"http://127.0.0.1:{port}/v1"))
    monkeypatch.delenv("MY_MODEL_KEY", raising=False)
    assert shown(await one(Machine(home=tmp_path), "model")) == (
        "model",
        "error",
        ["Missing environment variable: `MY_MODEL_KEY`."],
        "set MY_MODEL_KEY to the key of this provider before the server is started",
    )
    monkeypatch.setenv("MY_MODEL_KEY", SECRET)
    check = await one(Machine(home=tmp_path), "model")
    assert check.details[0].startswith(
        f"cannot reach the model at http://127.0.0.1:{port}/v1/models: "
    )
    assert check.todo == (
        "look at base_url of [model_providers.mine] in config.toml, at the network and at the "
        "proxy (HTTPS_PROXY, NO_PROXY)"
    )
    async with ScriptedModel().serve() as model:
        write(tmp_path, config.replace("URL", model.url))
        assert await found(Machine(home=tmp_path), "model") == []
        model.models = {"data": [{"id": "m"}]}
        assert await found(Machine(home=tmp_path), "model") == []


@pytest.mark.parametrize(
    ("status", "todo"),
    [
        (401, "the provider refuses the key in MY_MODEL_KEY: renew it, or sign in again"),
        (503, "the provider has trouble of its own: try again later"),
        (400, "look at base_url of [model_providers.mine] in config.toml"),
    ],
)
async def test_what_a_provider_answers_decides_what_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, status: int, todo: str
) -> None:
    monkeypatch.setenv("MY_MODEL_KEY", SECRET)
    async with WebPeer().serve() as peer:
        peer.answers["GET"] = [Answer(status, b"no")]
        write(
            tmp_path,
            'model_provider = "mine"\n[model_providers.mine]\nname = "mine"\n'
            f'base_url = "{peer.url}"\nenv_key = "MY_MODEL_KEY"\n',
        )
        check = await one(Machine(home=tmp_path), "model")
    assert (check.details, check.todo) == ([f"status {status}, 2 bytes"], todo)


@claim("doctor:machines")
async def test_a_corrupt_index(tmp_path: Path) -> None:
    async with open_store(tmp_path) as store:
        await store.unload(await store.create(created()))
    (tmp_path / "index" / "threads.sqlite3").write_bytes(b"x" * 5000)
    check = await one(Machine(home=tmp_path), "threads")
    assert (check.name, check.status) == ("index", "warning")
    assert check.message == "it cannot be read: file is not a database"
    assert check.todo == "nothing: the next start makes it from the logs; or run doctor --rebuild"


@claim("doctor:machines")
async def test_wrong_modes(tmp_path: Path) -> None:
    for name, mode in (("auth.json", 0o644), (".credentials.json", 0o600), ("config.toml", 0o666)):
        (tmp_path / name).write_text("")
        (tmp_path / name).chmod(mode)
    assert shown(await one(Machine(home=tmp_path), "modes")) == (
        "modes",
        "error",
        [
            f"others can use {tmp_path}/auth.json (mode 0644)",
            f"others can change {tmp_path}/config.toml (mode 0666)",
        ],
        f"chmod go= {tmp_path}/auth.json; chmod go-w {tmp_path}/config.toml",
    )


async def test_a_home_that_is_no_folder_is_one_error(tmp_path: Path) -> None:
    home = tmp_path / "home"
    home.write_text("")
    assert shown(await one(Machine(home=home), "modes")) == (
        "modes",
        "error",
        [f"{home}: Not a directory"],
        f"let {home} be a folder that this user can use",
    )
    home.unlink()
    assert await found(Machine(home=home), "modes") == []


@claim("doctor:machines")
async def test_a_profile_is_looked_at_too(tmp_path: Path) -> None:
    profile = tmp_path / "work.config.toml"
    machine = Machine(home=tmp_path, profile="work")
    write(tmp_path, 'model_provider = "gone"\n')
    check = await one(machine, "config")
    assert check.message == f"{tmp_path}/config.toml and work.config.toml"
    assert check.details[0] == f"{profile} is not there, so the profile changes nothing"
    assert (check.todo or "").startswith(
        "make that file, or leave out --profile work; add a table [model_providers.gone]"
    )
    # What it says is over the other file, in every check.
    profile.write_text(
        'model_provider = "near"\n[model_providers.near]\nname = "n"\nbase_url = "http://[::1]:9"\n'
        '[mcp_servers.lost]\ncommand = "/nowhere"\n'
    )
    assert await found(machine, "config") == []
    assert [check.details[0] for check in await found(machine, "model", "mcp")] == [
        "cannot reach the model at http://[::1]:9/models: All connection attempts failed",
        "lost: MCP startup failed: /nowhere: No such file or directory (os error 2)",
    ]
    profile.write_text('cli_auth_credentials_store = "ephemeral"\nsurprise = 1\n')
    write(tmp_path, 'cli_auth_credentials_store = "keyring"\n')
    assert await found(machine, "keyring") == []
    typed = replace(machine, overrides={"features.bogus": 1})
    assert (
        (await one(typed, "config"))
        .details[-1]
        .startswith("-c/--config: unknown configuration field `features.bogus`")
    )
    unknown = await one(machine, "config")
    assert unknown.details[0].startswith(f"{profile}:2:1: unknown configuration field `surprise`")
    profile.chmod(0o622)
    assert (await one(machine, "modes")).todo == f"chmod go-w {profile}"
    profile.write_text("= 1")
    assert (await one(machine, "config")).details[0].startswith(f"{profile}:1:1: ")
    assert [check.name for check in await found(machine, *NEED_SETTINGS)] == list(NEED_SETTINGS)


@pytest.mark.process
async def test_one_table_that_cannot_be_used_hides_no_other_server(tmp_path: Path) -> None:
    write(tmp_path, stdio_server("good") + "[mcp_servers.bad]\ncommand = 5\n[mcp_servers.worse]\n")
    check = await one(Machine(home=tmp_path, cwd=tmp_path), "mcp")
    assert (check.status, check.message) == ("error", "1 of 1 start, 0 are disabled")
    bad, worse, good = check.details
    assert bad.startswith("bad: ")
    assert bad.endswith("invalid type: integer, expected a string")
    assert worse.startswith("worse: ")
    assert good.startswith("good: ")
    assert good.endswith(" tools")
    assert check.todo == "correct [mcp_servers.bad]; correct [mcp_servers.worse]"


@pytest.mark.parametrize("place", ["/proc/x", "/proc/made/x", "/sys/x"])
async def test_nothing_can_be_made_in_folders_of_the_kernel(tmp_path: Path, place: str) -> None:
    check = await one(Machine(home=tmp_path, listen=[f"unix://{place}"]), "ports")
    folder = Path(place).parts[1]
    assert check.details == [f"no file can be made in /{folder}"]


async def test_the_folder_that_a_server_makes_need_not_be_there(tmp_path: Path) -> None:
    listen = [f"unix://{tmp_path}/made/x"]
    assert await found(Machine(home=tmp_path, listen=listen), "ports") == []
    assert list(tmp_path.iterdir()) == []


@claim("doctor:machines")
async def test_keys_of_old_configurations_and_values_that_do_not_fit(tmp_path: Path) -> None:
    write(tmp_path, 'experimental_use_exec_command_tool = true\n[profiles.x]\nmodel = "m"\n')
    check = await one(Machine(home=tmp_path), "config")
    assert check.status == "warning"
    assert check.todo == "correct or remove these keys: nothing reads them (docs/config.md)"
    assert check.details[0].startswith(
        f"{tmp_path}/config.toml:1:1: unknown configuration field "
        "`experimental_use_exec_command_tool`"
    )
    for config, detail, todo, unknown in (
        (
            "model = = 1",
            ":1:9: ",
            "correct the file at that place; no thread starts before",
            NEED_SETTINGS,
        ),
        (
            "[mcp_servers.x]\ncommand = 5\n",
            ":2:11: invalid type: integer, expected a string; that server goes on as it was, or is "
            "not started",
            "correct each value at its place",
            ("mcp",),
        ),
        (
            'model_provider = "gone"\n',
            f"{tmp_path}/config.toml:1:18: there is no provider `gone`; there are offline, openai",
            "add a table [model_providers.gone] to config.toml, or choose another one",
            ("model",),
        ),
    ):
        write(tmp_path, config)
        check = await one(Machine(home=tmp_path), "config")
        assert check.status == "error"
        assert (check.todo or "").count("; ") <= 1
        assert detail in check.details[-1]
        assert (check.todo or "").startswith(todo)
        # What could not be looked at is not well, also where nothing else is asked for.
        failed = await found(Machine(home=tmp_path), *NEED_SETTINGS)
        assert [(check.name, check.status) for check in failed] == [
            (name, "error") for name in unknown
        ]
        assert all(check.details and check.todo for check in failed)


async def test_requirements_that_cannot_be_used(tmp_path: Path) -> None:
    requirements = tmp_path / "requirements.toml"
    requirements.write_text("allowed_sandbox_modes = 5\n")
    check = await one(Machine(home=tmp_path, requirements=requirements), "config")
    assert check.status == "error"
    assert str(requirements) in check.details[0]
    assert check.todo == (
        "nothing starts until the administrator of this machine corrects that file"
    )


@claim("doctor:machines")
async def test_a_clock_that_is_wrong(tmp_path: Path) -> None:
    todo = "set the clock, and have it kept right (timedatectl set-ntp true)"
    check = await one(Machine(home=tmp_path, now_s=lambda: BEFORE_S), "clock")
    assert (check.status, check.message) == ("error", "1990-01-01 00:00:00 UTC")
    assert check.details == ["it says 1990, which cannot be: certificates and tokens will fail"]
    assert check.todo == todo
    file = tmp_path / "config.toml"
    write(tmp_path, "")
    now_s = 1_800_000_000.0
    os.utime(file, (now_s, now_s + 3 * 24 * 3600))
    assert shown(await one(Machine(home=tmp_path, now_s=lambda: now_s), "clock")) == (
        "clock",
        "warning",
        [f"{file} was written 3 days from now: the clock was set back"],
        f"{todo}; until then new threads may sort before older ones",
    )


@claim("doctor:machines")
async def test_a_keyring_that_is_not_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("app_server.cli.checks.machine.load_keyring", lambda: None)
    write(tmp_path, 'cli_auth_credentials_store = "keyring"\n')
    assert shown(await one(Machine(home=tmp_path), "keyring")) == (
        "keyring",
        "error",
        [
            "the Python package `keyring` is not installed, and cli_auth_credentials_store = "
            '"keyring" needs one'
        ],
        "install the extra (pip install 'app-server[keyring]') and run a keyring service, or set "
        'cli_auth_credentials_store = "file"',
    )
    write(tmp_path, 'cli_auth_credentials_store = "auto"\n')
    assert await found(Machine(home=tmp_path), "keyring") == []


class Locked:
    """A keyring that nobody has unlocked."""

    def get_password(self, service: str, name: str) -> str:
        raise RuntimeError(SECRET)


async def test_a_keyring_that_cannot_be_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("app_server.cli.checks.machine.load_keyring", Locked)
    write(tmp_path, 'mcp_oauth_credentials_store = "keyring"\n')
    check = await one(Machine(home=tmp_path), "keyring")
    assert check.details == [
        "the keyring cannot be used: RuntimeError, and mcp_oauth_credentials_store = "
        '"keyring" needs one'
    ]


def doctor(home: Path, *options: str, **variables: str) -> tuple[int, Any]:
    command = [sys.executable, "-m", "app_server.cli.entry", "doctor", "--home", str(home)]
    result = subprocess.run(
        [*command, "--json", *options],
        env=environment_without("OPENAI_API_KEY") | variables,
        capture_output=True,
        text=True,
        check=False,
    )
    return result.returncode, json.loads(result.stdout) if result.stdout else result.stderr


@pytest.mark.process
@claim("doctor:machines")
async def test_the_command_names_what_is_wrong_and_no_secret(tmp_path: Path) -> None:
    async with ScriptedModel().serve() as model:
        write_model(tmp_path, f"{model.url}?token={SECRET}")
        (tmp_path / "auth.json").touch(0o644)
        options = ("--skip", "sandbox", "--skip", "threads")
        run = partial(doctor, tmp_path, *options, MY_TOKEN=SECRET)
        status, report = await anyio.to_thread.run_sync(run)
    assert status == 1
    assert (report["ok"], report["home"]) == (False, str(tmp_path))
    assert [check["name"] for check in report["checks"]] == [
        *(
            "database",
            "filing",
            "signals",
            "notifications",
            "disk",
            "modes",
            "config",
            "keyring",
            "model",
            "mcp",
            "ports",
            "clock",
        ),
        "limits",
    ]
    (wrong,) = [check for check in report["checks"] if check["status"] != "ok"]
    assert wrong["name"] == "modes"
    assert wrong["todo"] == f"chmod go= {tmp_path}/auth.json"
    assert SECRET not in json.dumps(report)


def test_options_choose_checks_and_wrong_ones_are_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    call = ["--home", str(tmp_path), "--json"]
    assert command.main([*call, "--only", "clock"]) == 0
    (check,) = json.loads(capsys.readouterr().out)["checks"]
    assert check["name"] == "clock"
    assert command.main([*call, "--only", "config", "--profile", "work"]) == 1
    (check,) = json.loads(capsys.readouterr().out)["checks"]
    assert check["todo"] == "make that file, or leave out --profile work"
    for wrong, reason in (
        (("--profile", "../work"), "invalid profile '../work': a name has at most 64 letters"),
        (("--only", "everything"), "invalid choice: 'everything'"),
        (("--only", "disk", "--skip", "disk"), "disk is named by --only and by --skip"),
        (
            ("--only", "disk", "--only", "clock", "--skip", "clock", "--skip", "disk"),
            "disk and clock are named by --only and by --skip",
        ),
        ([word for name in command.NAMES for word in ("--skip", name)], "leaves no check"),
    ):
        with pytest.raises(SystemExit) as ended:
            command.main([*call, *wrong])
        assert ended.value.code == 2
        assert reason in capsys.readouterr().err
