"""Entry point of `app-server`: chooses the program, so that each imports its own modules.

Agents start a receiver with every thread, and editors `acp`: the server would be most of what they
import.
"""

import gc
import importlib
import sys
from types import ModuleType

from app_server import VERSION
from app_server.runtime.standard_streams import standard_streams

PROGRAMS = {"receiver": "app_server.clients.receiver.cli", "acp": "app_server.cli.acp"}
"""By their first word; every other one is the server's."""


def main() -> int:
    """Run the program that the first word names; returns its exit status."""
    words = sys.argv[1:]
    while words[:1] == ["help"]:
        # Of a command, or of one of its own: `help mcp add` is `mcp add --help`.
        words = [*words[1:], "--help"]
    with standard_streams("app-server") as end:
        if words == ["--version"]:
            # Editors ask for it before they start a server.
            print(f"app-server {VERSION}")
        else:
            name = PROGRAMS.get(words[0]) if words else None
            program = _imported(name or "app_server.cli.serve")
            end.status = program.main(words if name is None else words[1:])
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
