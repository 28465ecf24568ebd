"""A module is imported with an error in it. Nothing is written anywhere."""

import gc
import importlib.abc
import importlib.machinery
import importlib.util
import inspect
import os
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import CodeType, FunctionType, ModuleType

from tests.planted.errors import planted

ROOT = Path(__file__).parents[2]
HOOK = Path(__file__).parent / "hook"
PLANTED = "PLANTED_ERROR"
"""The variable that names an error: `app_server/patch/lines.py:17`, a file and a number in it."""


class WithError(importlib.machinery.SourceFileLoader):
    """The loader of the one module that has an error."""

    def __init__(self, fullname: str, path: str, number: int) -> None:
        super().__init__(fullname, path)
        self._number = number

    def get_code(self, fullname: str) -> CodeType:
        """Compile it each time: the bytecode of others does not have the error."""
        tree, _ = planted(Path(self.path).read_text(), self._number)
        return compile(tree, self.path, "exec", dont_inherit=True)


class Finder(importlib.abc.MetaPathFinder):
    """Finds that module before all others do."""

    def __init__(self, name: str) -> None:
        file, _, number = name.rpartition(":")
        self._path = str(ROOT / file)
        self._number = int(number)
        parts = Path(file).with_suffix("").parts
        self.module = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        """Find the module, and no other."""
        if fullname != self.module:
            return None
        loader = WithError(fullname, self._path, self._number)
        return importlib.util.spec_from_file_location(fullname, self._path, loader=loader)


def begin() -> None:
    """Let imports find the error that the environment names, if it names one."""
    if name := os.environ.get(PLANTED):
        sys.meta_path.insert(0, Finder(name))
    if os.environ.get("COVERAGE_PROCESS_START"):
        import coverage

        coverage.process_startup()


def change_functions(file: str, number: int) -> bool:
    """Put an error into the functions of a module, if it is imported already.

    Returns whether that could be done: not if the code has other variables than before, or if it
    is that of no function.
    """
    path = str(ROOT / file)
    source = Path(path).read_text()
    tree, _ = planted(source, number)
    old = list(_functions(compile(source, path, "exec", dont_inherit=True)))
    new = list(_functions(compile(tree, path, "exec", dont_inherit=True)))
    if len(old) != len(new):
        return False
    changed = {before: after for before, after in zip(old, new, strict=True) if before != after}
    # What is frozen is not among the objects.
    gc.unfreeze()
    done = False
    for found in gc.get_objects():
        if type(found) is FunctionType and found.__code__.co_filename == path:
            after = changed.get(found.__code__)
            if after is None:
                continue
            if after.co_freevars != found.__code__.co_freevars:
                return False
            found.__code__ = after
            done = True
    return done


def _functions(code: CodeType) -> Iterator[CodeType]:
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            if constant.co_flags & inspect.CO_OPTIMIZED:
                yield constant
            yield from _functions(constant)
