"""Tool of the hosted endpoint: its listing and its calls."""

from collections import deque
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field, replace
from typing import Any, cast

from mcp.server.context import ServerRequestContext
from mcp.shared.message import ServerMessageMetadata
from mcp_types import Request, ServerRequest
from pydantic import RootModel

from app_server.clients.demo.hosted.files import FileStore

JsonObject = dict[str, Any]

ENVELOPE = "_codex_apps"

READS: JsonObject = {"readOnlyHint": True, "destructiveHint": False, "openWorldHint": False}
WRITES: JsonObject = {"readOnlyHint": False, "destructiveHint": True, "openWorldHint": False}
"""MCP annotations of a tool: its effects."""


class _Question(Request[dict[str, Any], str]):
    """A request to the client, whatever its method."""


class _Answer(RootModel[dict[str, Any]]):
    """Response of a tool."""


class Caller:
    """Caller of a tool: the client of one MCP session."""

    def __init__(self, context: ServerRequestContext[Any]) -> None:
        self._context = context

    def can_be_asked(self, mode: str) -> bool:
        """Whether it declared that users can be asked: `form`, `url`, `openai/form`.

        Never without a session: the questions of the demo are requests.
        """
        if not self._context.session.can_send_request:
            return False
        capabilities = self._context.session.client_capabilities
        if capabilities is None:
            return False
        if mode == "openai/form":
            return mode in (capabilities.extensions or {})
        return getattr(capabilities.elicitation, mode, None) is not None

    async def ask(self, method: str, params: JsonObject) -> JsonObject:
        """Ask the user on the stream of this call, and return the answer as it came.

        Raises:
            mcp.MCPError: the client answered with an error.
        """
        answer = await self._context.session.send_request(
            cast(ServerRequest, _Question(method=method, params=params)),
            _Answer,
            metadata=ServerMessageMetadata(related_request_id=self._context.request_id),
        )
        return answer.root

    async def report(self, progress: float, total: float, message: str) -> None:
        """Report how far the call is, if the client wants to know."""
        await self._context.session.report_progress(progress, total, message)


@dataclass(frozen=True, slots=True)
class Call:
    """One call of a tool."""

    arguments: JsonObject
    meta: JsonObject
    """`_meta` of the request."""
    caller: Caller = field(repr=False)


Run = Callable[[Call], Awaitable[JsonObject]]
"""Returns a result of `tools/call`."""


@dataclass(frozen=True, slots=True)
class HostedTool:
    """One element of the list of tools."""

    definition: JsonObject
    """As it is listed, `_meta` included."""
    run: Run = field(repr=False)


@dataclass(frozen=True, slots=True)
class HostedConnector:
    """App: its entry in the directory, and its tools."""

    id: str
    name: str
    description: str
    tools: tuple[HostedTool, ...] = ()

    def tool(
        self,
        name: str,
        description: str,
        properties: JsonObject,
        annotations: JsonObject,
        run: Run,
        *,
        meta: JsonObject | None = None,
    ) -> HostedTool:
        """Make a tool that is listed with this app; all its arguments are required."""
        definition = {
            "name": f"{self.name.lower()}_{name}",
            "title": f"{self.name}_{name}",
            "description": description,
            "inputSchema": {
                "type": "object",
                "properties": properties,
                "required": list(properties),
                "additionalProperties": False,
            },
            "annotations": annotations,
            "_meta": {
                "connector_id": self.id,
                "connector_name": self.name,
                "connector_description": self.description,
                ENVELOPE: {"resource_uri": f"/connectors/{self.id}/{name}"},
                **(meta or {}),
            },
        }
        return HostedTool(definition, run)


def text_result(
    text: str, structured: JsonObject | None = None, *, error: bool = False
) -> JsonObject:
    """Return a result with a text, and with a structure if there is one."""
    result: JsonObject = {"content": [{"type": "text", "text": text}], "isError": error}
    return result if structured is None else {**result, "structuredContent": structured}


# Apps of the demo's endpoint: a calendar, a drive, mail, and a survey.
# Creating an event changes something and is asked about. A file of the drive is uploaded to the
# file store before. Mail is read after the user has signed in: the page for that is not played;
# after a refusal, listing the tools again counts as coming back from it. The survey asks with a
# form, with a link, and with the form that ChatGPT has.


MAX_EVENTS = 100
"""The oldest ones make room."""

DAY_URI = "ui://calendar/day"

_CALENDAR = HostedConnector("demo_calendar", "Calendar", "Events of one demonstration calendar.")


