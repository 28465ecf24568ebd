"""Files of rules: calls with literal values, read as values and never run.

A file is in the syntax of Starlark that Codex reads, so that both read the same files:
`prefix_rule(pattern=["git", ["pull", "fetch"]], decision="allow")`.
Source: docs/tools.md, "Approvals and rules"; https://github.com/bazelbuild/starlark.
"""

import ast
import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

from app_server.permissions.network.policy import NetworkRule
from app_server.permissions.network.target import BadHost, plain_host
from app_server.permissions.rules.rule import HostExecutable, PrefixRule, RuleDecision, Rules

NETWORK_PROTOCOLS = {
    "http": "http",
    "https": "https",
    "https_connect": "https",
    "http-connect": "https",
    "socks5_tcp": "socks5Tcp",
    "socks5_udp": "socks5Udp",
}
"""As files have them, and as the wire has them."""

_DECISIONS: tuple[RuleDecision, ...] = ("allow", "prompt", "forbidden")
_PARAMETERS = {
    "prefix_rule": ("pattern", "decision", "match", "not_match", "justification"),
    "network_rule": ("host", "protocol", "decision", "justification"),
    "host_executable": ("name", "paths"),
}

MAX_EXECUTABLE_PATHS = 64


class NoRule(Exception):
    """A call that is no rule; the text says why."""


@dataclass(frozen=True, slots=True)
class Example:
    """The words of a command that a rule has to match, or must not."""

    words: Sequence[str]
    is_matched: bool


@dataclass(frozen=True, slots=True)
class ReadCall:
    """Rule that a statement declares, with its examples; None for text alone."""

    rule: PrefixRule | NetworkRule | HostExecutable | None
    examples: Sequence[Example] = ()


def read_call(statement: ast.stmt) -> ReadCall:
    """Read a statement.

    Raises:
        NoRule
    """
    call = statement.value if isinstance(statement, ast.Expr) else None
    if isinstance(call, ast.Constant) and isinstance(call.value, str):
        return ReadCall(None)
    if not isinstance(call, ast.Call) or not isinstance(call.func, ast.Name):
        raise NoRule("only calls of prefix_rule with literal values are understood")
    name = call.func.id
    if name not in _PARAMETERS:
        raise NoRule(f"{name} is not known; only {', '.join(_PARAMETERS)} are")
    given = _given(call, name)
    if name == "network_rule":
        return ReadCall(_network_rule(given))
    if name == "host_executable":
        return ReadCall(_host_executable(given))
    rule = PrefixRule(
        _pattern(given.get("pattern")),
        _decision(given.get("decision", "allow")),
        _justification(given),
    )
    wanted = [Example(words, True) for words in _examples("match", given)]
    unwanted = [Example(words, False) for words in _examples("not_match", given)]
    return ReadCall(rule, [*wanted, *unwanted])


def _given(call: ast.Call, function: str) -> dict[str, Any]:
    given: dict[str, Any] = {}
    parameters = _PARAMETERS[function]
    if len(call.args) > len(parameters):
        raise NoRule(f"{function}: too many values")
    named = [*zip(parameters, call.args, strict=False)]
    named += [(keyword.arg or "**", keyword.value) for keyword in call.keywords]
    for name, value in named:
        if name not in parameters:
            raise NoRule(f"{name}: {function} knows {', '.join(parameters)}")
        if name in given:
            raise NoRule(f"{name}: is given twice")
        try:
            given[name] = ast.literal_eval(value)
        except (ValueError, TypeError, MemoryError, RecursionError) as exc:
            raise NoRule(f"{name}: must be a literal value") from exc
    return given


def _network_rule(given: dict[str, Any]) -> NetworkRule:
    host, protocol = given.get("host"), given.get("protocol")
    if not isinstance(host, str):
        raise NoRule("host: must be a text")
    try:
        plain = plain_host(_without_port(host))
    except BadHost as exc:
        raise NoRule(f"host: {exc}") from exc
    if not isinstance(protocol, str) or protocol not in NETWORK_PROTOCOLS:
        raise NoRule("protocol: must be one of http, https, socks5_tcp, socks5_udp")
    decision = given.get("decision")
    return NetworkRule(
        plain,
        NETWORK_PROTOCOLS[protocol],
        _decision("forbidden" if decision == "deny" else decision),
        _justification(given),
    )


def _without_port(host: str) -> str:
    """Take a port away: Codex reads such hosts, and its rules are for every port."""
    name, colon, port = host.strip().rpartition(":")
    return name if colon and port.isdecimal() and (":" not in name or "]" in name) else host


def _host_executable(given: dict[str, Any]) -> HostExecutable:
    name, paths = given.get("name"), given.get("paths")
    if not isinstance(name, str) or not name or PurePosixPath(name).name != name:
        raise NoRule("name: must be the name of a program, without a folder")
    if not isinstance(paths, list) or not all(isinstance(path, str) for path in paths):
        raise NoRule("paths: must be a list of texts")
    if len(paths) > MAX_EXECUTABLE_PATHS:
        raise NoRule(f"paths: must be at most {MAX_EXECUTABLE_PATHS}")
    for path in paths:
        if not path.startswith("/") or PurePosixPath(path).name != name:
            raise NoRule(f"paths: {path!r} must be absolute, and end with `{name}`")
    return HostExecutable(name, tuple(dict.fromkeys(paths)))


def _decision(value: object) -> RuleDecision:
    for decision in _DECISIONS:
        if value == decision:
            return decision
    raise NoRule(f"decision: must be one of {', '.join(_DECISIONS)}")


def _justification(given: dict[str, Any]) -> str | None:
    value = given.get("justification")
    if value is None or (isinstance(value, str) and value.strip()):
        return value
    raise NoRule("justification: must be a text that is not empty")


def _pattern(value: object) -> tuple[tuple[str, ...], ...]:
    if not isinstance(value, list) or not value:
        raise NoRule("pattern: must be a list that is not empty")
    return tuple(map(_texts, value))


def _texts(value: object) -> tuple[str, ...]:
    texts = value if isinstance(value, list) else [value]
    if not texts or not all(isinstance(text, str) for text in texts):
        raise NoRule("pattern: each part must be a text, or a list of texts that is not empty")
    return tuple(texts)


def _examples(name: str, given: dict[str, Any]) -> list[Sequence[str]]:
    value = given.get(name, [])
    if not isinstance(value, list):
        raise NoRule(f"{name}: must be a list")
    return [_example(name, example) for example in value]


def _example(name: str, value: object) -> Sequence[str]:
    if isinstance(value, str):
        try:
            words = shlex.split(value)
        except ValueError as exc:
            raise NoRule(f"{name}: {value!r} is no command line") from exc
    elif isinstance(value, list) and all(isinstance(word, str) for word in value):
        words = value
    else:
        raise NoRule(f"{name}: each must be a command line, or a list of its words")
    if not words:
        raise NoRule(f"{name}: a command line must not be empty")
    return words


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
