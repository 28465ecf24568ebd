"""The unions of all messages, made from the tables: what may stand in a frame, by method."""

from collections.abc import Iterable, Mapping

from protocol.contract.methods import CLIENT_NOTIFICATIONS, METHODS, NOTIFICATIONS, SERVER_REQUESTS
from protocol.contract.specs import MethodSpec, NotificationSpec, Takes
from protocol.export.definitions import REF, Definitions
from protocol.model import EXPERIMENTAL, EXTENSION, JsonObject

CLIENT_REQUEST = "ClientRequest"
CLIENT_NOTIFICATION = "ClientNotification"
SERVER_REQUEST = "ServerRequest"
SERVER_NOTIFICATION = "ServerNotification"


def message_definitions() -> Definitions:
    """Describe the four unions, with all their experimental alternatives."""
    return {
        CLIENT_REQUEST: {
            "description": "A request of a client.",
            "oneOf": list(_requests(METHODS)),
        },
        CLIENT_NOTIFICATION: {
            "description": "A notification of a client.",
            "oneOf": [_message(method, "Notification", {}) for method in CLIENT_NOTIFICATIONS],
        },
        SERVER_REQUEST: {
            "description": "A request of the server to a client.",
            "oneOf": list(_requests(SERVER_REQUESTS)),
        },
        SERVER_NOTIFICATION: {
            "description": "A notification of the server.",
            "properties": {
                "emittedAtMs": {
                    "description": "When the server sent it, Unix milliseconds.",
                    "type": "integer",
                    "format": "int64",
                },
                "seq": {
                    "description": "The number of an event in the stream of its thread.",
                    "type": "integer",
                    "format": "uint64",
                    "minimum": 0,
                    EXPERIMENTAL: True,
                    EXTENSION: True,
                },
            },
            "oneOf": [
                _message(method, "Notification", {"params": _ref(spec.params_name)}, spec)
                for method, spec in NOTIFICATIONS.items()
            ],
        },
    }


def _requests(table: Mapping[str, MethodSpec]) -> Iterable[JsonObject]:
    for method, spec in table.items():
        members = {"id": _ref("RequestId"), "params": _params(spec)}
        message = _message(method, "Request", members, spec)
        if spec.takes is not Takes.OBJECT:
            message["required"].remove("params")
        yield message


def _params(spec: MethodSpec) -> JsonObject:
    if spec.params_name is None:
        return {"type": "null"}
    if spec.takes is Takes.OBJECT_OR_NULL:
        return {"anyOf": [_ref(spec.params_name), {"type": "null"}]}
    return _ref(spec.params_name)


def _ref(name: str) -> JsonObject:
    return {"$ref": REF + name}


def with_operations(definitions: Definitions) -> Definitions:
    """Let every request that may be named for sending it again have its name.

    That is for the dispatcher alone, so the types of the params do not have it.
    """
    named = {spec.params_name for spec in METHODS.values() if spec.takes_operation}
    changed = {
        name: _with_meta(definition) if name in named else definition
        for name, definition in definitions.items()
    }
    requests = definitions[CLIENT_REQUEST]
    changed[CLIENT_REQUEST] = {**requests, "oneOf": list(map(_with_name, requests["oneOf"]))}
    return changed


_META: JsonObject = {
    "anyOf": [_ref("RequestMeta"), {"type": "null"}],
    EXPERIMENTAL: True,
    EXTENSION: True,
}


def _with_meta(definition: JsonObject) -> JsonObject:
    if "oneOf" in definition:
        return {**definition, "oneOf": list(map(_with_meta, definition["oneOf"]))}
    return {**definition, "properties": {"_meta": _META, **definition.get("properties", {})}}


def _with_name(request: JsonObject) -> JsonObject:
    """Have a request without params take its name."""
    (method,) = request["properties"]["method"]["enum"]
    if request["properties"]["params"] != {"type": "null"} or not METHODS[method].takes_operation:
        return request
    params = {"anyOf": [{"type": "null"}, {"type": "object", "properties": {"_meta": _META}}]}
    return {**request, "properties": {**request["properties"], "params": params}}


def _message(
    method: str,
    kind: str,
    members: JsonObject,
    spec: MethodSpec | NotificationSpec | None = None,
) -> JsonObject:
    marks: JsonObject = {}
    if spec is not None and spec.experimental:
        marks[EXPERIMENTAL] = True
    if spec is not None and spec.extension:
        marks[EXTENSION] = True
    properties = {"method": {"type": "string", "enum": [method]}, **members}
    return {
        "title": f"{method[:1].upper()}{method[1:]}{kind}",
        "type": "object",
        "properties": properties,
        "required": list(properties),
        **marks,
    }
