"""The demos without PostgreSQL over and over, beside processes that keep every core busy.

`python -m tests.long.demos` runs each 50 times and shows what a failing one said; the exit status
is 0 only if none failed.
"""

import argparse
import asyncio
import os
import sys
import tempfile
from collections import Counter
from collections.abc import Sequence

from tests.long.starts import all_cores_busy

TIMES = 50
AT_ONCE = 3
DEMOS: Sequence[tuple[str, ...]] = (
    ("demo",),
    ("demo", "--apps"),
    ("demo", "--signals"),
    ("demo", "--tools"),
)


async def run(words: Sequence[str], folder: str) -> str:
    """Run a demo; returns what it said if it failed, else nothing."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "app_server.cli.serve", *words),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
        env={**os.environ, "TMPDIR": folder},
    )
    said, _ = await process.communicate()
    return "" if process.returncode == 0 else f"{' '.join(words)}:\n{said.decode()}"


async def run_all(times: int, at_once: int) -> list[str]:
    """Run each demo some times; returns what failing ones said."""
    limit = asyncio.Semaphore(at_once)
    with tempfile.TemporaryDirectory() as folder:

        async def one(words: Sequence[str]) -> str:
            async with limit:
                return await run(words, folder)

        said = await asyncio.gather(*(one(words) for _ in range(times) for words in DEMOS))
    return [text for text in said if text]


def main() -> int:
    """Run them and say what failed."""
    parser = argparse.ArgumentParser(prog="python -m tests.long.demos")
    parser.add_argument("--times", type=int, default=TIMES)
    parser.add_argument("--at-once", type=int, default=AT_ONCE)
    options = parser.parse_args()
    with all_cores_busy():
        faults = asyncio.run(run_all(options.times, options.at_once))
    for fault in faults:
        print(fault)
    kinds = Counter(fault.partition(":")[0] for fault in faults)
    print(f"{len(faults)} of {options.times * len(DEMOS)} demos failed: {dict(kinds)}")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
