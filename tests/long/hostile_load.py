"""What hostile frames of full size do to a server process.

python -m tests.long.hostile_load [--mib N] [--url ws://127.0.0.1:PORT [--pid PID]]

Sends every frame of `tests/support/wire/hostile_frames.py`, N MiB each (63 unless told otherwise),
to a server of its own or to the given one, and prints the longest answer to `GET /readyz`
meanwhile, the memory of the server (Linux), and how long the answer took. The exit status is 1 if a
frame had no answer, another than it should, or a longer one than MAX_REFUSAL, or if /readyz took
longer than READYZ_S.
"""

import argparse
import asyncio
import multiprocessing
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.support.wire.hostile_frames import (
    AFTER_INITIALIZE,
    ANSWER_S,
    BEFORE_INITIALIZE,
    Frame,
    complaint,
    connected,
    send,
)

READYZ_S = 2.0


class Readyz:
    """Asks for /readyz all the time, from a process of its own."""

    def __init__(self, url: str) -> None:
        context = multiprocessing.get_context("spawn")
        self._longest = context.Value("d", 0.0)
        address = url.replace("ws://", "http://") + "/readyz"
        self._process = context.Process(target=_poll, args=(address, self._longest), daemon=True)
        self._process.start()

    def take(self) -> float:
        """Return the seconds of the longest answer since the last call, and forget it."""
        with self._longest.get_lock():
            longest: float = self._longest.value
            self._longest.value = 0.0
        return longest

    def close(self) -> None:
        """End the other process."""
        self._process.terminate()
        self._process.join()


def _poll(address: str, longest: Any) -> None:
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    while True:
        began = time.monotonic()
        with opener.open(address, timeout=ANSWER_S) as response:
            response.read()
        took = time.monotonic() - began
        with longest.get_lock():
            longest.value = max(longest.value, took)
        time.sleep(0.005)


@contextmanager
def own_server() -> Iterator[tuple[str, int]]:
    """Run a server with an empty home; give its address and process id."""
    with tempfile.TemporaryDirectory() as home:
        server = subprocess.Popen(
            [Path(sys.executable).parent / "app-server", "--listen", "ws://127.0.0.1:0"],
            env={**os.environ, "APP_SERVER_HOME": home},
            stderr=subprocess.PIPE,
            text=True,
        )
        assert server.stderr is not None
        try:
            while not (found := re.search(r"ws://\S+", line := server.stderr.readline())):
                if not line:
                    raise RuntimeError("the server has not started")
            yield found[0], server.pid
        finally:
            server.send_signal(signal.SIGTERM)
            server.communicate()


def memory(pid: int | None, key: str) -> int:
    """Return a figure of /proc/PID/status in MiB; 0 without a process."""
    if pid is None:
        return 0
    found = re.search(rf"{key}:\s+(\d+) kB", Path(f"/proc/{pid}/status").read_text())
    return int(found[1]) // 1024 if found else 0


async def measure(url: str, pid: int | None, size: int) -> bool:
    """Send all frames and print a line for each; return whether all went as it should."""
    readyz = Readyz(url)
    fine = True
    try:
        while readyz.take() == 0.0:
            await asyncio.sleep(0.05)
        print(f"{'frame':26}{'readyz ms':>10}{'answer ms':>10}{'RSS MiB':>9}{'peak':>6}")
        for initialized, frames in ((False, BEFORE_INITIALIZE), (True, AFTER_INITIALIZE)):
            for frame in frames:
                fine &= await _measure_one(url, pid, frame, size, readyz, initialized=initialized)
    finally:
        readyz.close()
    return fine


async def _measure_one(
    url: str, pid: int | None, frame: Frame, size: int, readyz: Readyz, *, initialized: bool
) -> bool:
    text = frame.text(size)
    async with connected(url, initialized=initialized) as socket:
        readyz.take()
        outcome = await send(socket, text)
        # The request for /readyz that was under way must have ended too.
        await asyncio.sleep(0.02)
    waited = readyz.take()
    problem = complaint(frame, outcome)
    if waited > READYZ_S:
        problem = f"{problem or ''} readyz took too long"
    print(
        f"{frame.name:26}{waited * 1000:10.0f}{outcome.took_s * 1000:10.0f}"
        f"{memory(pid, 'VmRSS'):9}{memory(pid, 'VmHWM'):6}  {problem or ''}",
        flush=True,
    )
    return problem is None


def main() -> int:
    """Run the command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--mib", type=float, default=63)
    parser.add_argument("--url")
    parser.add_argument("--pid", type=int)
    options = parser.parse_args()
    size = int(options.mib * 1024 * 1024)
    if options.url:
        return 0 if asyncio.run(measure(options.url, options.pid, size)) else 1
    with own_server() as (url, pid):
        return 0 if asyncio.run(measure(url, pid, size)) else 1


if __name__ == "__main__":
    sys.exit(main())
