"""Parts of extensions in turns: texts for the model, facts for items, work after a call, mentions.

Nothing here waits. An extension that fails adds nothing, and that is logged.
Source: docs/extensions.md, "Parts in turns"; docs/plugins.md, "In turns", "Plugins of a thread",
"Suggestions of the model".
"""

import logging
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, Protocol

from app_server.extensions.contract.registration import ContributionContext
from protocol.turns.items import McpToolCallAppContext, UserInput

if TYPE_CHECKING:
    from protocol.integrations.suggestions import SuggestedPlugin


logger = logging.getLogger(__name__)

MAX_INSTRUCTIONS_BYTES = 16 * 1024
"""UTF-8 bytes of what one extension adds for the model; a longer text is left out."""


@dataclass(frozen=True, slots=True)
class ToolCall:
    """One call that a model makes, by raw names."""

    thread_id: str
    turn_id: str
    item_id: str
    server: str
    tool: str


@dataclass(frozen=True, slots=True)
class Presentation:
    """App and user interface of a tool, for the item of its call; fixed when the call begins."""

    app_context: McpToolCallAppContext | None = None
    resource_uri: str | None = None
    """Of the user interface of the tool."""


class TurnExtension(Protocol):
    """Part of one extension in turns; notifications do nothing unless overridden."""

    def instructions(
        self, context: ContributionContext, tools: Collection[tuple[str, str]]
    ) -> str | None:
        """Return instructions for the model, given the tools of this request.

        `tools` are raw names of server and tool. The text is a message of the developer.
        """

    def present(self, call: ToolCall) -> Presentation | None:
        """Return the presentation of an item; asked once, before `item/started`."""

    def input_taken(self, thread_id: str, turn_id: str, content: Sequence[UserInput]) -> None:
        """Observe input of the user, at the start of a turn or in the middle of it."""
        return

    def call_ended(self, call: ToolCall, status: Literal["completed", "failed"]) -> None:
        """Note that a call was made and is over; one that was not approved was not made."""
        return

    def turn_ended(self, thread_id: str, turn_id: str) -> None:
        """Observe the end of a turn."""
        return


class TurnExtensions:
    """Parts of all extensions in turns, in their order; a part that fails adds nothing."""

    def __init__(self, parts: Sequence[TurnExtension] = ()) -> None:
        self._parts = tuple(parts)

    @contextmanager
    def joined(self, part: TurnExtension) -> Iterator[None]:
        """Ask one more extension, behind all others, while the context lasts."""
        self._parts = (*self._parts, part)
        try:
            yield
        finally:
            self._parts = tuple(one for one in self._parts if one is not part)

    def instructions(
        self, context: ContributionContext, tools: Collection[tuple[str, str]]
    ) -> list[str]:
        """Collect the instructions of all extensions."""
        texts: list[str] = []
        for part in self._parts:
            with _contained():
                text = part.instructions(context, tools)
                if text and len(text.encode()) <= MAX_INSTRUCTIONS_BYTES:
                    texts.append(text)
        return texts

    def present(self, call: ToolCall) -> Presentation:
        """Merge presentations of an item: the last context and the first resource count."""
        app_context: McpToolCallAppContext | None = None
        resource_uri: str | None = None
        for part in self._parts:
            with _contained():
                if (shown := part.present(call)) is not None:
                    if shown.app_context is not None:
                        app_context = shown.app_context
                    resource_uri = shown.resource_uri if resource_uri is None else resource_uri
        return Presentation(app_context, resource_uri)

    def input_taken(self, thread_id: str, turn_id: str, content: Sequence[UserInput]) -> None:
        """Notify every extension of input of the user."""
        for part in self._parts:
            with _contained():
                part.input_taken(thread_id, turn_id, content)

    def call_ended(self, call: ToolCall, status: Literal["completed", "failed"]) -> None:
        """Notify every extension of the end of a call."""
        for part in self._parts:
            with _contained():
                part.call_ended(call, status)

    def turn_ended(self, thread_id: str, turn_id: str) -> None:
        """Notify every extension of the end of a turn."""
        for part in self._parts:
            with _contained():
                part.turn_ended(thread_id, turn_id)


@contextmanager
def _contained() -> Iterator[None]:
    try:
        yield
    except Exception:
        logger.exception("an extension failed in a turn")


PLUGIN_SCHEME = "plugin://"
"""Before the id of a plugin, in the path of a mention and in a link."""


@dataclass(frozen=True, slots=True)
class NamedPlugin:
    """A plugin of the thread that the user named."""

    id: str
    display_name: str
    skills_prefix: str | None
    """Prefix of the names of its skills, before a colon; None: no skill of it is on."""


class PluginMentions(Protocol):
    """Knows which plugins there are."""

    def named(
        self, content: Sequence[UserInput], context: ContributionContext
    ) -> Sequence[NamedPlugin]:
        """Return the plugins in force that a message names, each once; never waits."""


class PluginOffers(Protocol):
    """Which plugins could be installed for a thread."""

    def has_any(self, config: Mapping[str, Any]) -> bool:
        """Whether these settings name plugins to suggest; reads no file."""

    async def offered(self, config: Mapping[str, Any]) -> "Sequence[SuggestedPlugin]":
        """Return the plugins to suggest, by name: in a marketplace, and not installed."""

    async def is_complete(self, plugin: "SuggestedPlugin", context: ContributionContext) -> bool:
        """Whether a plugin is installed, with all that others must have for it."""

    async def decline(self, plugin_id: str) -> None:
        """Offer a plugin never again, and write that down.

        Raises:
            NotRecorded: it is not offered by this process, but is not written.
        """


class InstallCheck(Protocol):
    """Check of a plugin's install: whether the apps that it declares by id are there."""

    async def verify_install(
        self, app_ids: Sequence[str], context: ContributionContext
    ) -> bool | None:
        """Return whether all of them are there; None if that is not this one's to say.

        It may ask others, and has a bound of its own.
        """
