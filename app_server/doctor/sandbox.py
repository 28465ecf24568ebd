"""Whether commands can be confined on this machine."""

from app_server.doctor.machine import Machine
from app_server.host.sandbox.errors import SandboxUnavailable
from app_server.host.sandbox.proof import prove
from app_server.threads.repair.doctor import Check


def check_sandbox(machine: Machine) -> Check:
    """Try to get out of the sandbox of this machine."""
    check = Check("sandbox")
    try:
        proof = prove(machine.sandbox)
    except (SandboxUnavailable, OSError) as exc:
        check.add("error", str(exc))
        check.advise("until then commands run only in threads with full access")
        return check
    check.message = f"{proof.program}: {len(proof.refused)} ways out were tried and refused"
    for name in proof.escaped:
        check.add("error", f"a confined command can {name}")
        check.advise("do not rely on the sandbox of this machine, and report this")
    if proof.limit is None:
        check.add("warning", "the processes of a command have no bound")
        check.advise("run the server as a user, or where it may make cgroups")
    else:
        check.message += f"; processes are bound by {proof.limit}"
    return check
