"""An MCP server on stdio for tests that does what its revision has not, as its argument says.

`ends` ends at a first request that is no `initialize`, `silent` does not answer it, `refuses` does.
`asks-in-session` answers a call with `input_required` after a handshake. Without one: `requests`
sends a request of its own, `kind` answers with an unknown `resultType`, `strays` answers what was
not asked, `asks-nothing` and `asks-null` ask for input, but not for which. A second argument names
a file, which gets the first method of each start as a line, and the calls of these two.
"""

import json
import sys
from pathlib import Path

KIND, LOG = sys.argv[1], Path(sys.argv[2])
ASKS_NOTHING = ("asks-nothing", "asks-null")
IS_NEW = KIND in ("requests", "kind", "strays", *ASKS_NOTHING)
TOOLS = [{"name": "act", "inputSchema": {"type": "object"}}]
DONE: dict[str, object] = {"content": [{"type": "text", "text": "done"}]}


def send(message: dict[str, object]) -> None:
    """Write one message."""
    sys.stdout.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")
    sys.stdout.flush()


def call() -> dict[str, object]:
    """Answer a call of the tool."""
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
        if is_first or (method == "tools/call" and KIND in ASKS_NOTHING):
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
            "initialize": {"protocolVersion": "2025-06-18", "capabilities": {}},
            "tools/list": {"tools": TOOLS},
        }
        if IS_NEW:
            results["server/discover"] = {"supportedVersions": ["2026-07-28"], "capabilities": {}}
            del results["initialize"]
        if method == "tools/call":
            send({"id": message["id"], "result": call()})
        elif method in results:
            send({"id": message["id"], "result": results[method]})
        else:
            send({"id": message["id"], "error": {"code": -32601, "message": f"no {method}"}})


if __name__ == "__main__":
    main()
