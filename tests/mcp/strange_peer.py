"""An MCP server on stdio for tests that does what its revision has not, as its argument says.

`ends` ends at a first request that is no `initialize`, `silent` does not answer it, `refuses` does.
`asks-in-session` answers a call with `input_required` after a handshake. Without one: `requests`
sends a request of its own, `kind` answers with an unknown `resultType`, `strays` answers what was
not asked, `asks-nothing` and `asks-null` ask for input, but not for which, `cancels` cancels a call
and answers it, `listens` and `vain` end streams of changes, `vain` before it takes them up, and
`listens` but the third. `twice` lists a tool twice, `again` once it was called, `floods` sends much
progress, `talks` logs much, and `changes` has the newer revision from its second start on. A second
argument names a file: it gets the first method of each start as a line, and the calls or streams of
some of these.
"""

import json
import sys
from pathlib import Path

KIND, LOG = sys.argv[1], Path(sys.argv[2])
ASKS_NOTHING = ("asks-nothing", "asks-null")
LOGS = {
    "tools/call": ASKS_NOTHING,
    "subscriptions/listen": ("listens", "vain"),
}
HAS_STARTED = LOG.exists()
IS_NEW = KIND in ("requests", "kind", "strays", "cancels", "listens", "vain", *ASKS_NOTHING) or (
    KIND == "changes" and HAS_STARTED
)
TOOLS: list[dict[str, object]] = [
    {"name": name, "inputSchema": {"type": "object"}, "annotations": {"readOnlyHint": True}}
    for name in ("act", "plain", *(["act"] if KIND == "twice" else []))
]
CAPABILITIES = {"tools": {"listChanged": KIND in ("listens", "vain")}}
PIECES = 2000
DONE: dict[str, object] = {"content": [{"type": "text", "text": "done"}]}


def send(message: dict[str, object]) -> None:
    """Write one message."""
    sys.stdout.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")
    sys.stdout.flush()


listened: list[object] = []
"""Ids of the requests for changes."""


def listen(request_id: object) -> None:
    """Take up a stream of changes, or end it."""
    listened.append(request_id)
    meta = {"io.modelcontextprotocol/subscriptionId": request_id}
    if KIND == "listens":
        taken = {"notifications": {"toolsListChanged": True}, "_meta": meta}
        send({"method": "notifications/subscriptions/acknowledged", "params": taken})
    if KIND == "vain" or len(listened) < 3:
        send({"method": "notifications/cancelled", "params": {"requestId": request_id}})
    else:
        TOOLS.append({"name": "late", "inputSchema": {"type": "object"}})
        send({"method": "notifications/tools/list_changed", "params": {"_meta": meta}})


def call(message: dict[str, dict[str, object]]) -> dict[str, object]:
    """Answer a call of a tool; `plain` does nothing odd."""
    if message["params"]["name"] == "plain":
        return DONE
    if KIND == "cancels":
        params = {"requestId": message["id"]}
        send({"method": "notifications/cancelled", "params": params})
    if KIND == "again":
        TOOLS.append(TOOLS[0])
        send({"method": "notifications/tools/list_changed"})
    if KIND == "talks":
        for number in range(PIECES):
            params_ = {"level": "info", "logger": "much", "data": f"{number} {'x' * 100}"}
            send({"method": "notifications/message", "params": params_})
    if KIND == "floods":
        meta = message["params"]["_meta"]
        assert isinstance(meta, dict)
        for number in range(PIECES):
            piece = {"progressToken": meta["progressToken"], "progress": number, "message": "."}
            send({"method": "notifications/progress", "params": piece})
    if KIND == "requests":
        question = {"message": "?", "requestedSchema": {"type": "object", "properties": {}}}
        send({"id": "mine", "method": "elicitation/create", "params": question})
    if KIND == "strays":
        send({"id": 4711, "result": {"of": "another"}})
    if KIND in ("asks-in-session", "asks-nothing"):
        return {"resultType": "input_required", "inputRequests": {}}
    if KIND == "asks-null":
        return {"resultType": "input_required", "requestState": None}
    return {**DONE, "resultType": "other"} if KIND == "kind" else DONE


def main() -> None:
    """Serve until stdin ends."""
    is_first = True
    for line in sys.stdin:
        message = json.loads(line)
        method = message.get("method")
        if is_first or KIND in LOGS.get(method, ()):
            with LOG.open("a") as log:
                log.write(f"{method}\n")
        if is_first and method != "initialize" and KIND == "ends":
            sys.exit(1)
        is_first = False
        if "id" not in message or "method" not in message:
            continue
        if method == "server/discover" and KIND == "silent":
            continue
        results: dict[str, dict[str, object]] = {
            "initialize": {"protocolVersion": "2025-06-18", "capabilities": CAPABILITIES},
            "tools/list": {"tools": TOOLS},
        }
        if IS_NEW:
            hello: dict[str, object] = {
                "supportedVersions": ["2026-07-28"],
                "capabilities": CAPABILITIES,
            }
            results["server/discover"] = hello
            del results["initialize"]
        if method == "subscriptions/listen":
            listen(message["id"])
        elif method == "tools/call":
            send({"id": message["id"], "result": call(message)})
        elif method in results:
            send({"id": message["id"], "result": results[method]})
        else:
            send({"id": message["id"], "error": {"code": -32601, "message": f"no {method}"}})


if __name__ == "__main__":
    main()
