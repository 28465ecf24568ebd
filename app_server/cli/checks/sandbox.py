"""Whether commands can be confined on this machine."""

import sys

from app_server.cli.checks.machine import Machine
from app_server.host.sandbox.errors import SandboxUnavailable
from app_server.host.sandbox.probe import SandboxProbe, probe
from app_server.threads.repair import Check


def check_sandbox(machine: Machine) -> Check:
    """Try to get out of the sandbox of this machine."""
    check = Check("sandbox")
    try:
        found = probe(machine.sandbox)
    except (SandboxUnavailable, OSError) as exc:
        check.add("error", str(exc))
        check.advise("until then commands run only in threads with full access")
        return check
    check.message = f"{found.program}: {len(found.refused)} ways out were tried and refused"
    _judge(found, "a confined command", check)
    _check_proxied(machine, check)
    if found.limit is None:
        check.add("warning", "the processes of a command have no bound")
        check.advise("run the server as a user, or where it may make cgroups")
    else:
        check.message += f"; processes are bound by {found.limit}"
    return check


def _check_proxied(machine: Machine, check: Check) -> None:
    """Try to get out of the sandbox of a command whose network is the proxy."""
    try:
        found = probe(machine.sandbox, proxied=True)
    except (SandboxUnavailable, OSError) as exc:
        # Elsewhere nobody has it, and the text says so.
        check.add("warning" if sys.platform == "linux" else "ok", f"with the proxy: {exc}")
        if sys.platform == "linux":
            check.advise("until then commands have no network where that is to be the proxy")
        return
    check.message += f"; with the proxy as the only network {len(found.refused)}"
    _judge(found, "a command whose network is the proxy", check)


def _judge(found: SandboxProbe, who: str, check: Check) -> None:
    for name in found.escaped:
        check.add("error", f"{who} can {name}")
        check.advise("do not rely on the sandbox of this machine, and report this")
