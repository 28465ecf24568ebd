"""A patch that a model hands to a shell command instead of the tool that is there for it.

Two forms are known, each as the whole script: `apply_patch <<'EOF' … EOF` and
`cd FOLDER && apply_patch <<'EOF' … EOF`. The text of the here-document is taken as it stands, also
where the shell would put something else in the place of `$NAME`. What else is in the script makes
it a command like others.
Source: docs/tools.md, "Patches"; https://tree-sitter.github.io/tree-sitter/;
https://pubs.opengroup.org/onlinepubs/9799919799/utilities/V3_chap02.html, "Here-Document".
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from app_server.permissions.shell.parse import ShellGrammar, read_word

if TYPE_CHECKING:
    from tree_sitter import Node, Parser

MAX_FIRST_LINE = 8_192
"""Characters; what is longer is no patch."""

_NAMES = frozenset({"apply_patch", "applypatch"})


def may_be_patch(text: str) -> bool:
    """Whether a command, or the arguments that have it, may apply a patch; looks only for names."""
    return any(name in text for name in _NAMES)


@dataclass(frozen=True, slots=True)
class CommandPatch:
    """A patch in a command."""

    text: str
    folder: str | None = None
    """To which the command goes first, as it is named there; None: it goes nowhere."""


async def find_patch(grammar: ShellGrammar, script: str) -> CommandPatch | None:
    """Return the patch that a script is nothing but the application of; None if it is not.

    Raises:
        LoadFailed: the grammar cannot be loaded now.
    """
    first, _, rest = script.strip().partition("\n")
    if not rest or len(first) > MAX_FIRST_LINE or not may_be_patch(first):
        return None
    return _found(await grammar.parser(), first, rest)


def _found(parser: Parser, first: str, rest: str) -> CommandPatch | None:
    # Only the first line is read by the grammar: what follows is text, whatever it looks like.
    start = next(_of_type(parser.parse(f"{first}\n".encode()).root_node, "heredoc_start"), None)
    if start is None:
        return None
    end = read_word(_text(start)).text
    root = parser.parse(f"{first}\n{end}\n".encode()).root_node
    match root.children:
        case [statement] if statement.type == "redirected_statement" and not root.has_error:
            pass
        case _:
            return None
    match [(child.type, _text(child)) for child in _parts(statement.children[-1])]:
        case [(("<<" | "<<-") as mark, _), ("heredoc_start", _), ("heredoc_end", _)]:
            text = _until(rest.split("\n"), end, tabs=mark == "<<-")
        case _:
            return None
    folder = _command(statement.children[:-1])
    if text is None or folder is None:
        return None
    return CommandPatch(text, folder or None)


def _parts(redirect: Node) -> list[Node]:
    return [child for child in redirect.children if child.type != "heredoc_body"]


def _until(lines: list[str], end: str, *, tabs: bool) -> str | None:
    """Return the lines in front of the one that ends them, which must be the last of all."""
    if tabs:
        lines = [line.lstrip("\t") for line in lines]
    if end not in lines or lines.index(end) != len(lines) - 1:
        return None
    return "".join(f"{line}\n" for line in lines[:-1])


def _command(nodes: list[Node]) -> str | None:
    """Return the folder that a command goes to before it applies a patch; "" if it goes nowhere.

    None: the command does something else.
    """
    match nodes:
        case [node] if node.type == "command" and _text(node) in _NAMES:
            return ""
        case [node] if node.type == "list":
            return _behind_cd(node.children)
    return None


def _behind_cd(nodes: list[Node]) -> str | None:
    match [(node.type, _text(node)) for node in nodes]:
        case [("command", _), ("&&", _), ("command", name)] if name in _NAMES:
            words = [read_word(_text(child)) for child in nodes[0].children]
            if len(words) != 2 or words[0].text != "cd":
                return None
            folder = words[1]
            is_plain = folder.is_literal and not folder.is_pattern
            return folder.text if is_plain and folder.text[:1] not in ("", "~", "-") else None
    return None


def _of_type(root: Node, kind: str) -> Iterator[Node]:
    # A line may be nested deeper than Python's stack.
    waiting = [root]
    while waiting:
        node = waiting.pop()
        if node.type == kind:
            yield node
        waiting += reversed(node.children)


def _text(node: Node) -> str:
    return (node.text or b"").decode(errors="replace")
