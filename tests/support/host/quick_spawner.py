"""A spawner that waits less between SIGTERM and SIGKILL: for tests of what is left, not of when.

A program: servers start it instead of app_server/host/commands/spawner.py, without this package.
"""

import runpy
from pathlib import Path

QUICK_SPAWNER = Path(__file__)
TERMINATE_S = 0.2
SPAWNER = Path(__file__).parents[3] / "app_server" / "host" / "commands" / "spawner.py"

if __name__ == "__main__":
    run = runpy.run_path(str(SPAWNER))["main"]
    run.__globals__["TERMINATE_S"] = TERMINATE_S
    run()
