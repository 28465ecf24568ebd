"""Tests give bounds to objects, and ask objects through what others have of them.

A constant that a test changes in its module counts for all objects of the process, and the test
still passes when the object does not read it any more. A private attribute is nobody's promise.
These numbers may only get smaller. What is left: bounds that would have to travel through several
layers to the object that they are of; those that a child program, a module without an object or a
whole process has; and ports and files of the machine.
"""

import ast
import re
from collections.abc import Iterator

from tests.support.paths import ROOT

MAX_PATCHED = 134
"""Calls of `setattr` of monkeypatch for a name in capitals."""

MAX_PRIVATE = 36
"""Attributes with a leading underscore of something else than `self`, `cls` and `super()`."""

NOT_PRIVATE = {"_exit", "_replace"}
"""Of `os` and of named tuples: they are documented."""

CONSTANT = re.compile(r"_?[A-Z][A-Z0-9_]*")


def nodes(words: str) -> Iterator[tuple[str, ast.AST]]:
    """Give every node of those files of the tests that a pattern is found in, with their paths."""
    for path in sorted((ROOT / "tests").rglob("*.py")):
        if re.search(words, source := path.read_text()):
            yield from ((str(path.relative_to(ROOT)), node) for node in ast.walk(ast.parse(source)))


def patched() -> Iterator[str]:
    """Give each constant that a test changes, as `FILE:LINE NAME`."""
    for path, node in nodes(r"\bsetattr\b"):
        match node:
            case ast.Call(func=ast.Attribute(attr="setattr"), args=args):
                names = [arg.value for arg in args[:2] if isinstance(arg, ast.Constant)]
                # Either "module.NAME", or an object and "NAME".
                name = next((str(one).rpartition(".")[2] for one in names), "")
                if CONSTANT.fullmatch(name):
                    yield f"{path}:{node.lineno} {name}"


def private() -> Iterator[str]:
    """Give each private attribute that a test uses, as `FILE:LINE NAME`."""
    for path, node in nodes(r"(?<!\bself)(?<!\bcls)\._[^_]"):
        match node:
            case ast.Attribute(
                value=ast.Name(id="self" | "cls") | ast.Call(func=ast.Name("super"))
            ):
                continue
            case ast.Attribute(attr=name) if re.match("_[^_]", name) and name not in NOT_PRIVATE:
                yield f"{path}:{node.lineno} {name}"


def test_no_more_constants_are_patched() -> None:
    found = list(patched())
    assert len(found) <= MAX_PATCHED, found


def test_no_more_private_attributes_are_used() -> None:
    found = list(private())
    assert len(found) <= MAX_PRIVATE, found
