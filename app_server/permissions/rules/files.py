"""Files of rules: read as values, never run.

A file is a list of calls with literal values, in the syntax of Starlark that Codex reads, so that
both read the same files: `prefix_rule(pattern=["git", ["pull", "fetch"]], decision="allow")`.
Source: docs/tools.md, "Approvals and rules"; https://github.com/bazelbuild/starlark.
"""

import ast
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from app_server.permissions.rules.rule import PrefixRule, RuleDecision, Rules

MAX_FILE_BYTES = 1_048_576
MAX_FILES = 64
MAX_RULES = 10_000
"""In all files together."""

_DECISIONS: tuple[RuleDecision, ...] = ("allow", "prompt", "forbidden")
_PARAMETERS = ("pattern", "decision", "match", "not_match", "justification")
_OTHERS = ("network_rule", "host_executable")
"""Calls that Codex knows too, and that say nothing of commands."""


class BrokenRules(Exception):
    """A file of rules cannot be used; no rule of it holds."""

    def __init__(self, path: Path, line: int | None, problem: str) -> None:
        """`line` is from 1; None if the file as a whole is to blame."""
        place = "" if line is None else f":{line}"
        super().__init__(f"{path}{place}: {problem}")
        self.path = path
        self.line = line
        self.problem = problem


class _Problem(Exception):
    """A call that is no rule; the text says why."""


def parse_rules(path: Path, text: str) -> tuple[PrefixRule, ...]:
    """Read the text of a file.

    Raises:
        BrokenRules: it has anything but rules, or a rule that makes no sense.
    """
    try:
        module = ast.parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as exc:
        line = exc.lineno if isinstance(exc, SyntaxError) else None
        reason = exc.msg if isinstance(exc, SyntaxError) else "it cannot be read"
        raise BrokenRules(path, line, reason) from exc
    rules = []
    for statement in module.body:
        try:
            rule = _rule(statement)
        except _Problem as exc:
            raise BrokenRules(path, statement.lineno, str(exc)) from exc
        if rule is not None:
            rules.append(rule)
    return tuple(rules)


def _rule(statement: ast.stmt) -> PrefixRule | None:
    call = statement.value if isinstance(statement, ast.Expr) else None
    if isinstance(call, ast.Constant) and isinstance(call.value, str):
        return None
    if not isinstance(call, ast.Call) or not isinstance(call.func, ast.Name):
        raise _Problem("only calls of prefix_rule with literal values are understood")
    if call.func.id in _OTHERS:
        return None
    if call.func.id != "prefix_rule":
        raise _Problem(f"{call.func.id} is not known; only prefix_rule is")
    given = _given(call)
    pattern = _pattern(given.pop("pattern", None))
    decision = given.pop("decision", "allow")
    if decision not in _DECISIONS:
        raise _Problem(f"decision: must be one of {', '.join(_DECISIONS)}")
    justification = given.pop("justification", None)
    if justification is not None and not (isinstance(justification, str) and justification.strip()):
        raise _Problem("justification: must be a text that is not empty")
    rule = PrefixRule(pattern, decision, justification)
    for example in _examples("match", given):
        if not rule.matches(example):
            raise _Problem(f"match: {shlex.join(example)!r} is not matched by the pattern")
    for example in _examples("not_match", given):
        if rule.matches(example):
            raise _Problem(f"not_match: {shlex.join(example)!r} is matched by the pattern")
    return rule


def _given(call: ast.Call) -> dict[str, Any]:
    given: dict[str, Any] = {}
    if len(call.args) > len(_PARAMETERS):
        raise _Problem("prefix_rule: too many values")
    named = [*zip(_PARAMETERS, call.args, strict=False)]
    named += [(keyword.arg or "**", keyword.value) for keyword in call.keywords]
    for name, value in named:
        if name not in _PARAMETERS:
            raise _Problem(f"{name}: prefix_rule knows {', '.join(_PARAMETERS)}")
        if name in given:
            raise _Problem(f"{name}: is given twice")
        try:
            given[name] = ast.literal_eval(value)
        except (ValueError, TypeError, MemoryError, RecursionError) as exc:
            raise _Problem(f"{name}: must be a literal value") from exc
    return given


def _pattern(value: object) -> tuple[tuple[str, ...], ...]:
    if not isinstance(value, list) or not value:
        raise _Problem("pattern: must be a list that is not empty")
    return tuple(map(_texts, value))


def _texts(value: object) -> tuple[str, ...]:
    texts = value if isinstance(value, list) else [value]
    if not texts or not all(isinstance(text, str) for text in texts):
        raise _Problem("pattern: each part must be a text, or a list of texts that is not empty")
    return tuple(texts)


def _examples(name: str, given: dict[str, Any]) -> list[Sequence[str]]:
    value = given.get(name, [])
    if not isinstance(value, list):
        raise _Problem(f"{name}: must be a list")
    return [_example(name, example) for example in value]


def _example(name: str, value: object) -> Sequence[str]:
    if isinstance(value, str):
        try:
            words = shlex.split(value)
        except ValueError as exc:
            raise _Problem(f"{name}: {value!r} is no command line") from exc
    elif isinstance(value, list) and all(isinstance(word, str) for word in value):
        words = value
    else:
        raise _Problem(f"{name}: each must be a command line, or a list of its words")
    if not words:
        raise _Problem(f"{name}: a command line must not be empty")
    return words


def read_rules(folder: Path) -> tuple[Rules, list[BrokenRules]]:
    """Read all files `*.rules` of a folder, which need not be there, by their names.

    A file that is broken does not keep others from holding. Blocks.
    """
    rules: list[PrefixRule] = []
    broken: list[BrokenRules] = []
    try:
        paths = sorted(path for path in folder.iterdir() if path.suffix == ".rules")
    except (FileNotFoundError, NotADirectoryError):
        return Rules(), []
    except OSError as exc:
        return Rules(), [BrokenRules(folder, None, exc.strerror or "it cannot be read")]
    too_many = f"only {MAX_FILES} files of rules are read"
    broken += [BrokenRules(path, None, too_many) for path in paths[MAX_FILES:]]
    for path in paths[:MAX_FILES]:
        try:
            found = parse_rules(path, read_text(path))
            if len(rules) + len(found) > MAX_RULES:
                raise BrokenRules(path, None, f"there are more than {MAX_RULES} rules")
        except BrokenRules as exc:
            broken.append(exc)
        else:
            rules += found
    return Rules(tuple(rules)), broken


def read_text(path: Path) -> str:
    """Return the text of a file of rules; "" where there is none.

    Raises:
        BrokenRules: it cannot be read, is too large, or is no UTF-8.
    """
    try:
        with path.open("rb") as file:
            content = file.read(MAX_FILE_BYTES + 1)
        if len(content) > MAX_FILE_BYTES:
            raise BrokenRules(path, None, f"it is larger than {MAX_FILE_BYTES} bytes")
        return content.decode()
    except FileNotFoundError:
        return ""
    except OSError as exc:
        raise BrokenRules(path, None, exc.strerror or "it cannot be read") from exc
    except UnicodeDecodeError as exc:
        raise BrokenRules(path, None, "it is not UTF-8") from exc
