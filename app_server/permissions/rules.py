"""Rules of the user about commands: matched, offered, read from files, learned.

From top to bottom: a rule, and which of several holds; the rule that a user may be offered; files
of rules, read as values and never run; the rules of a home, read again whenever a file has changed,
and added to when a user says so. A file is in the syntax of Starlark that Codex reads, so that both
read the same files: `prefix_rule(pattern=["git", ["pull", "fetch"]], decision="allow")`. Rules
about hosts are kept beside those about commands, as the same files have both.
Source: docs/tools.md, "Approvals and rules"; https://github.com/bazelbuild/starlark.
"""

import ast
import os
import shlex
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any, Literal, TypeAlias

import anyio
import anyio.to_thread
from pydantic_core import to_json

from app_server.permissions.commands.dangerous import danger_of_words
from app_server.permissions.commands.wrappers import RUNS_INLINE_CODE, base_name, is_wrapper
from app_server.permissions.network import BadHost, NetworkRule, plain_host
from app_server.permissions.shell.options import option_names
from app_server.permissions.shell.script import Command
from app_server.runtime.files.secret import StoreFailed, lock_held, write_private

RuleDecision: TypeAlias = Literal["allow", "prompt", "forbidden"]

_STRICTNESS: tuple[RuleDecision, ...] = ("allow", "prompt", "forbidden")

_SYSTEM_FOLDERS = ("/bin", "/usr/bin")


@dataclass(frozen=True, slots=True)
class PrefixRule:
    """Decision on commands that begin with certain words."""

    pattern: tuple[tuple[str, ...], ...]
    """For each word the texts that it may have; neither is empty."""
    decision: RuleDecision = "allow"
    justification: str | None = None
    """Why; shown to users and models."""

    def matches(self, words: Sequence[str]) -> bool:
        """Whether a command begins with the pattern."""
        if len(words) < len(self.pattern):
            return False
        return all(word in texts for word, texts in zip(words, self.pattern, strict=False))

    def shown(self) -> str:
        """Return the words, with all texts of each."""
        return " ".join("|".join(texts) for texts in self.pattern)


@dataclass(frozen=True, slots=True)
class HostExecutable:
    """Paths at which a program counts as the one that rules name."""

    name: str
    paths: tuple[str, ...]
    """Absolute; none: it counts nowhere."""


@dataclass(frozen=True, slots=True)
class Rules:
    """All rules that hold for a thread."""

    prefixes: tuple[PrefixRule, ...] = ()
    networks: tuple[NetworkRule, ...] = ()
    executables: tuple[HostExecutable, ...] = ()
    """Of several for one name the last counts."""

    def of(self, words: Sequence[str]) -> PrefixRule | None:
        """Return the strictest rule for a command; None if there is none for it.

        A program that is named by its path is known by its name too. Wherever it is, rules forbid
        it or want somebody to be asked; they allow it where `host_executable` says that it is, or
        if nothing does, in the folders of the system: `/usr/bin/git` is `git`.
        """
        return strictest(rule for rule in self.prefixes if self._matches(rule, words))

    def joined(self, other: "Rules") -> "Rules":
        """Return both; the other's come last."""
        return Rules(
            (*self.prefixes, *other.prefixes),
            (*self.networks, *other.networks),
            (*self.executables, *other.executables),
        )

    @property
    def count(self) -> int:
        """Number of rules, of all kinds."""
        return len(self.prefixes) + len(self.networks) + len(self.executables)

    def _matches(self, rule: PrefixRule, words: Sequence[str]) -> bool:
        if rule.matches(words):
            return True
        program = PurePosixPath(words[0])
        if not program.is_absolute():
            return False
        if rule.decision == "allow" and not self._is_where_it_should(program):
            return False
        return rule.matches([program.name, *words[1:]])

    def _is_where_it_should(self, program: PurePosixPath) -> bool:
        said = [one.paths for one in self.executables if one.name == program.name]
        return str(program) in said[-1] if said else str(program.parent) in _SYSTEM_FOLDERS


def strictest(rules: Iterable[PrefixRule]) -> PrefixRule | None:
    """Return the strictest of some rules, the first of equals; None if there are none."""
    return max(rules, key=lambda rule: _STRICTNESS.index(rule.decision), default=None)


MAX_WORDS = 64
MAX_RULE_BYTES = 4_096
"""Of UTF-8, all words together."""

_WITH_SUBCOMMANDS = option_names(
    "git hg svn docker podman kubectl helm npm npx pnpm pnpx yarn bunx uv uvx pip pip3 pipx poetry "
    "cargo go gh glab aws gcloud az terraform systemctl apt apt-get brew ssh"
)
"""Alone, their name says nothing of what they do."""

_TAKES_CODE = option_names("eval exec source . awk gawk mawk")
"""Their first argument is code, or whatever else may be run."""


def proposed(asking: Sequence[Command], wanted: Sequence[str] | None) -> tuple[str, ...] | None:
    """Return the words of a rule; None if none should be offered.

    `asking` are the commands of a script that would be asked about, and `wanted` is what the model
    would like. There is none for several commands, for one that is dangerous, or for one that runs
    whatever its arguments say.
    """
    if len(asking) != 1 or any(word.is_pattern for word in asking[0].words):
        return None
    words = asking[0].texts
    for candidate in (tuple(wanted or ()), words):
        if candidate and words[: len(candidate)] == candidate and _is_narrow(candidate):
            return candidate
    return None


