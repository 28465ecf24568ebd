"""Instructions that a server executes for a call. They hardly depend on what else the machine does.

python -m tests.bench.processor.instructions [TREE…] [--row TEXT] [--steps N]

A TREE is a folder with this repository (default: this one), so that a change can be compared with
the state before. Its server runs in valgrind's callgrind, some fifty times slower, and is counted
once it is warm. Rows are those of `app-server bench`; a slow row makes fewer steps. What the kernel
and other processes do is not counted, and a client finds so slow a server always busy: requests in
flight come in one or two reads. These are figures to look at, not tests.
"""

import argparse
import asyncio
import shlex
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from app_server.clients.bench.rows import ROWS, Row, Subject, converse
from app_server.peer.address import ServerAddress
from tests.bench.model import bench_model
from tests.bench.server import started
from tests.support.paths import ROOT

WARM_UP = 10
"""Steps before those that are counted."""


class InstructionCounter:
    """Counts the instructions of a process that runs in callgrind."""

    def __init__(self, pid: int, file: Path) -> None:
        self._pid = str(pid)
        self._file = file
        """Where callgrind writes; each dump has a number behind its name."""
        self._dumps = 0

    def begin(self) -> None:
        """Count from 0."""
        self._control("--zero")
        self._control("--instr=on")

    def end(self) -> int:
        """Return the instructions since `begin`."""
        self._control("--instr=off")
        self._control("--dump")
        self._dumps += 1
        lines = self._file.with_name(f"{self._file.name}.{self._dumps}").read_text().splitlines()
        return int(next(line.split()[1] for line in lines if line.startswith("totals:")))

    def _control(self, what: str) -> None:
        subprocess.run(["callgrind_control", what, self._pid], check=True, capture_output=True)


async def count(
    url: str, counter: InstructionCounter, config: dict[str, Any], rows: list[Row], steps: int
) -> None:
    """Print the instructions of a call of each row."""
    async with converse(ServerAddress(url)) as server:
        subject = Subject(url, server, config)
        await subject.prepare()
        for row in rows:
            for _ in range(WARM_UP):
                await row.step(subject)
            counted = max(steps // row.divisor, 1)
            counter.begin()
            for _ in range(counted):
                await row.step(subject)
            print(f"{row.name:32}{counter.end() / counted / row.calls:14,.0f}", flush=True)


def main() -> None:
    """Measure the trees one after another."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("trees", nargs="*", metavar="TREE", type=Path, default=[ROOT])
    parser.add_argument("--row", default="", help="only rows with this in their name")
    parser.add_argument("--steps", type=int, default=200, help="of each row (default: 200)")
    options = parser.parse_args()
    rows = [row for row in ROWS if options.row in row.name]
    for tree in options.trees:
        print(tree)
        with tempfile.TemporaryDirectory() as folder, bench_model() as config:
            file = Path(folder, "counted")
            callgrind = ["valgrind", "--tool=callgrind", "--instr-atstart=no"]
            server = [
                sys.executable,
                "-m",
                "app_server.cli.entry",
                "--listen",
                "ws://127.0.0.1:{port}",
            ]
            command = ["env", f"PYTHONPATH={tree.resolve()}", "PYTHONHASHSEED=0"]
            command += [*callgrind, f"--callgrind-out-file={file}", *server]
            with started(shlex.join(command), config, starts=1) as target:
                assert target.pid is not None
                asyncio.run(
                    count(
                        target.url,
                        InstructionCounter(target.pid, file),
                        config,
                        rows,
                        options.steps,
                    )
                )


if __name__ == "__main__":
    main()
