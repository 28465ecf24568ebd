"""`app-server doctor`: what it says of the sandbox of this machine."""

import socket
from collections.abc import Sequence
from pathlib import Path

import pytest

from app_server.cli.checks.machine import Machine, check_sandbox
from app_server.host.sandbox import machine_sandbox as module
from app_server.host.sandbox import probe
from app_server.host.sandbox.linux.process_limits import limit_in_words
from app_server.host.sandbox.linux.sandbox import Bubblewrap
from app_server.host.sandbox.machine_sandbox import MachineSandbox
from app_server.host.sandbox.wrapped_command import SandboxUnavailable, WrappedCommand
from app_server.permissions.sandbox.policy import EffectivePolicy
from tests.support.harness import claim
from tests.support.host.sandboxes import working_sandbox

WAYS = 10


class Leaky(MachineSandbox):
    """A sandbox that keeps nothing away."""

    def wrap(
        self,
        command: Sequence[str],
        cwd: str,
        sandbox_policy: EffectivePolicy,
        *,
        tty: bool = False,
    ) -> WrappedCommand:
        return WrappedCommand(command)


def machine(sandbox: MachineSandbox | None = None) -> Machine:
    return Machine(home=Path("/nowhere"), sandbox=sandbox or MachineSandbox())


@pytest.mark.process
@claim("doctor:sandbox")
def test_it_says_which_sandbox_works_and_that_nothing_gets_out() -> None:
    found = working_sandbox().sandbox()
    check = check_sandbox(machine())
    assert (check.status, check.details, check.todo) == ("ok", [], None)
    assert check.message == (
        f"{found.program}: {WAYS} ways out were tried and refused; "
        f"with the proxy as the only network {WAYS}; "
        f"processes are bound by {limit_in_words()}"
    )


@pytest.mark.process
@claim("doctor:sandbox")
def test_it_names_what_gets_out(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        monkeypatch.setattr(probe, "PORT", listener.getsockname()[1])
        check = check_sandbox(machine(Leaky(Bubblewrap("/leaky"))))
    assert check.status == "error"
    for who in ("a confined command", "a command whose network is the proxy"):
        named = [found.partition(" can ")[2] for found in check.details if found.startswith(who)]
        # They are open to root alone.
        assert [name for name in named if name != "open settings of the kernel"] == [
            "write outside of the project",
            "write outside through a link",
            "write a hook of git",
            "read what is hidden",
            "read the variables of the server",
            "signal the server",
            "reach the network",
            "send to the network",
            "reach a socket in the file system",
        ]
    assert check.todo == "do not rely on the sandbox of this machine, and report this"


class WithoutProxy(MachineSandbox):
    """A sandbox in which nothing can be made that a proxy needs."""

    def wrap(
        self,
        command: Sequence[str],
        cwd: str,
        sandbox_policy: EffectivePolicy,
        *,
        tty: bool = False,
    ) -> WrappedCommand:
        if sandbox_policy.proxy is not None:
            raise SandboxUnavailable("no listener")
        return super().wrap(command, cwd, sandbox_policy, tty=tty)


@pytest.mark.process
@pytest.mark.parametrize(("platform", "status"), [("linux", "warning"), ("darwin", "ok")])
def test_it_says_where_the_proxy_cannot_be_the_only_network(
    monkeypatch: pytest.MonkeyPatch, platform: str, status: str
) -> None:
    known = WithoutProxy(working_sandbox().sandbox())
    monkeypatch.setattr("sys.platform", platform)
    check = check_sandbox(machine(known))
    assert (check.status, check.details) == (status, ["with the proxy: no listener"])
    advice = "until then commands have no network where that is to be the proxy"
    assert check.todo == (advice if status == "warning" else None)


@claim("doctor:sandbox")
def test_it_says_what_to_do_where_there_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "bubblewraps", list)
    check = check_sandbox(machine())
    assert (check.status, check.message) == ("error", "")
    assert check.details[0].startswith("no sandbox is installed: install the package `bubblewrap`")
    assert check.todo == "until then commands run only in threads with full access"


@pytest.mark.process
def test_a_sandbox_in_which_nothing_works_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    working_sandbox()
    monkeypatch.setattr("sys.executable", "/bin/false")
    with pytest.raises(SandboxUnavailable, match="bwrap: "):
        probe.probe(MachineSandbox())


@pytest.mark.process
def test_it_warns_where_processes_have_no_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    working_sandbox()
    monkeypatch.setattr(probe, "limit_in_words", lambda: None)
    check = check_sandbox(machine())
    assert (check.status, check.details) == (
        "warning",
        ["the processes of a command have no bound"],
    )
