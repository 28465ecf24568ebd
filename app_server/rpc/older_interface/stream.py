"""A pipe to a client that may speak the older interface: messages are translated on the way.

Until a client uses a method of the older interface nothing is translated, and all that it costs is
one look at the beginning of each message.
Source: docs/older_interface.md.
"""

import re
from collections import OrderedDict
from collections.abc import Mapping
from typing import Any

from pydantic_core import from_json, to_json

from app_server.rpc.message_stream import MessageStream
from app_server.rpc.older_interface.events import (
    COMMAND,
    PATCH,
    account_event,
    command_approval,
    decision,
    event_of,
    patch_approval,
    turn_of,
)
from app_server.rpc.older_interface.requests import (
    PAGE_SIZE,
    TODAYS,
    TRANSLATIONS,
    Translated,
    translate,
)
from protocol.jsonrpc.envelope import render_error, render_result
from protocol.jsonrpc.errors import RpcError, invalid_member, invalid_params
from protocol.model import Json, JsonObject

MAX_WAITING = 1_000
"""Conversations of a connection that had no turn yet; the oldest begin without their policy."""


class FirstSandboxes:
    """The policies that wait for the first turns of a connection's conversations."""

    def __init__(self) -> None:
        self._waiting: OrderedDict[Json, Json] = OrderedDict()

    def keep(self, conversation_id: str, policy: Json) -> None:
        """Have a policy go with the conversation's next turn; None: what waited is void."""
        self._waiting.pop(conversation_id, None)
        if policy is not None:
            self._waiting[conversation_id] = policy
            if len(self._waiting) > MAX_WAITING:
                self._waiting.popitem(last=False)

    def with_policy(self, params: JsonObject) -> JsonObject:
        """Return the parameters of `turn/start` with what waits, unless they have a policy."""
        policy = self._waiting.get(params["threadId"])
        return params if policy is None else {"sandboxPolicy": policy, **params}

    def begun(self, params: JsonObject) -> None:
        """Note that a turn with these parameters was accepted: the thread has its policy now."""
        self._waiting.pop(params["threadId"], None)


OWN = ("addConversationListener", "removeConversationListener", "getUserAgent")
"""Methods that are answered here."""

LOOKED_AT_CHARS = 4_096
"""Of a message, for the name of a method of the older interface."""

BEGIN = ("thread/start", "thread/resume")
"""Translated methods after which a client has a conversation."""

TURN = "turn/start"

MAX_LISTENERS = 1_000
"""Of a connection; also how many conversations without a listener send their events."""
MAX_CHANGES = 64
"""Patches whose changes are kept for a question about them."""

PREFIX = "older:"
"""With what ids of translated requests begin."""

_METHOD = re.compile(
    rf'"method"\s*:\s*"(?:{"|".join((*TRANSLATIONS.keys() - TODAYS, *OWN))})"|"{PAGE_SIZE}"'
)
"""The name of a method of the older interface, or of a member that today's wire lacks."""


class OlderInterface:
    """A MessageStream over another one, with a translation once the client needs one."""

    def __init__(self, pipe: MessageStream) -> None:
        self._pipe = pipe
        self.aclose = pipe.aclose
        self._user_agent: str | None = None
        self._translation: Translation | None = None

    async def receive(self) -> str:
        """Return the next message, as today's wire has it."""
        while True:
            text = await self._pipe.receive()
            if self._translation is None and _METHOD.search(text, 0, LOOKED_AT_CHARS) is None:
                return text
            message = _parsed(text)
            if message is None:
                return text
            translation = self._translation or Translation(self._user_agent)
            try:
                request, answer = translation.of_client(message)
            except RpcError as exc:
                jsonrpc = message.get("jsonrpc") == "2.0"
                request, answer = None, render_error(message["id"], exc.to_wire(), jsonrpc=jsonrpc)
            if translation.is_used:
                self._translation = translation
            if answer is not None:
                await self._pipe.send(answer)
            elif request is not None:
                return text if request is message else to_json(request).decode()

    async def send(self, *texts: str) -> None:
        """Send messages, in the form that the client speaks."""
        if self._translation is None:
            if self._user_agent is None:
                self._user_agent = _user_agent(texts)
            await self._pipe.send(*texts)
            return
        rendered = [shown for text in texts for shown in self._translation.of_server(text)]
        if rendered:
            await self._pipe.send(*rendered)


