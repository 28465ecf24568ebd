"""What a sandbox costs a command: `true` with and without, one after the other.

python -m tests.bench.sandbox [--rounds N]

From the order to the end that is known here, in ms. Wanted: at most 15 ms more at p50 on a machine
that has nothing else to do. These are figures to look at, not tests.
"""

import argparse
import asyncio
import os
import statistics
import tempfile
import time
from dataclasses import replace
from pathlib import Path

from app_server.host.commands.local_commands import CommandLaunch, LocalCommands
from app_server.permissions.network import NetworkPolicy
from app_server.permissions.sandbox.policy import (
    UNRESTRICTED,
    EffectivePolicy,
    effective_policy_for,
)
from app_server.permissions.sandbox.roots import read_machine_paths
from protocol.turns.policy import ReadOnlySandboxPolicy, WorkspaceWriteSandboxPolicy


async def main(rounds: int) -> None:
    """Measure every case, in turns, so that all of them meet the same machine."""
    with tempfile.TemporaryDirectory() as folder:
        places = read_machine_paths(str(Path(folder, "home")))
        workspace = effective_policy_for(WorkspaceWriteSandboxPolicy(), [folder], places)
        cases = {
            "bare": UNRESTRICTED,
            "read-only": effective_policy_for(ReadOnlySandboxPolicy(), [folder], places),
            "workspace": workspace,
            "workspace, proxy": replace(workspace, proxy=NetworkPolicy()),
            "workspace, network": effective_policy_for(
                WorkspaceWriteSandboxPolicy(network_access=True), [folder], places
            ),
        }
        took: dict[str, list[float]] = {name: [] for name in cases}
        machine = LocalCommands()
        try:
            for number in range(rounds + 2):
                for name, sandbox_policy in cases.items():
                    one = await measured(machine, folder, sandbox_policy)
                    if number >= 2:
                        took[name].append(one)
        finally:
            await machine.aclose()
    bare = statistics.median(took["bare"])
    print(f"{os.cpu_count()} processors, load {os.getloadavg()[0]:.1f}, {rounds} rounds; ms")
    for name, times in took.items():
        p50, p90 = statistics.median(times), statistics.quantiles(times, n=10)[-1]
        print(
            f"{name:20} best {min(times):6.1f}  p50 {p50:6.1f}  p90 {p90:6.1f}  "
            f"over bare {p50 - bare:+6.1f}"
        )


async def measured(machine: LocalCommands, folder: str, sandbox_policy: EffectivePolicy) -> float:
    """Run `true` once."""
    launch = CommandLaunch(argv=("true",), env={"PATH": os.defpath}, cwd=folder)
    began = time.perf_counter()
    running = await machine.start(launch, sandbox_policy, lambda stream, data: None)
    await running.finished.wait()
    took = 1000 * (time.perf_counter() - began)
    assert running.returncode == 0
    await running.gone.wait()
    return took


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=50, help="of each case (default: 50)")
    asyncio.run(main(parser.parse_args().rounds))
