"""An MCP server on stdio that answers calls in another order than they came in.

The argument is its revision. A call has a number `n`, and says how many calls come (`calls`), how
many of them will be cancelled (`cancels`), its `rank` among the answers, how many pieces of
progress are sent at once, and whether the server `asks` the user before it answers. Answers wait
for all calls and all cancellations; a cancelled call is answered all the same, and asks nothing.
"""

import json
import sys
from typing import Any

REVISION = sys.argv[1]
IS_STATELESS = REVISION == "2026-07-28"
HELLO = {"supportedVersions": [REVISION], "protocolVersion": REVISION, "capabilities": {}}
SCHEMA: dict[str, object] = {"type": "object", "properties": {}}

held: list[tuple[object, dict[str, Any]]] = []
"""Ids and arguments of the calls that came."""

cancelled: set[object] = set()
"""Ids of calls that were cancelled."""


def send(**message: object) -> None:
    """Write one message."""
    sys.stdout.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")
    sys.stdout.flush()


def answer(request_id: object, number: int, said: object = None) -> None:
    """Answer a call with its number and what the user said."""
    text = json.dumps({"n": number, "said": said})
    send(id=request_id, result={"content": [{"type": "text", "text": text}]})


def ask(request_id: object, number: int) -> None:
    """Ask what a call wants to know, in the way of the revision."""
    params = {"message": str(number), "requestedSchema": SCHEMA}
    question = {"method": "elicitation/create", "params": params}
    if not IS_STATELESS:
        send(id=json.dumps([request_id, number]), **question)
        return
    asked = {"resultType": "input_required", "inputRequests": {"q": question}}
    send(id=request_id, result={**asked, "requestState": str(number)})


def hold(request_id: object, params: dict[str, Any]) -> None:
    """Report the progress of a call, and keep it."""
    arguments, token = params["arguments"], params["_meta"]["progressToken"]
    held.append((request_id, arguments))
    for number in range(arguments["progress"]):
        piece = {"progressToken": token, "progress": number, "message": f"{arguments['n']}"}
        send(method="notifications/progress", params=piece)


def answer_all() -> None:
    """Answer, or ask, once all is there."""
    first = held[0][1] if held else {"calls": 1, "cancels": 0}
    if len(held) < first["calls"] or len(cancelled) < first["cancels"]:
        return
    for request_id, arguments in sorted(held, key=lambda one: one[1]["rank"]):
        if arguments["asks"] and (IS_STATELESS or request_id not in cancelled):
            ask(request_id, arguments["n"])
        else:
            answer(request_id, arguments["n"])
    held.clear()


for line in sys.stdin:
    came = json.loads(line)
    found, sent = came.get("method"), came.get("params", {})
    if found in ("initialize", "server/discover"):
        send(id=came["id"], result=HELLO)
    elif found == "tools/list":
        send(id=came["id"], result={"tools": [{"name": "act", "inputSchema": SCHEMA}]})
    elif found == "notifications/cancelled":
        cancelled.add(sent["requestId"])
        answer_all()
    elif found == "tools/call" and "requestState" in sent:
        answer(came["id"], int(sent["requestState"]), sent["inputResponses"]["q"])
    elif found == "tools/call":
        hold(came["id"], sent)
        answer_all()
    elif found is None:
        request, n = json.loads(came["id"])
        answer(request, n, came.get("result", "refused"))
