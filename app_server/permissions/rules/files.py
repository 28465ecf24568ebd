"""Files of rules: read as values, never run.

A file is a list of calls with literal values, in the syntax of Starlark that Codex reads, so that
both read the same files: `prefix_rule(pattern=["git", ["pull", "fetch"]], decision="allow")`.
Source: docs/tools.md, "Approvals and rules"; https://github.com/bazelbuild/starlark.
"""

import ast
import shlex
from pathlib import Path

from app_server.permissions.network.policy import NetworkRule
from app_server.permissions.rules.calls import Example, NoRule, read_call
from app_server.permissions.rules.rule import HostExecutable, PrefixRule, Rules

MAX_FILE_BYTES = 1_048_576
MAX_FILES = 64
MAX_RULES = 10_000
"""In all files together."""


class BrokenRules(Exception):
    """A file of rules cannot be used; no rule of it holds."""

    def __init__(self, path: Path, line: int | None, problem: str) -> None:
        """`line` is from 1; None if the file as a whole is to blame."""
        place = "" if line is None else f":{line}"
        super().__init__(f"{path}{place}: {problem}")
        self.path = path
        self.line = line
        self.problem = problem


def parse_rules(path: Path, text: str) -> Rules:
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
    prefixes: list[PrefixRule] = []
    networks: list[NetworkRule] = []
    executables: list[HostExecutable] = []
    examples: list[tuple[int, PrefixRule, Example]] = []
    for statement in module.body:
        try:
            read = read_call(statement)
        except NoRule as exc:
            raise BrokenRules(path, statement.lineno, str(exc)) from exc
        match read.rule:
            case PrefixRule() as rule:
                prefixes.append(rule)
                examples += [(statement.lineno, rule, example) for example in read.examples]
            case HostExecutable() as executable:
                executables.append(executable)
            case NetworkRule() as network:
                networks.append(network)
    rules = Rules(tuple(prefixes), tuple(networks), tuple(executables))
    for line, rule, example in examples:
        # Where programs may be is known once the whole file is.
        found = Rules((rule,), executables=rules.executables).of(example.words) is not None
        if found != example.is_matched:
            name, said = ("match", "is not") if example.is_matched else ("not_match", "is")
            shown = shlex.join(example.words)
            raise BrokenRules(path, line, f"{name}: {shown!r} {said} matched by the pattern")
    return rules


def read_rules(folder: Path) -> tuple[Rules, list[BrokenRules]]:
    """Read all files `*.rules` of a folder, which need not be there, by their names.

    A file that is broken does not keep others from holding. Blocks.
    """
    rules = Rules()
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
            if rules.count + found.count > MAX_RULES:
                raise BrokenRules(path, None, f"there are more than {MAX_RULES} rules")
        except BrokenRules as exc:
            broken.append(exc)
        else:
            rules = rules.joined(found)
    return rules, broken


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
