"""A module is imported with an error in it. Nothing is written anywhere."""

import functools
import gc
import importlib.abc
import importlib.machinery
import importlib.util
import inspect
import os
import sys
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path
from types import CodeType, FunctionType, ModuleType
from typing import Any

from tests.planted.errors import planted

ROOT = Path(__file__).parents[2]
HOOK = Path(__file__).parent / "hook"
PLANTED = "PLANTED_ERROR"
"""The variable that names an error: `app_server/patch/plan.py:17`, a file and a number in it."""


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


def functions_of(files: Collection[str]) -> dict[str, list[FunctionType]]:
    """Return the functions of modules that are imported already, by their files."""
    found: dict[str, list[FunctionType]] = {file: [] for file in files}
    paths = {str(ROOT / file): file for file in files}
    # What is frozen is not among the objects.
    gc.unfreeze()
    for one in gc.get_objects():
        if type(one) is FunctionType and one.__code__.co_filename in paths:
            found[paths[one.__code__.co_filename]].append(one)
    return found


def caches() -> list[Any]:
    """Return the functions of this repository that remember what they returned."""
    remembering = type(functools.cache(len))
    found = [one for one in gc.get_objects() if isinstance(one, remembering)]
    return [one for one in found if str(one.__module__).startswith(("app_server", "protocol"))]


def change_functions(functions: Sequence[FunctionType], file: str, number: int) -> bool:
    """Put an error into functions of a file.

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
    done = False
    for function in functions:
        after = changed.get(function.__code__)
        if after is None:
            continue
        if after.co_freevars != function.__code__.co_freevars:
            return False
        function.__code__ = after
        done = True
    return done


def _functions(code: CodeType) -> Iterator[CodeType]:
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            if constant.co_flags & inspect.CO_OPTIMIZED:
                yield constant
            yield from _functions(constant)
