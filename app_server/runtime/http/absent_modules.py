"""Modules that HTTP libraries ask for, and that the server does without.

httpcore asks for sniffio seven times in each request, and it is not installed: each time Python
looks through every folder of `sys.path`, on the event loop. httpx imports its command line, and
with it rich and click, wherever they are installed: 90 modules and 40 ms. A None among the loaded
modules says at once that there is none, and both libraries go on without.
Source: https://docs.python.org/3/reference/import.html#the-module-cache
"""

import sys
from collections.abc import Sequence
from importlib.util import find_spec
from types import ModuleType

ASKED_FOR = ("sniffio",)
UNUSED = ("httpx._main",)


def note_absent(names: Sequence[str] = ASKED_FOR, unused: Sequence[str] = UNUSED) -> None:
    """Let imports of those that are not installed fail at once, as long as the process lives.

    The `unused` ones fail as well, unless they are imported already.
    """
    modules: dict[str, ModuleType | None] = sys.modules  # type: ignore[assignment]
    for name in names:
        if name not in modules and find_spec(name) is None:
            modules[name] = None
    for name in unused:
        modules.setdefault(name, None)
