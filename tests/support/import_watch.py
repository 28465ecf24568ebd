"""Runs a server and logs what it imports on which thread.

`python -m tests.support.import_watch FILE …`.

What stands behind FILE is for `app-server`. A line of FILE is the name of a thread, `before` or
`after` the listeners are open, and a module that was not there yet.
"""

import sys
import threading
from collections.abc import Sequence
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType
from typing import TextIO

from app_server.cli import serve as cli


class Watch:
    """A finder that finds nothing and writes down what was looked for."""

    def __init__(self, file: TextIO) -> None:
        self._file = file
        self.when = "before"

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        self._file.write(f"{threading.current_thread().name}\t{self.when}\t{name}\n")
        self._file.flush()
        return None


def main() -> int:
    """Run `app-server` with the other arguments."""
    watch = Watch(Path(sys.argv[1]).open("w"))  # noqa: SIM115
    say = cli.print_addresses

    def open_for_clients(urls: Sequence[str]) -> None:
        watch.when = "after"
        say(urls)

    cli.print_addresses = open_for_clients
    sys.meta_path.insert(0, watch)
    return cli.main(sys.argv[2:])


if __name__ == "__main__":
    sys.exit(main())
