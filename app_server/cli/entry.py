"""Entry point of `app-server`: chooses the program, so that each imports its own modules.

Agents start a receiver with every thread; the server would be most of what it imports.
"""

import gc
import importlib
import sys

from app_server import VERSION
from app_server.runtime.standard_streams import run_program

RECEIVER = "receiver"


def main() -> int:
    """Run the program that the first word names; returns its exit status."""
    return run_program("app-server", _main)


def _main() -> int:
    words = sys.argv[1:]
    if words == ["--version"]:
        # Editors ask for it before they start a server.
        print(f"app-server {VERSION}")
        return 0
    is_receiver = words[:1] == [RECEIVER]
    # What is imported stays, so looking for garbage meanwhile finds none: a seventh of a start.
    gc.disable()
    try:
        program = importlib.import_module(
            "app_server.clients.receiver.cli" if is_receiver else "app_server.cli.serve"
        )
    finally:
        gc.freeze()
        gc.enable()
    status: int = program.main(words[1:] if is_receiver else words)
    return status


if __name__ == "__main__":
    sys.exit(main())
