"""Figures of starts with files, which PostgreSQL must not make slower."""

import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

from tests.bench.scale.options import Options
from tests.bench.threads.store import measure_start

STARTS = 9


async def measure_starts(options: Options) -> None:
    """Start a server with files: until `/readyz` answers, and which of psycopg it imports."""
    with tempfile.TemporaryDirectory() as home:
        taken_ms = [measure_start(Path(home)) for _ in range(STARTS)]
        imported = _imported(Path(home))
    print(f"median {statistics.median(taken_ms):.0f} ms, best {min(taken_ms):.0f} ms")
    print(f"modules of psycopg that the server imports: {imported}")


def _imported(home: Path) -> int:
    found = subprocess.run(
        [sys.executable, "-c", _IMPORTED, home], capture_output=True, text=True, check=True
    )
    return int(found.stdout)


_IMPORTED = """
import anyio, sys
from pathlib import Path
import app_server.server.core
from app_server.threads.opening.stores import open_stores
anyio.run(open_stores, Path(sys.argv[1]))
print(sum(name.startswith("psycopg") for name in sys.modules))
"""
