"""The sandbox of this machine: found out once, and put around command lines.

Source: docs/tools.md, "Sandbox".
"""

import sys
import threading
from collections.abc import Sequence
from typing import TypeAlias

from app_server.host.sandbox.linux.placeholders import PlaceholderRecords
from app_server.host.sandbox.linux.sandbox import Bubblewrap
from app_server.host.sandbox.macos import PROGRAM, SandboxExec
from app_server.host.sandbox.wrapped_command import (
    WrappedCommand,
    bubblewraps,
    failure_of,
    unavailable,
)
from app_server.permissions.sandbox.policy import EffectivePolicy
from app_server.permissions.sandbox.roots import SLASH_TMP

Sandbox: TypeAlias = Bubblewrap | SandboxExec

PROBE = EffectivePolicy(writable=(SLASH_TMP,), network=False)
"""The sandbox policy that a sandbox program has to enforce to be chosen."""


class MachineSandbox:
    """The sandbox of this machine; one for the whole server.

    What works is found out with the first command that needs it, and looked for again for as long
    as nothing does.
    """

    def __init__(
        self, sandbox: Sandbox | None = None, records: PlaceholderRecords | None = None
    ) -> None:
        """`sandbox` is one that is known to work; `records` as Bubblewrap has them."""
        self._sandbox = sandbox
        self._records = records
        self._choosing = threading.Lock()

    def wrap(
        self,
        command: Sequence[str],
        cwd: str,
        sandbox_policy: EffectivePolicy,
        *,
        tty: bool = False,
    ) -> WrappedCommand:
        """Return the argv that runs a command in its sandbox.

        `cwd` is absolute and real, `sandbox_policy` resolved. With `tty` its stdin is a terminal,
        which becomes its controlling one. The sandbox ends with the thread that started it. Call
        `started` and `close` of the result.
        Blocks: call it in a worker thread.

        Raises:
            SandboxUnavailable: it cannot be confined here; nothing was started.
        """
        return self.sandbox().wrap(command, cwd, sandbox_policy, tty=tty)

    def sandbox(self) -> Sandbox:
        """Return the sandbox that works here; blocks.

        Raises:
            SandboxUnavailable: nothing does.
        """
        with self._choosing:
            if self._sandbox is None:
                self._sandbox = _find(self._records)
            return self._sandbox


def _find(records: PlaceholderRecords | None) -> Sandbox:
    failures = []
    for sandbox in _candidates(records):
        probe = sandbox.wrap(("/bin/sh", "-c", ":"), "/", PROBE, tty=False)
        try:
            failure = failure_of(probe.argv, probe.pass_fds)
        finally:
            probe.close()
        if failure is None:
            return sandbox
        failures.append(f"{sandbox.program}: {failure}")
    raise unavailable(failures)


def _candidates(records: PlaceholderRecords | None) -> Sequence[Sandbox]:
    if sys.platform == "linux":
        return [Bubblewrap(program, records) for program in bubblewraps()]
    return [SandboxExec(PROGRAM)] if sys.platform == "darwin" else []
