"""From a shell script to values, by tree-sitter, which is loaded with the first script.

The grammar says where a word is, and its text is read a second time by the rules of the shell:
where the two do not agree, the text counts as not known. A script of usual length takes
microseconds.
Source: docs/tools.md, "Approvals and rules"; https://tree-sitter.github.io/tree-sitter/;
https://pubs.opengroup.org/onlinepubs/9799919799/utilities/V3_chap02.html.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from itertools import pairwise
from typing import TYPE_CHECKING

import anyio.to_thread

from app_server.permissions.shell.script import (
    MAX_COMMANDS,
    MAX_SCRIPT_BYTES,
    Command,
    Pipeline,
    Script,
    Word,
)
from app_server.runtime.loader import Lazy, load

if TYPE_CHECKING:
    from tree_sitter import Node, Parser


class ShellGrammar:
    """Makes parsers of bash, and reads scripts; one for a server."""

    def __init__(self) -> None:
        """Prepare; the grammar is loaded with the first script."""
        self._new_parser: Lazy[Callable[[], Parser]] = Lazy("the grammar of shell scripts", _load)

    async def parser(self) -> Parser:
        """Make a parser, for one task at a time.

        Raises:
            LoadFailed: the grammar cannot be loaded now.
        """
        return (await self._new_parser.get())()

    async def read(self, text: str) -> Script:
        """Take a script apart that is within the bounds; others are not read.

        Raises:
            LoadFailed: the grammar cannot be loaded now.
        """
        # A lone surrogate is no text that a shell could get.
        content = text.encode(errors="replace")
        if len(content) > MAX_SCRIPT_BYTES:
            return Script(text, None, is_read=False)
        parser = await self.parser()
        if len(content) <= MAX_INLINE_BYTES:
            return _read(parser, text, content)
        return await anyio.to_thread.run_sync(_read, parser, text, content)


def _bash() -> Callable[[], Parser]:
    import tree_sitter_bash
    from tree_sitter import Language, Parser

    return partial(Parser, Language(tree_sitter_bash.language()))


async def _load() -> Callable[[], Parser]:
    return await load(_bash)


_EXPANDS = re.compile(r"\$[A-Za-z0-9_{(\[@*#?$!-]")
_BRACES = re.compile(r"\{.*(?:,|\.\.).*\}", re.DOTALL)
_ENDS = frozenset(" \t\n;|&<>()")
_PATTERN = frozenset("*?[")
_ZSH_PATTERN = frozenset("^#{")


def read_word(source: str) -> Word:
    """Read a word; a part that is not known is shown without its quotes."""
    return _Reader(source).read()


class _Reader:
    def __init__(self, source: str) -> None:
        self._source = source
        self._at = 0
        self._text: list[str] = []
        self._unquoted: list[str] = []
        """Text in which the shell expands braces; quoted parts are left out of it."""
        self._is_literal = True
        self._is_pattern = False
        self._is_zsh_pattern = False

    def read(self) -> Word:
        if self._source.startswith("#"):
            self._is_literal = False
        while self._at < len(self._source):
            match self._source[self._at]:
                case "'":
                    self._single()
                case '"':
                    self._double()
                case "\\":
                    self._escape()
                case char:
                    self._plain(char)
        if _BRACES.search("".join(self._unquoted)):
            self._is_literal = False
        return Word("".join(self._text), self._is_literal, self._is_pattern, self._is_zsh_pattern)

    def _plain(self, char: str) -> None:
        if char in _ENDS or char == "`" or self._expands(quotes=True):
            self._is_literal = False
        if char in _PATTERN:
            self._is_pattern = True
        if char in _ZSH_PATTERN:
            self._is_zsh_pattern = True
        self._text.append(char)
        self._unquoted.append(char)
        self._at += 1

    def _expands(self, *, quotes: bool) -> bool:
        if _EXPANDS.match(self._source, self._at):
            return True
        return quotes and self._source[self._at : self._at + 2] in ("$'", '$"')

    def _escape(self) -> None:
        escaped = self._source[self._at + 1 : self._at + 2]
        # Lines that are joined within a word may make something else of it.
        if escaped in ("", "\n"):
            self._is_literal = False
        else:
            self._text.append(escaped)
        self._at += 2

    def _single(self) -> None:
        end = self._source.find("'", self._at + 1)
        if end < 0:
            self._is_literal = False
            end = len(self._source)
        self._text.append(self._source[self._at + 1 : end])
        self._at = end + 1

    def _double(self) -> None:
        self._at += 1
        while (char := self._source[self._at : self._at + 1]) != '"':
            following = self._source[self._at + 1 : self._at + 2]
            if not char:
                self._is_literal = False
                return
            if char == "\\" and following and following in '$`"\\':
                self._text.append(following)
                self._at += 2
                continue
            if char == "`" or (char == "\\" and following == "\n") or self._expands(quotes=False):
                self._is_literal = False
            self._text.append(char)
            self._at += 1
        self._at += 1


MAX_INLINE_BYTES = 512
"""Longer scripts are read in a worker thread."""

CHUNK_BYTES = 1_024
"""Bytes that the parser gets at a time."""

MAX_DEPTH = 50
"""Of the tree; a script that is nested deeper is not read."""

MAX_NODES = 10_000
"""Of the tree; a script that has more is not read."""

_SEPARATORS = frozenset({"&&", "||", ";", "\n"})
_BETWEEN_WORDS = re.compile(rb"(?:\\\n)*[ \t](?:[ \t]|\\\n)*")
_BETWEEN_COMMANDS = re.compile(rb"(?:[ \t\n]|\\\n)*")
_BEFORE_COMMENT = re.compile(rb"(?:.*[ \t;]|(?:.*[^\\])?\n|)", re.DOTALL)
_UNUSUAL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f]")


def _read(parser: Parser, text: str, content: bytes) -> Script:
    # Between two chunks other threads can run: the parser itself keeps them from it.
    tree = parser.parse(lambda at, _: content[at : at + CHUNK_BYTES])
    root = tree.root_node
    if _is_too_much(root):
        return Script(text, None, is_read=False)
    # Characters that the grammar may take for white space, and the shell does not.
    is_usual = not root.has_error and _UNUSUAL.search(text) is None
    plain = _plain(root, content) if is_usual else None
    return Script(
        text,
        plain or None,
        tuple(_mentioned(root)),
        writes=tuple(_writes(root)),
        forks=any(map(_forks, _descendants(root))),
    )


def _is_too_much(root: Node) -> bool:
    level, depth, nodes, commands = [root], 0, 0, 0
    while level:
        depth += 1
        nodes += len(level)
        commands += sum(node.type == "command" for node in level)
        if depth > MAX_DEPTH or nodes > MAX_NODES or commands > MAX_COMMANDS:
            return True
        level = [child for node in level for child in node.children]
    return False


def _text(node: Node) -> str:
    return (node.text or b"").decode(errors="replace")


def _descendants(node: Node) -> Iterator[Node]:
    """Go through a tree in the order of the text, the node itself first."""
    yield node
    for child in node.children:
        yield from _descendants(child)


# What is understood: words and what joins commands, nothing else.


def _plain(node: Node, content: bytes) -> tuple[Pipeline, ...] | None:
    match node.type:
        case "command":
            command = _plain_command(node, content)
            return None if command is None else (Pipeline((command,)),)
        case "pipeline":
            return _plain_pipeline(node, content)
        case "program" | "list" if _is_joined(node, content):
            found: list[Pipeline] = []
            for child in node.children:
                if not child.is_named:
                    if child.type not in _SEPARATORS:
                        return None
                elif child.type == "comment":
                    before = content[max(0, child.start_byte - 2) : child.start_byte]
                    if _BEFORE_COMMENT.fullmatch(before) is None:
                        return None
                else:
                    part = _plain(child, content)
                    if part is None:
                        return None
                    found.extend(part)
            return tuple(found)
    return None


def _plain_pipeline(node: Node, content: bytes) -> tuple[Pipeline, ...] | None:
    if not _is_joined(node, content):
        return None
    commands: list[Command] = []
    for child in node.children:
        if child.type == "command":
            command = _plain_command(child, content)
            if command is None:
                return None
            commands.append(command)
        elif child.type != "|":
            return None
    return (Pipeline(tuple(commands)),)


def _plain_command(node: Node, content: bytes) -> Command | None:
    command = _command(node)
    if command is None or not all(word.is_literal for word in command.words):
        return None
    if len(node.children) != len(command.words):
        return None
    # Where the grammar sees two words without a space between, the shell sees one.
    for before, after in pairwise(node.children):
        if _BETWEEN_WORDS.fullmatch(content, before.end_byte, after.start_byte) is None:
            return None
    return command


def _is_joined(node: Node, content: bytes) -> bool:
    """Whether there is only white space between the parts of a node."""
    at = node.start_byte
    for child in node.children:
        if _BETWEEN_COMMANDS.fullmatch(content, at, child.start_byte) is None:
            return False
        at = child.end_byte
    return _BETWEEN_COMMANDS.fullmatch(content, at, node.end_byte) is not None


def _command(node: Node) -> Command | None:
    """Return a command as far as it is known; assignments before it are left out."""
    words = [
        read_word(_text(child))
        for number, child in enumerate(node.children)
        if node.field_name_for_child(number) in ("name", "argument")
    ]
    if not words:
        return None
    return Command(tuple(words), _text(node))


# What is mentioned.


def _commands_in(node: Node) -> Iterator[Command]:
    for found in _descendants(node):
        if found.type == "command" and (command := _command(found)) is not None:
            yield command


def _with_inner(node: Node) -> Command | None:
    command = _command(node)
    if command is None:
        return None
    return replace(command, inner=tuple(i for c in node.children for i in _commands_in(c)))


def _mentioned(root: Node) -> Iterator[Pipeline]:
    for node in _descendants(root):
        # What follows a here-document in its line is part of it for the grammar.
        if node.type in ("pipeline", "redirected_statement"):
            commands = tuple(_commands_in(node))
        elif node.type == "command" and (command := _with_inner(node)) is not None:
            commands = (command,)
        else:
            continue
        if commands:
            yield Pipeline(commands)


def _writes(root: Node) -> Iterator[str]:
    for node in _descendants(root):
        target = node.child_by_field_name("destination")
        if target is not None and any(">" in child.type for child in node.children):
            yield read_word(_text(target)).text


def _forks(node: Node) -> bool:
    """Whether a node defines a function that begins itself beside itself."""
    name, body = node.child_by_field_name("name"), node.child_by_field_name("body")
    if node.type != "function_definition" or name is None or body is None:
        return False
    calls = [c for c in _commands_in(body) if c.texts[0] == _text(name)]
    beside = any(inner.type in ("&", "|", "|&") for inner in _descendants(body))
    return bool(calls) and beside
