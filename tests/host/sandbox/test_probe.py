"""The attempts to get out of a sandbox: what is tried, and what is said of it."""

import os
import socket
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from app_server.host.sandbox import probe as module
from app_server.host.sandbox.linux.sandbox import Bubblewrap
from app_server.host.sandbox.machine_sandbox import MachineSandbox
from app_server.host.sandbox.probe import SandboxProbe, probe
from app_server.host.sandbox.proxied import PORT
from app_server.host.sandbox.wrapped_command import SandboxUnavailable, WrappedCommand
from app_server.permissions.network import NetworkPolicy
from app_server.permissions.sandbox.policy import EffectivePolicy
from tests.support.host.sandboxes import working_sandbox

WAYS = [
    "write outside of the project",
    "write outside through a link",
    "write a hook of git",
    "read what is hidden",
    "read the variables of the server",
    "signal the server",
    "open settings of the kernel",
    "reach the network",
    "send to the network",
    "reach a socket in the file system",
]


@dataclass
class Launcher:
    """Starts something else in the place of the attempts, and notes what it was asked."""

    argv: Sequence[str] | None = None
    """None: the attempts themselves, in no sandbox."""
    asked: list[tuple[Sequence[str], str, EffectivePolicy]] = field(default_factory=list)
    released: list[str] = field(default_factory=list)
    inherited: list[int] = field(default_factory=list)

    def sandbox(self) -> Any:
        return Bubblewrap("/bwrap")

    def wrap(
        self, command: Sequence[str], cwd: str, sandbox_policy: EffectivePolicy
    ) -> WrappedCommand:
        self.asked.append((command, cwd, sandbox_policy))
        wrapped = WrappedCommand(command if self.argv is None else self.argv, self.inherited)
        wrapped.held.callback(self.released.append, cwd)
        return wrapped


def probed(wrapper: Any, *, proxied: bool = False) -> SandboxProbe:
    return probe(wrapper, proxied=proxied)


@pytest.mark.process
@pytest.mark.parametrize("proxied", [False, True])
def test_nothing_gets_out_of_a_sandbox_and_nothing_is_left_of_the_attempts(proxied: bool) -> None:
    wrapper = working_sandbox()
    assert isinstance(wrapper, MachineSandbox)
    before = sorted(os.listdir("/proc/self/fd"))
    found = probed(wrapper, proxied=proxied)
    assert (found.program, found.refused, found.escaped) == (wrapper.sandbox().program, WAYS, [])
    assert sorted(os.listdir("/proc/self/fd")) == before


@pytest.mark.process
@pytest.mark.parametrize("proxied", [False, True])
def test_what_gets_out_is_named(monkeypatch: pytest.MonkeyPatch, proxied: bool) -> None:
    wrapper = Launcher()
    with socket.create_server(("127.0.0.1", 0)) as listener:
        monkeypatch.setattr(module, "PORT", listener.getsockname()[1])
        found = probed(wrapper, proxied=proxied)
    # Open to root alone.
    kernel = [name for name in found.refused if name == "open settings of the kernel"]
    assert list(found.refused) == kernel
    assert list(found.escaped) == [name for name in WAYS if name not in kernel]
    assert found.program == "/bwrap"


@pytest.mark.parametrize("proxied", [False, True])
def test_the_attempts_are_confined_to_a_project_with_a_secret_beside_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, proxied: bool
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    show = "for place in . .git ..; do echo refused $(ls -A $place); done"
    wrapper = Launcher(("/bin/sh", "-c", show))
    found = probed(wrapper, proxied=proxied)
    ((command, cwd, sandbox_policy),) = wrapper.asked
    root = str(Path(cwd).parent)
    assert Path(root).parent == tmp_path.resolve()
    assert command[:3] == (sys.executable, "-I", "-S")
    assert command[5:7] == (root, str(os.getpid()))
    ports = [int(port) for port in command[7:9]]
    assert all(port > 1 for port in ports)
    assert command[9] == (str(PORT) if proxied else "-")
    assert (sandbox_policy.writable, sandbox_policy.protected, sandbox_policy.denied) == (
        (cwd,),
        (f"{cwd}/.git",),
        (f"{root}/hidden",),
    )
    assert sandbox_policy.network is False
    assert sandbox_policy.proxy == (NetworkPolicy() if proxied else None)
    assert found.refused == [".git link", "hooks", "file hidden socket work"]
    assert (wrapper.released, list(tmp_path.iterdir())) == ([cwd], [])


@pytest.mark.parametrize(
    ("script", "problem"),
    [
        ("echo refused all; echo because >&2; exit 1", "/bwrap: because"),
        ("echo because >&2", "/bwrap: because"),
        ("exit 1", "/bwrap: "),
        ("printf '%0400d' 0 >&2; exit 1", f"/bwrap: {'0' * 300}"),
    ],
)
def test_attempts_that_were_not_made_are_no_sandbox(script: str, problem: str) -> None:
    wrapper = Launcher(("/bin/sh", "-c", script))
    with pytest.raises(SandboxUnavailable) as refused:
        probed(wrapper)
    assert str(refused.value) == problem
    assert len(wrapper.released) == 1


def test_what_is_printed_is_taken_word_by_word() -> None:
    said = "echo refused to do a b; echo escaped c d; echo refused e"
    found = probed(Launcher(("/bin/sh", "-c", said)))
    assert (found.refused, found.escaped) == (["to do a b", "e"], ["c d"])


def test_attempts_that_do_not_end_are_no_sandbox(monkeypatch: pytest.MonkeyPatch) -> None:
    def run(*arguments: Any, timeout: float, **more: Any) -> Any:
        raise subprocess.TimeoutExpired("bwrap", timeout)

    monkeypatch.setattr(subprocess, "run", run)
    wrapper = Launcher()
    with pytest.raises(SandboxUnavailable, match=r"^/bwrap does not end$"):
        probed(wrapper)
    assert len(wrapper.released) == 1


def test_a_folder_for_temporary_files_may_have_a_path_that_no_socket_can_have(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    deep = tmp_path / ("x" * 120)
    deep.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(deep))
    found = probed(Launcher(("/bin/sh", "-c", "echo refused $(ls ..)")))
    assert found.refused == ["file hidden work"]
