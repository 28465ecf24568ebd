"""The rules of a home: read again whenever a file has changed, and added to when a user says so.

Source: docs/tools.md, "Approvals and rules".
"""

import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypeAlias

import anyio
import anyio.to_thread
from pydantic_core import to_json

from app_server.permissions.network.policy import NetworkRule
from app_server.permissions.rules.amendment import is_writable
from app_server.permissions.rules.files import (
    MAX_FILE_BYTES,
    NETWORK_PROTOCOLS,
    BrokenRules,
    parse_rules,
    read_rules,
    read_text,
)
from app_server.permissions.rules.rule import PrefixRule, Rules
from app_server.runtime.files.secret import StoreFailed, lock_held, write_private

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
    """Return what changes when a file does; a folder that cannot be read is empty."""
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