def calendar() -> HostedConnector:
    """Return the app with its tools, and the events of one account."""
    events: deque[JsonObject] = deque(
        [{"day": "2030-01-01", "title": "New year"}], maxlen=MAX_EVENTS
    )

    async def list_events(call: Call) -> JsonObject:
        shown = [{**event} for event in events]
        lines = [f"{event['day']}: {event['title']}" for event in shown]
        return text_result("\n".join(lines), {"events": shown})

    async def create_event(call: Call) -> JsonObject:
        event = {key: str(call.arguments.get(key, ""))[:200] for key in ("day", "title")}
        events.append(event)
        return text_result(
            f"{event['title']} is in the calendar, on {event['day']}.", {"event": event}
        )

    text = {"type": "string"}
    listing = _CALENDAR.tool(
        "list_events",
        "List the events of the calendar.",
        {},
        READS,
        list_events,
        meta={"ui": {"resourceUri": DAY_URI}},
    )
    days = {"day": {**text, "description": "Like 2030-01-31."}, "title": text}
    creating = _CALENDAR.tool(
        "create_event", "Put an event into the calendar.", days, WRITES, create_event
    )
    return replace(_CALENDAR, tools=(listing, creating))


_DRIVE = HostedConnector("demo_drive", "Drive", "Keeps files for as long as the demo runs.")


def drive(files: FileStore) -> HostedConnector:
    """Return the app with its tool, which knows the files of a store."""

    async def run(call: Call) -> JsonObject:
        given = call.arguments.get("file")
        stored = files.find(given.get("file_id")) if isinstance(given, dict) else None
        if stored is None or stored.sha256 is None:
            return text_result("There is no such file.", error=True)
        found: JsonObject = {"name": stored.name, "bytes": stored.size, "sha256": stored.sha256}
        return text_result(f"{stored.name} is in the drive, {stored.size} bytes.", {"file": found})

    save = _DRIVE.tool(
        "save_file",
        "Save a file in the drive.",
        {"file": {"type": "object", "description": "The file to save."}},
        WRITES,
        run,
        meta={"openai/fileParams": ["file"]},
    )
    return replace(_DRIVE, tools=(save,))


ACCOUNT_EMAIL = "demo@example.com"

_MAIL = HostedConnector("demo_mail", "Mail", "Messages of one demonstration account.")
_MESSAGES = [{"from": "weather@example.com", "subject": "Sunny, with a light breeze"}]


class Mail:
    """The messages of one account, and whether it has been signed in to."""

    def __init__(self) -> None:
        self.is_signed_in = False
        self.was_refused = False

    def connector(self) -> HostedConnector:
        """Return the app with its tool."""
        envelope = {
            "resource_uri": "/connectors/demo_mail/read_inbox",
            "connected_account_email": ACCOUNT_EMAIL,
        }
        inbox = _MAIL.tool(
            "read_inbox",
            "Read the subjects of the messages in the inbox.",
            {},
            READS,
            self._read,
            meta={"link_id": "link_demo_mail", ENVELOPE: envelope},
        )
        return replace(_MAIL, tools=(inbox,))

    def tools_were_listed(self) -> None:
        """Sign in at the listing that follows a refused call."""
        self.is_signed_in |= self.was_refused

    async def _read(self, call: Call) -> JsonObject:
        if self.is_signed_in:
            lines = [f"{one['from']}: {one['subject']}" for one in _MESSAGES]
            return text_result("\n".join(lines), {"messages": _MESSAGES})
        self.was_refused = True
        failure = {
            "is_auth_failure": True,
            "auth_reason": "missing_link",
            "connector_id": _MAIL.id,
            "error_code": "UNAUTHORIZED",
            "error_http_status_code": 401,
        }
        refusal = text_result("Mail is not linked to this account.", error=True)
        return {**refusal, "_meta": {ENVELOPE: {"connector_auth_failure": failure}}}


_SURVEY = HostedConnector("demo_survey", "Survey", "Asks one question, in one of three ways.")
_SCHEMA = {
    "type": "object",
    "properties": {"colour": {"type": "string", "title": "Colour"}},
    "required": ["colour"],
}
_QUESTION = "Which colour do you like best?"

QUESTIONS: dict[str, tuple[str, JsonObject]] = {
    "form": ("elicitation/create", {"message": _QUESTION, "requestedSchema": _SCHEMA}),
    "url": (
        "elicitation/create",
        {
            "mode": "url",
            "message": "Please choose a colour there.",
            "url": "https://example.com/colours",
            "elicitationId": "demo-colours",
        },
    ),
    "openai/form": ("openai/form", {"message": _QUESTION, "requestedSchema": _SCHEMA}),
}
"""Method and params of each question."""


def survey() -> HostedConnector:
    """Return the app with its three tools."""
    tools = [
        _SURVEY.tool(
            f"ask_by_{mode.replace('/', '_')}", f"Ask by {mode}.", {}, READS, _asking(mode)
        )
        for mode in QUESTIONS
    ]
    return replace(_SURVEY, tools=tuple(tools))


def _asking(mode: str) -> Run:
    method, params = QUESTIONS[mode]

    async def ask(call: Call) -> JsonObject:
        if not call.caller.can_be_asked(mode):
            return text_result(f"Nobody can be asked by {mode}.", error=True)
        answer = await call.caller.ask(method, params)
        return text_result(f"The answer is: {answer.get('action')}.", {"answer": answer})

    return ask
