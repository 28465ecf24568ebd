"""Modules that libraries ask for again and again, and that are not installed.

httpcore asks for sniffio seven times in each request and does without. Each time Python looks
through every folder of `sys.path`, on the event loop. A None among the loaded modules says at once
that there is none.
Source: https://docs.python.org/3/reference/import.html#the-module-cache
"""

import sys
from collections.abc import Sequence
from importlib.util import find_spec
from types import ModuleType

ASKED_FOR = ("sniffio",)


def note_absent(names: Sequence[str] = ASKED_FOR) -> None:
    """Let imports of those that are not installed fail at once, as long as the process lives."""
    modules: dict[str, ModuleType | None] = sys.modules  # type: ignore[assignment]
    for name in names:
        if name not in modules and find_spec(name) is None:
            modules[name] = None
