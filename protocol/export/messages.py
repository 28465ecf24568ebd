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


def _ref(name: str) -> JsonObject:
    return {"$ref": REF + name}