def is_writable(words: Sequence[str]) -> bool:
    """Whether a rule of these words may be written at all."""
    try:
        size = len("".join(words).encode())
    except UnicodeEncodeError:
        return False
    return 0 < len(words) <= MAX_WORDS and all(words) and size <= MAX_RULE_BYTES


def _is_narrow(words: Sequence[str]) -> bool:
    if not is_writable(words) or is_wrapper(words) or danger_of_words(words) is not None:
        return False
    name = base_name(words[0])
    if name in _WITH_SUBCOMMANDS and (len(words) == 1 or words[1].startswith("-")):
        return False
    if name in _TAKES_CODE:
        return False
    return name not in RUNS_INLINE_CODE or _names_its_code(words[1:])


def _names_its_code(arguments: Sequence[str]) -> bool:
    """Whether the first argument of an interpreter is a file, or `-m` before a module."""
    match arguments:
        case ["-m", module, *_]:
            return bool(module)
        case [file, *_]:
            return not file.startswith("-") and not any(char.isspace() for char in file)
    return False


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


LEARNED = "default.rules"
"""The file that is added to."""

LOCK = ".lock"
LOCK_S = 10.0
"""For another server to finish its write; a write takes milliseconds."""

_WORDS = {"allow": "allow", "prompt": "prompt", "forbidden": "deny"}
"""Decisions about hosts, as files have them."""

_Stamp: TypeAlias = tuple[tuple[str, int, int, int], ...]


class NotLearned(Exception):
    """A rule was not written down; the text says why."""


class RuleBook:
    """The files in `<home>/rules`."""

    def __init__(
        self,
        home: Path | None = None,
        on_broken: Callable[[BrokenRules], None] = lambda _: None,
    ) -> None:
        """`on_broken` is called with each broken file, once for each of its states.

        Without a home there are no rules, and none are learned.
        """
        self._folder = None if home is None else home / "rules"
        self._on_broken = on_broken
        self._stamp: _Stamp | None = None
        self._rules = Rules()
        self._broken: list[BrokenRules] = []
        self._reading = anyio.Lock()

    async def current(self) -> Rules:
        """Return the rules as the files have them now."""
        if self._folder is None:
            return self._rules
        async with self._reading:
            stamp = await anyio.to_thread.run_sync(_stamp_of, self._folder)
            if stamp != self._stamp:
                self._rules, self._broken = await anyio.to_thread.run_sync(read_rules, self._folder)
                self._stamp = stamp
                for file in self._broken:
                    self._on_broken(file)
            return self._rules

    async def broken_before(self) -> list[BrokenRules]:
        """Return the files that are broken, and that `on_broken` was called with before this call.

        So whoever comes now can be sent what it has missed; it is sent all else with the others.
        """
        before = self._broken
        await self.current()
        return [file for file in self._broken if file in before]

    async def learn(self, words: Sequence[str]) -> None:
        """Write down that commands which begin with these words run without a question.

        Cancelling waits for a write that has begun.

        Raises:
            NotLearned: they make no rule, or the file cannot be read or written; it is as it was.
        """
        if not is_writable(words):
            raise NotLearned("the rule has no words, an empty one, or too many")
        learned = PrefixRule(tuple((word,) for word in words))
        # Texts of JSON are texts of Starlark.
        call = f'prefix_rule(pattern=[{", ".join(map(_text, words))}], decision="allow")'
        await self._write(call, learned)

    async def learn_network(self, rule: NetworkRule) -> None:
        """Write a rule about a host down; otherwise as `learn`.

        Raises:
            NotLearned: the file cannot be read or written; it is as it was.
        """
        protocol = next(name for name, said in NETWORK_PROTOCOLS.items() if said == rule.protocol)
        said = {"host": rule.host, "protocol": protocol, "decision": _WORDS[rule.decision]}
        if rule.justification is not None:
            said["justification"] = rule.justification
        call = f"network_rule({', '.join(f'{name}={_text(said[name])}' for name in said)})"
        await self._write(call, rule)

    async def _write(self, call: str, rule: PrefixRule | NetworkRule) -> None:
        if self._folder is None:
            raise NotLearned("there is no home folder")
        try:
            await anyio.to_thread.run_sync(_add, self._folder, call, rule)
        except (BrokenRules, StoreFailed) as exc:
            raise NotLearned(str(exc)) from exc


def _stamp_of(folder: Path) -> _Stamp:
    """Return a stamp that changes with the file; an unreadable folder counts as empty."""
    found = []
    try:
        with os.scandir(folder) as entries:
            for entry in entries:
                if entry.name.endswith(".rules"):
                    status = entry.stat()
                    stamp = entry.name, status.st_mtime_ns, status.st_size, status.st_ino
                    found.append(stamp)
    except OSError:
        return ()
    return tuple(sorted(found))


def _add(folder: Path, call: str, rule: PrefixRule | NetworkRule) -> None:
    """Append the call of a rule, unless the file has the rule."""
    # A link stays a link: what it leads to is replaced.
    path = Path(os.path.realpath(folder / LEARNED))
    with lock_held(folder / LOCK, LOCK_S):
        text = read_text(path)
        rules = parse_rules(path, text)
        if rule in (*rules.prefixes, *rules.networks):
            return
        if text and not text.endswith("\n"):
            text += "\n"
        content = f"{text}{call}\n"
        if len(content.encode()) > MAX_FILE_BYTES:
            raise BrokenRules(path, None, f"it would be larger than {MAX_FILE_BYTES} bytes")
        write_private(path, content.encode())


def _text(value: str) -> str:
    return to_json(value).decode()
