"""The settings of notifications: `notify` of Codex, and the entries of `[[notifications]]`.

Source: docs/notifications.md, "Settings".
"""

import base64
import hashlib
import os
import stat
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, TypeAlias
from urllib.parse import urlsplit

from pydantic_core import to_json

from app_server.config.values import Config, ConfigError, ConfigView
from app_server.runtime.http.loopback_address import is_this_machine
from app_server.runtime.user_paths import expand_user

EventName: TypeAlias = Literal[
    "approvalRequested",
    "inputRequested",
    "turnCompleted",
    "turnFailed",
    "wakeLost",
    "budgetReached",
    "signalDead",
]
EVENTS: Sequence[EventName] = (
    "approvalRequested",
    "inputRequested",
    "turnCompleted",
    "turnFailed",
    "wakeLost",
    "budgetReached",
    "signalDead",
)
"""The events that an entry may name."""

Kind: TypeAlias = Literal["notify", "command", "webhook", "desktop"]

MAX_TARGETS = 32
MAX_URL_CHARS = 2_048
MAX_NAME_CHARS = 64
SECRET_BYTES = 24, 64
"""Fewest and most bytes of a secret, as Standard Webhooks says."""
MAX_SECRETS = 4
"""In one file: while a secret is replaced, receivers may know either."""
MAX_SECRET_FILE_BYTES = 1_024
PREFIX = "whsec_"


