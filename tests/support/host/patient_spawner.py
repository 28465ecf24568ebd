"""A spawner that waits for as long as a busy machine takes: for tests of what comes in the end.

A program, as tests/support/host/quick_spawner.py is.
"""

import runpy
from pathlib import Path

PATIENT_SPAWNER = Path(__file__)
PATIENCE_S = 60.0
SPAWNER = Path(__file__).parents[3] / "app_server" / "host" / "commands" / "spawner.py"

if __name__ == "__main__":
    run = runpy.run_path(str(SPAWNER))["main"]
    run.__globals__.update(TERMINATE_S=PATIENCE_S, TRAILING_S=PATIENCE_S)
    run()
