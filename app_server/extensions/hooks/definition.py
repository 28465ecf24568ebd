"""One hook, as a file declares it.

Source: docs/hooks.md.
"""

import hashlib
import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, NamedTuple, TypeAlias, get_args


class Declaration(NamedTuple):
    """Hooks that a plugin declares in one place."""

    name: str
    """The place, as keys of hooks name it: a path below the plugin, or a member of its manifest."""
    file: Path
    hooks: Mapping[str, Any]
    """By event, as in the file."""


@dataclass(frozen=True, slots=True)
class HookedPlugin:
    """A plugin that may bring hooks."""

    id: str
    root: Path
    data: Path
    """A folder for what its hooks keep; it is not made for them."""
    read: Callable[[], tuple[Sequence[Declaration], Sequence[tuple[Path, str]]]]
    """Reads what it declares, and the files that cannot be read, with the reason; blocks."""


@dataclass(frozen=True, slots=True)
class Origin:
    """The plugin and the place that a hook comes from."""

    plugin_id: str
    name: str
    root: Path
    data: Path
    fingerprint: str
    """Of the whole plugin, which is trusted with its hook."""

    @property
    def variables(self) -> Mapping[str, str]:
        """Variables added to the environment of a hook."""
        root, data = str(self.root), str(self.data)
        return {
            "PLUGIN_ROOT": root,
            "CLAUDE_PLUGIN_ROOT": root,
            "PLUGIN_DATA": data,
            "CLAUDE_PLUGIN_DATA": data,
        }

    def filled_in(self, command: str) -> str:
        """Put the folders into a command, where it names them as `${NAME}`."""
        for name, value in self.variables.items():
            command = command.replace(f"${{{name}}}", value)
        return command


Event: TypeAlias = Literal[
    "PreToolUse",
    "PermissionRequest",
    "PostToolUse",
    "SessionStart",
    "UserPromptSubmit",
    "Stop",
]
"""Events that run hooks, in the order in which hooks are listed."""

EVENTS: Sequence[Event] = get_args(Event)

SNAKE = {event: re.sub(r"(?<=.)(?=[A-Z])", "_", event).lower() for event in EVENTS}
"""Their names in keys."""

WIRE = {event: f"{event[0].lower()}{event[1:]}" for event in EVENTS}
"""Their names on the wire."""

WITHOUT_MATCHER = frozenset({"UserPromptSubmit", "Stop"})

Source: TypeAlias = Literal["user", "project", "plugin"]


@dataclass(frozen=True, slots=True)
class Hook:
    """A command that runs on an event."""

    event: Event
    matcher: str | None
    command: str
    timeout_s: int
    status_message: str | None
    file: Path
    source: Source
    group: int
    """Which group of its event in its file, from 0."""
    number: int
    """Which hook of its group, from 0."""
    order: int = 0
    """Which of all hooks of a thread, from 0."""
    is_enabled: bool = True
    trusted_hash: str | None = None
    """Hash that the user trusted; None: none."""
    origin: Origin | None = None
    """Plugin and place that declare it, if a plugin brought it."""

    @property
    def key(self) -> str:
        """Key of the hook in settings."""
        place = self.file if self.origin is None else f"{self.origin.plugin_id}:{self.origin.name}"
        return f"{place}:{SNAKE[self.event]}:{self.group}:{self.number}"

    @property
    def hash(self) -> str:
        """Of all that a user has to see before trusting it; the same that Codex computes."""
        handler: dict[str, Any] = {
            "type": "command",
            "command": self.command,
            "timeout": self.timeout_s,
            "async": False,
        }
        if self.status_message is not None:
            handler["statusMessage"] = self.status_message
        identity: dict[str, Any] = {"event_name": SNAKE[self.event], "hooks": [handler]}
        if self.matcher is not None:
            identity["matcher"] = self.matcher
        text = json.dumps(identity, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
        own = f"sha256:{hashlib.sha256(text.encode()).hexdigest()}"
        # What a hook of a plugin does may be in any file beside it.
        return own if self.origin is None else f"{own}/sha256:{self.origin.fingerprint}"

    @property
    def runs(self) -> bool:
        """Whether it is on, and trusted as it is now."""
        return self.is_enabled and self.trusted_hash == self.hash

    def matches(self, subject: str) -> bool:
        """Whether it matches the subject of an event: a tool, or the reason of a thread's start."""
        if self.event in WITHOUT_MATCHER or self.matcher in (None, "", "*"):
            return True
        assert self.matcher is not None
        return re.fullmatch(self.matcher, subject) is not None