class SecretUnusable(Exception):
    """A file with secrets cannot be used; the text says why, and nothing of its content."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """One receiver of notifications."""

    kind: Kind
    label: str
    """Name in logs and lists, without anything that may be a secret."""
    events: frozenset[str]
    threads: frozenset[str] = frozenset()
    """Ids or names; empty: all."""
    cwd: str | None = None
    """The folder that threads work in, or one above it; None: any."""
    command: Sequence[str] = field(default=(), repr=False)
    url: str = field(default="", repr=False)
    secret_file: Path | None = None
    content: bool = False
    """Whether texts of messages and questions are sent too."""
    id: str = field(init=False)
    """Digest of the receiver; entries of the outbox name it."""

    def __post_init__(self) -> None:
        receiver = to_json([self.kind, *self.command, self.url])
        object.__setattr__(self, "id", hashlib.sha256(receiver).hexdigest()[:16])

    def wants(
        self, events: Collection[str], thread_id: str, name: str | None, cwd: str | None
    ) -> bool:
        """Whether it is to be sent what is one of some events of a thread."""
        if self.events.isdisjoint(events):
            return False
        if self.threads and thread_id not in self.threads and name not in self.threads:
            return False
        return self.cwd is None or (cwd is not None and Path(cwd).is_relative_to(self.cwd))


@dataclass(frozen=True, slots=True)
class NotificationSettings:
    """All receivers, and what is wrong with entries that are left out."""

    targets: Sequence[Target]
    link: str | None
    """Address of the inspector, without what comes behind `#`."""
    errors: Sequence[ConfigError]


def read_notifications(config: Config) -> NotificationSettings:
    """Read the receivers; an entry that cannot be used is left out. Blocks: it looks at files."""
    errors: list[ConfigError] = []

    view = config.view()
    hosts: frozenset[str] = frozenset()
    targets: list[Target | None] = []
    entries: list[str | ConfigView] = []
    link = None
    with _collected(errors):
        hosts = _hosts(view)
    with _collected(errors):
        targets.append(_notify(view))
    with _collected(errors):
        entries = list(view.items("notifications"))
    for number, entry in enumerate(entries, 1):
        if number > MAX_TARGETS:
            text = f"`notifications` has more than {MAX_TARGETS} entries; the others are left out"
            errors.append(view.error(text, "notifications"))
            break
        with _collected(errors):
            targets.append(_target(entry, number, hosts))
    with _collected(errors):
        link = _link(view)
    return NotificationSettings([target for target in targets if target is not None], link, errors)


@contextmanager
def _collected(errors: list[ConfigError]) -> Iterator[None]:
    """Collect an error of the settings, and go on behind the context."""
    try:
        yield
    except ConfigError as exc:
        errors.append(exc)


def _notify(view: ConfigView) -> Target | None:
    words = view.strings("notify")
    if not words:
        return None
    if not _can_be_run(words):
        raise view.error("must be a program and its arguments", "notify")
    name = Path(words[0]).name
    return Target(
        kind="notify",
        label=f"notify {name}",
        events=frozenset({"turnCompleted"}),
        command=tuple(words),
    )


def _can_be_run(words: Sequence[str]) -> bool:
    return bool(words) and words[0] != "" and "\0" not in "".join(words)


def _hosts(view: ConfigView) -> frozenset[str]:
    hosts = view.strings("notification_hosts") or []
    for host in hosts:
        if not host or "/" in host or "*" in host or "@" in host or ":" in host:
            raise view.error(
                "must be names of hosts, without scheme, port and wildcards", "notification_hosts"
            )
    return frozenset(host.lower().removesuffix(".") for host in hosts)


def _link(view: ConfigView) -> str | None:
    link = view.string("notification_link")
    if link is not None and (urlsplit(link).scheme not in ("http", "https") or "#" in link):
        raise view.error("must be an http or https address without `#`", "notification_link")
    return link


def _target(entry: "str | ConfigView", number: int, hosts: frozenset[str]) -> Target | None:
    """Read one entry; None where it is switched off."""
    if isinstance(entry, str):
        text = f"entry {number} of `notifications` must be a table"
        raise ConfigError(text, path=("notifications",))
    read = _Entry(entry, number)
    kind = read.kind()
    target = read.target(kind, read.webhook(hosts) if kind == "webhook" else {})
    return target if entry.boolean("enabled", default=True) else None


@dataclass(frozen=True, slots=True)
class _Entry:
    """One entry; errors name its number, the field and the rule."""

    view: ConfigView
    number: int

    def refusal(self, rule: str, key: str | None = None) -> ConfigError:
        field_name = "" if key is None else f" `{key}`"
        return self.view.error(f"entry {self.number} of `notifications`:{field_name} {rule}", key)

    def kind(self) -> Kind:
        """Return what it leads to."""
        self.view.boolean("desktop", default=False)
        kinds: Mapping[str, Kind] = {"command": "command", "url": "webhook", "desktop": "desktop"}
        named = [key for key in kinds if self.view.table.get(key) not in (None, False)]
        if len(named) != 1:
            found = " and ".join(f"`{key}`" for key in named) or "none"
            rule = "exactly one of `command`, `url` and `desktop = true` must be set"
            raise self.refusal(f"{rule}, found {found}")
        return kinds[named[0]]

    def target(self, kind: Kind, of_kind: Mapping[str, Any]) -> Target:
        """Read what all kinds have, and a command."""
        view, command = self.view, self.view.strings("command") or []
        if kind == "command" and not _can_be_run(command):
            raise self.refusal("must be a program and its arguments", "command")
        cwd = view.string("cwd")
        if cwd is not None:
            if "\0" in cwd or not expand_user(cwd).is_absolute():
                raise self.refusal("must be an absolute path", "cwd")
            cwd = os.path.normpath(expand_user(cwd))
        name = view.string("name")
        if name is not None and not (0 < len(name) <= MAX_NAME_CHARS and name.isprintable()):
            rule = f"must have 1 to {MAX_NAME_CHARS} printable characters"
            raise self.refusal(rule, "name")
        labels = {"command": f"command {Path(*command[:1]).name}", "desktop": "desktop"}
        return Target(
            kind=kind,
            events=self.events(),
            threads=frozenset(view.strings("threads") or []),
            cwd=cwd,
            content=view.boolean("content", default=False),
            command=tuple(command),
            **{**of_kind, "label": name or of_kind.get("label") or labels[kind]},
        )

    def events(self) -> frozenset[str]:
        """Read which events it is for."""
        words = self.view.strings("events") or []
        known = ", ".join(EVENTS)
        for word in words:
            if word not in EVENTS:
                raise self.refusal(f"has the unknown event `{word}`, expected {known}", "events")
        if not words:
            raise self.refusal(f"must name at least one of {known}", "events")
        return frozenset(words)

    def webhook(self, hosts: frozenset[str]) -> Mapping[str, Any]:
        """Read an address and the file of its secret, which is looked into."""
        url = self.view.string("url") or ""
        if (rule := broken_rule(url, hosts)) is not None:
            raise self.refusal(rule, "url")
        file = self.view.string("secret_file")
        if file is None:
            rule = "must name the file with the secret that webhooks are signed with"
            raise self.refusal(rule, "secret_file")
        if "\0" in file or not (path := expand_user(file)).is_absolute():
            raise self.refusal("must be an absolute path, or begin with `~/`", "secret_file")
        try:
            read_secrets(path)
        except SecretUnusable as exc:
            raise self.refusal(str(exc), "secret_file") from None
        return {"url": url, "secret_file": path, "label": f"webhook {urlsplit(url).hostname}"}


def broken_rule(url: str, hosts: frozenset[str]) -> str | None:
    """Return the rule that the address of a webhook breaks; None: it may be used."""
    try:
        parts = urlsplit(url)
        host, _ = parts.hostname, parts.port
    except ValueError:
        return "must be an address such as https://host/path"
    if not host or parts.scheme not in ("http", "https") or len(url) > MAX_URL_CHARS:
        return f"must be an https address of at most {MAX_URL_CHARS} characters"
    if parts.username is not None or parts.password is not None or parts.fragment:
        return "must have no user, password or fragment"
    if not url.isascii() or not url.isprintable() or " " in url:
        return "must be ASCII without spaces and control characters"
    if is_this_machine(host):
        return None
    if host.removesuffix(".") not in hosts:
        return "must lead to this machine, or to a host that `notification_hosts` lists"
    return None if parts.scheme == "https" else "must be https, but for this machine"


def read_secrets(path: Path) -> Sequence[str]:
    """Read the secrets of a file, the newest first. Blocks.

    Each line is one, `whsec_` and base64 of 24 to 64 bytes.

    Raises:
        SecretUnusable
    """
    try:
        # What is no file must not be waited for.
        with os.fdopen(os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK), "rb") as file:
            found = os.fstat(file.fileno())
            if not stat.S_ISREG(found.st_mode):
                raise SecretUnusable("must be a regular file")
            if stat.S_IMODE(found.st_mode) & 0o077:
                raise SecretUnusable("can be read by others: it must have mode 0600")
            if found.st_uid != os.geteuid():
                raise SecretUnusable("must belong to the user that runs the server")
            content = file.read(MAX_SECRET_FILE_BYTES + 1)
    except OSError as exc:
        raise SecretUnusable(f"cannot be read: {exc.strerror}") from None
    secrets = content.decode("ascii", "replace").split()
    if len(content) > MAX_SECRET_FILE_BYTES or not 0 < len(secrets) <= MAX_SECRETS:
        raise SecretUnusable(f"must have 1 to {MAX_SECRETS} lines, a secret each")
    if not all(map(_is_secret, secrets)):
        low, high = SECRET_BYTES
        raise SecretUnusable(f"must have lines of `{PREFIX}` and base64 of {low} to {high} bytes")
    return secrets


def _is_secret(text: str) -> bool:
    try:
        key = base64.b64decode(text.removeprefix(PREFIX), validate=True)
    except ValueError:
        return False
    return text.startswith(PREFIX) and SECRET_BYTES[0] <= len(key) <= SECRET_BYTES[1]
