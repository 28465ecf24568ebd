"""Commands under sandbox-exec of macOS, with a profile made for each sandbox policy.

Source: docs/tools.md, "Sandbox"; sandbox-exec(1), sandbox(7); the profiles in
/System/Library/Sandbox/Profiles.
"""

from collections.abc import Iterator, Mapping, Sequence

from app_server.host.sandbox.wrapped_command import NO_NETWORK, SandboxUnavailable, WrappedCommand
from app_server.permissions.sandbox.paths import depth_of, expression_text, ways_to
from app_server.permissions.sandbox.policy import Access, EffectivePolicy

PROGRAM = "/usr/bin/sandbox-exec"

BASE = """\
(version 1)
(deny default)
(allow process-exec*)
(allow process-fork)
(allow process-info* (target same-sandbox))
(allow signal (target same-sandbox))
(allow sysctl-read)
(allow user-preference-read)
(allow ipc-posix-sem)
(allow pseudo-tty)
(allow mach-lookup
  (global-name "com.apple.system.opendirectoryd.libinfo")
  (global-name "com.apple.system.notification_center")
  (global-name "com.apple.PowerManagement.control"))
(allow file-ioctl (literal "/dev/ptmx") (regex #"^/dev/ttys[0-9]+$"))"""
"""Rules without which no program runs; no service among them acts for the user."""

DEVICES = """\
(allow file-read* file-write*
  (literal "/dev/null")
  (literal "/dev/zero")
  (literal "/dev/tty")
  (literal "/dev/ptmx")
  (regex #"^/dev/ttys[0-9]+$")
  (regex #"^/dev/fd/[0-9]+$"))
(allow file-read* (literal "/") (literal "/dev/random") (literal "/dev/urandom"))"""

NETWORK = """\
(allow network*)
(allow system-socket)
(allow mach-lookup
  (global-name "com.apple.SystemConfiguration.configd")
  (global-name "com.apple.dnssd.service")
  (global-name "com.apple.networkd")
  (global-name "com.apple.trustd.agent"))"""


class SandboxExec:
    """The sandbox of macOS."""

    def __init__(self, program: str) -> None:
        self.program = program

    def wrap(
        self, command: Sequence[str], cwd: str, sandbox_policy: EffectivePolicy, *, tty: bool
    ) -> WrappedCommand:
        """Return the argv of the sandbox; see MachineSandbox.wrap.

        There is no session of its own around it, so a terminal is as good as without.

        Raises:
            SandboxUnavailable: its network is to be the server's proxy.
        """
        if sandbox_policy.proxy is not None:
            raise SandboxUnavailable(
                "commands have a network through the proxy on Linux alone: give the thread no "
                "network, or switch `features.network_proxy` off"
            )
        prefix = () if sandbox_policy.network else ("/usr/bin/env", f"{NO_NETWORK}=1")
        line = (self.program, "-p", profile(sandbox_policy), *prefix, *command)
        return WrappedCommand(line)


def profile(sandbox_policy: EffectivePolicy) -> str:
    """Return the profile of a resolved sandbox policy; of its rules the last that fits decides.

    Folders that Linux gives a process to itself are as their surroundings here.
    """
    rules = [BASE, *_places(sandbox_policy), DEVICES]
    if sandbox_policy.network:
        rules.append(NETWORK)
    return "\n".join(rules) + "\n"


def _places(sandbox_policy: EffectivePolicy) -> Iterator[str]:
    root: Access = "none"
    if sandbox_policy.writable is None:
        root = "write"
    elif sandbox_policy.readable is None:
        root = "read"
    chosen: dict[str, Access] = {"/": root}
    ranks: Sequence[tuple[Sequence[str], Access]] = (
        (sandbox_policy.readable or (), "read"),
        (sandbox_policy.writable or (), "write"),
        (sandbox_policy.protected, "read"),
        (sandbox_policy.denied, "none"),
    )
    for places, access in ranks:
        chosen |= dict.fromkeys(places, access)
    for place in sorted(chosen, key=lambda path: (depth_of(path), path)):
        quoted = _quoted(place)
        match chosen[place]:
            case "write":
                yield f"(allow file-read* file-write* (subpath {quoted}))"
            case "read":
                yield f"(allow file-read* (subpath {quoted}))"
                yield f"(deny file-write* (subpath {quoted}))"
            case "none":
                yield f"(deny file-read* file-write* (subpath {quoted}))"
    # What is renamed takes all that is in it to where other rules hold.
    for place in _kept(chosen):
        yield f"(deny file-write-unlink (literal {_quoted(place)}))"
    for pattern in sandbox_policy.denied_patterns:
        text = expression_text(pattern).replace('"', '\\"')
        yield f'(deny file-read* file-write* (regex #"^{text}(/.*)?$"))'


def _kept(chosen: Mapping[str, Access]) -> Sequence[str]:
    """Return writable folders that are a place, or that one lies in."""
    kept = {place for place, access in chosen.items() if access == "write"}
    for place in chosen:
        above = ways_to(place)
        kept |= {
            folder
            for number, folder in enumerate(above)
            if next((chosen[one] for one in above[number:] if one in chosen), "none") == "write"
        }
    return sorted(kept - {"/"})


def _quoted(path: str) -> str:
    escaped = path.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'
