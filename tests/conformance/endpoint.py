"""What the server scenarios of the conformance suite want to find behind a local route.

Its tools belong to one connector; what they do upstream is played here, as the suite says it.
Source: docs/mcp.md, "Conformance".
"""

from typing import Any

from app_server.mcp_wire.errors import PeerError
from protocol.model import JsonObject
from tests.support.apps.peer import Exchange, listed

CONNECTOR = "conformance"
PIXEL = (
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAA"
    "AABJRU5ErkJggg=="
)
SILENCE = "UklGRiQAAABXQVZFZm10IBAAAAABAAEAQB8AAIA+AAACABAAZGF0YQAAAAA="

TEXT: JsonObject = {"type": "text", "text": "This is a simple text response for testing."}
IMAGE: JsonObject = {"type": "image", "data": PIXEL, "mimeType": "image/png"}
AUDIO: JsonObject = {"type": "audio", "data": SILENCE, "mimeType": "audio/wav"}
EMBEDDED: JsonObject = {
    "type": "resource",
    "resource": {
        "uri": "test://embedded-resource",
        "mimeType": "text/plain",
        "text": "This is an embedded resource content.",
    },
}

RESULTS: dict[str, JsonObject] = {
    "test_simple_text": {"content": [TEXT]},
    "test_image_content": {"content": [IMAGE]},
    "test_audio_content": {"content": [AUDIO]},
    "test_embedded_resource": {"content": [EMBEDDED]},
    "test_multiple_content_types": {"content": [TEXT, IMAGE, EMBEDDED]},
    "test_error_handling": {
        "content": [{"type": "text", "text": "This tool intentionally returns an error"}],
        "isError": True,
    },
}

SCHEMA_2020_12: JsonObject = {
    "$schema": "https://json-schema.org/draft/2020-12/schema",
    "type": "object",
    "$defs": {
        "address": {
            "$anchor": "address",
            "type": "object",
            "properties": {"street": {"type": "string"}, "city": {"type": "string"}},
        }
    },
    "properties": {"name": {"type": "string"}, "address": {"$ref": "#/$defs/address"}},
    "allOf": [{"anyOf": [{"required": ["name"]}, {"required": ["address"]}]}],
    "if": {"required": ["address"]},
    "then": {"properties": {"name": {"minLength": 1}}},
    "else": {"required": ["name"]},
    "additionalProperties": False,
}

OPTIONS = ["option1", "option2", "option3"]
FORMS: dict[str, JsonObject] = {
    "test_elicitation": {"response": {"type": "string", "description": "User's response"}},
    "test_elicitation_sep1034_defaults": {
        "name": {"type": "string", "default": "John Doe"},
        "age": {"type": "integer", "default": 30},
        "score": {"type": "number", "default": 95.5},
        "status": {
            "type": "string",
            "enum": ["active", "inactive", "pending"],
            "default": "active",
        },
        "verified": {"type": "boolean", "default": True},
    },
    "test_elicitation_sep1330_enums": {
        "untitledSingle": {"type": "string", "enum": OPTIONS},
        "titledSingle": {
            "type": "string",
            "oneOf": [
                {"const": "value1", "title": "First Option"},
                {"const": "value2", "title": "Second Option"},
                {"const": "value3", "title": "Third Option"},
            ],
        },
        "legacyEnum": {
            "type": "string",
            "enum": ["opt1", "opt2", "opt3"],
            "enumNames": ["Option One", "Option Two", "Option Three"],
        },
        "untitledMulti": {"type": "array", "items": {"type": "string", "enum": OPTIONS}},
        "titledMulti": {
            "type": "array",
            "items": {
                "anyOf": [
                    {"const": "value1", "title": "First Choice"},
                    {"const": "value2", "title": "Second Choice"},
                    {"const": "value3", "title": "Third Choice"},
                ]
            },
        },
    },
}

ROUNDS = {
    "test_input_required_result_elicitation": 1,
    "test_input_required_result_request_state": 1,
    "test_input_required_result_tampered_state": 1,
    "test_input_required_result_capabilities": 1,
    "test_input_required_result_multi_round": 2,
}
"""How often the user is asked by tools of revisions without sessions."""

RESOURCES: dict[str, JsonObject] = {
    "test://static-text": {"mimeType": "text/plain", "text": "This is a static text resource."},
    "test://static-binary": {"mimeType": "image/png", "blob": PIXEL},
}
TEMPLATE = {
    "uriTemplate": "test://template/{id}/data",
    "name": "template",
    "mimeType": "application/json",
}

TOOLS = [
    *(
        listed(name, CONNECTOR, description=name)
        for name in (*RESULTS, *FORMS, *ROUNDS, "test_tool_with_progress")
    ),
    listed(
        "json_schema_2020_12_tool",
        CONNECTOR,
        description="JSON Schema 2020-12",
        inputSchema=SCHEMA_2020_12,
        meta={
            "ui": {"resourceUri": "test://static-text"},
            "ui/resourceUri": "test://static-binary",
            "openai/outputTemplate": "test://template/123/data",
        },
    ),
]


async def answer(exchange: Exchange) -> JsonObject:
    """Do what the endpoint would."""
    match exchange.method:
        case "tools/call":
            return await _call(exchange)
        case "resources/list":
            found = [{"uri": uri, "name": uri, **part} for uri, part in RESOURCES.items()]
            return {"resources": [{key: r[key] for key in ("uri", "name")} for r in found]}
        case "resources/templates/list":
            return {"resourceTemplates": [TEMPLATE]}
    uri = exchange.params["uri"]
    return {"contents": [{"uri": uri, **_resource(uri)}]}


def _resource(uri: str) -> JsonObject:
    if uri in RESOURCES:
        return RESOURCES[uri]
    if not uri.startswith("test://template/"):
        raise PeerError(-32002, "Resource not found", {"uri": uri})
    id_ = uri.split("/")[3]
    return {"mimeType": "application/json", "text": f'{{"id":"{id_}","templateTest":true}}'}


async def _call(exchange: Exchange) -> JsonObject:
    name = exchange.params["name"]
    if name in FORMS:
        schema = {"type": "object", "properties": FORMS[name], "required": []}
        message = exchange.params.get("arguments", {}).get("message", "Which?")
        said: Any = await exchange.peer.elicit({"message": message, "requestedSchema": schema})
        return {"content": [{"type": "text", "text": f"The user said: {said}"}]}
    for _ in range(ROUNDS.get(name, 0)):
        form = {"type": "object", "properties": {"name": {"type": "string"}}}
        await exchange.peer.elicit({"message": "Who?", "requestedSchema": form})
    if name in ROUNDS:
        return {"content": [{"type": "text", "text": "state-ok"}]}
    if name == "test_tool_with_progress" and exchange.report is not None:
        for progress in (0, 50, 100):
            await exchange.report(progress, 100, None)
    return RESULTS.get(name, {"content": [TEXT]})