class Translation:
    """The messages of a client that has used the older interface, in both directions."""

    def __init__(self, user_agent: str | None) -> None:
        self._user_agent = user_agent
        self.is_used = False
        """Whether a message was one of the older interface, and not only looked like it."""
        self._count = 0
        self._asked: dict[str, tuple[Json, Translated]] = {}
        """Translated requests that wait for their answers: the client's id, and what it asked."""
        self._questions: set[Json] = set()
        """Ids of requests of the server that the client answers in the older form."""
        self._listeners: dict[str, str] = {}
        """Conversations by subscription."""
        self._begun: OrderedDict[str, None] = OrderedDict()
        """The newest conversations that the client began and has added no listener to."""
        self._sandboxes = FirstSandboxes()
        self._changes: OrderedDict[str, list[Json]] = OrderedDict()

    # From the client.

    def of_client(self, message: JsonObject) -> tuple[JsonObject | None, str | None]:
        """Return what goes on to the server, or the answer of a message that does not.

        Raises:
            RpcError: the message, which has an id, is refused.
        """
        method, message_id = message.get("method"), message.get("id")
        if method is None and _hashable(message_id) in self._questions:
            self._questions.discard(message_id)
            if "error" in message:
                return message, None
            return {**message, "result": decision(message.get("result"))}, None
        if not (
            self._is_older(method, message.get("params"))
            and isinstance(method, str)
            and isinstance(message_id, str | int)
        ):
            return message, None
        self.is_used = True
        params = {} if message.get("params") is None else message["params"]
        if not isinstance(params, dict):
            raise invalid_params("Invalid params: must be an object", field="params")
        if method in OWN:
            jsonrpc = message.get("jsonrpc") == "2.0"
            return None, render_result(message_id, self._own(method, params), jsonrpc=jsonrpc)
        translated = translate(method, params)
        request = translated.params
        if translated.method == TURN:
            request = self._sandboxes.with_policy(request)
        self._count += 1
        own_id = f"{PREFIX}{self._count}"
        self._asked[own_id] = (message_id, translated)
        return {**message, "id": own_id, "method": translated.method, "params": request}, None

    def _is_older(self, method: Json, params: Json) -> bool:
        if method in TODAYS:
            return self.is_used or (isinstance(params, dict) and PAGE_SIZE in params)
        return method in TRANSLATIONS or method in OWN

    def _own(self, method: str, params: Mapping[str, Any]) -> JsonObject:
        match method:
            case "getUserAgent":
                return {"userAgent": self._user_agent}
            case "addConversationListener":
                conversation_id = params.get("conversationId")
                if not isinstance(conversation_id, str):
                    raise invalid_member("conversationId", "must be a string")
                if len(self._listeners) >= MAX_LISTENERS:
                    raise invalid_member("conversationId", f"has {MAX_LISTENERS} listeners already")
                self._count += 1
                subscription = f"{PREFIX}{self._count}"
                self._listeners[subscription] = conversation_id
                self._begun.pop(conversation_id, None)
                return {"subscriptionId": subscription}
        subscription_id = params.get("subscriptionId")
        if not isinstance(subscription_id, str) or subscription_id not in self._listeners:
            raise invalid_member("subscriptionId", "is not that of a listener")
        del self._listeners[subscription_id]
        return {}

    # From the server.

    def of_server(self, text: str) -> list[str]:
        """Return the messages that the client is sent in the place of one."""
        message = _parsed(text)
        if message is None:
            return [text]
        method = message.get("method")
        if method is None:
            asked = self._asked.pop(str(message.get("id")), None)
            return [text if asked is None else self._answered(message, *asked)]
        params = message.get("params") or {}
        if (rendered := account_event(method, params)) is not None:
            return [text, _notification(message, *rendered)]
        if method == "serverRequest/resolved":
            self._questions.discard(params.get("requestId"))
        thread_id = params.get("threadId")
        if thread_id not in self._begun and thread_id not in self._listeners.values():
            return [text]
        if "id" in message:
            return [self._question(message, method, params) or text]
        return self._events(message, method, params)

    def _answered(self, message: JsonObject, message_id: Json, translated: Translated) -> str:
        if "error" in message:
            return to_json({**message, "id": message_id}).decode()
        result = translated.result(message["result"])
        if translated.method in BEGIN:
            self._begin(result["conversationId"])
            self._sandboxes.keep(result["conversationId"], translated.first_sandbox)
        elif translated.method == TURN:
            self._sandboxes.begun(translated.params)
        return to_json({**message, "id": message_id, "result": result}).decode()

    def _begin(self, conversation_id: str) -> None:
        """Send its events in this form, unless a listener does that already."""
        if conversation_id not in self._listeners.values():
            self._begun[conversation_id] = None
            if len(self._begun) > MAX_LISTENERS:
                self._begun.popitem(last=False)

    def _question(self, message: JsonObject, method: str, params: JsonObject) -> str | None:
        if method == COMMAND:
            name, asked = "execCommandApproval", command_approval(params)
        elif method == PATCH:
            given = self._changes.get(params["itemId"], [])
            name, asked = "applyPatchApproval", patch_approval(params, given)
        else:
            return None
        self._questions.add(message["id"])
        return to_json({**message, "method": name, "params": asked}).decode()

    def _events(self, message: JsonObject, method: str, params: JsonObject) -> list[str]:
        """Render a notification about a conversation that the client listens to."""
        if method == "item/started" and params["item"]["type"] == "fileChange":
            self._changes[params["item"]["id"]] = params["item"]["changes"]
            if len(self._changes) > MAX_CHANGES:
                self._changes.popitem(last=False)
        event = event_of(method, params)
        if event is None:
            return []
        shown = {"conversationId": params["threadId"], "id": turn_of(params), "msg": event}
        return [_notification(message, f"codex/event/{event['type']}", shown)]


def _notification(message: JsonObject, method: str, params: JsonObject) -> str:
    """Write a notification with the envelope of another one."""
    members = {name: message[name] for name in ("jsonrpc",) if name in message}
    return to_json({**members, "method": method, "params": params}).decode()


def _parsed(text: str) -> JsonObject | None:
    try:
        message = from_json(text)
    except ValueError:
        return None
    return message if isinstance(message, dict) else None


def _hashable(value: Json) -> Json:
    return value if isinstance(value, str | int) else None


def _user_agent(texts: tuple[str, ...]) -> str | None:
    for text in texts:
        if '"userAgent"' in text[:LOOKED_AT_CHARS] and (message := _parsed(text)) is not None:
            result = message.get("result")
            found = result.get("userAgent") if isinstance(result, dict) else None
            return found if isinstance(found, str) else None
    return None
