"""Entry point of `app-server`: chooses the program, so that each imports its own modules.

Agents start a receiver with every thread; the server would be most of what it imports.
"""

import gc
import importlib
import sys
from types import ModuleType

from app_server import VERSION
from app_server.runtime.standard_streams import standard_streams

RECEIVER = "receiver"


def main() -> int:
    """Run the program that the first word names; returns its exit status."""
    words = sys.argv[1:]
    with standard_streams("app-server") as end:
        if words == ["--version"]:
            # Editors ask for it before they start a server.
            print(f"app-server {VERSION}")
        else:
            is_receiver = words[:1] == [RECEIVER]
            program = _imported(
                "app_server.clients.receiver.cli" if is_receiver else "app_server.cli.serve"
            )
            end.status = program.main(words[1:] if is_receiver else words)
    return end.status


def _imported(program: str) -> ModuleType:
    # What is imported stays, so looking for garbage meanwhile finds none: a seventh of a start.
    gc.disable()
    try:
        return importlib.import_module(program)
    finally:
        gc.freeze()
        gc.enable()


if __name__ == "__main__":
    sys.exit(main())
