"""A hand-written MCP server on stdio for tests: quick to start, and as badly behaved as told.

Arguments: `hang` never answers initialize; `die` ends at once; `unless FILE` ends at once if there
is such a file; `frail` ends when asked for resources; `garbage` prints nonsense first; `flood`
writes a lot to stderr; `deaf` reads nothing after its tools were listed; `big` adds a tool with a
huge result; `ui` adds tools for user interfaces; `paged` lists its tools a page each; `log FILE`
writes down what it reads; `answers FILE` takes results from a JSON object of methods, read anew for
each request, and a refusal from its `error`, a method and a text.

Two tools are not listed: `whoami` gives the process and a variable, `wait` stands between two pipes
with names.
"""

import json
import os
import signal
import sys
from functools import lru_cache
from pathlib import Path

READ_ONLY = {"readOnlyHint": True}
SANDBOX: dict[str, object] = {"experimental": {"codex/sandbox-state-meta": {}}}
HARMLESS = {"readOnlyHint": False, "destructiveHint": False, "openWorldHint": False}


def tool(name: str, description: str | None = None, **more: object) -> dict[str, object]:
    """Describe a tool."""
    described = {} if description is None else {"description": description}
    schema = {"type": "object", "properties": {"text": {"type": "string"}}}
    return {"name": name, **described, "inputSchema": schema, "annotations": READ_ONLY, **more}


TOOLS = [
    tool("meta", "Give back the metadata."),
    tool("fail"),
    tool("refuse"),
    tool("structured"),
    tool("blocks"),
    tool("slow"),
    tool("die"),
    tool("progress"),
    tool("wipe", "Destroy things.", annotations={"destructiveHint": True}, title="Wipe"),
    tool("plain", annotations=None),
    tool("request", "Ask the client and give back its answer.", annotations=HARMLESS),
    tool("meet", "Wait for another call."),
    tool("meet_writing", "Wait for another call.", annotations=None),
]

UI_TOOLS = [
    tool(f"for_{name}", _meta={"ui": {"visibility": visibility}})
    for name, visibility in {
        "app": ["app"],
        "nobody": [],
        "both": ["app", "model"],
        "model": ["model"],
        "nonsense": "app",
    }.items()
]

asked: dict[object, object] = {}
"""Ids of our own requests to ids of the calls that made them."""

met: list[tuple[object, object]] = []
"""Ids and numbers of calls that wait for each other."""


def text(value: object) -> dict[str, object]:
    """Make a result of one text block."""
    content = value if isinstance(value, str) else json.dumps(value)
    return {"content": [{"type": "text", "text": content}]}


def call(name: str, params: dict[str, object]) -> dict[str, object]:
    """Answer a tool call: `result` or `error`."""
    meta = params.get("_meta")
    if name == "meta":
        return {"result": text(meta)}
    if name == "fail":
        return {"result": {**text("it went wrong"), "isError": True}}
    if name == "refuse":
        return {"error": {"code": -32050, "message": "refused", "data": {"why": 1}}}
    if name == "structured":
        result = {**text("t"), "structuredContent": {"b": 1, "a": [2]}, "_meta": {"m": 1}}
        return {"result": result}
    if name == "blocks":
        blocks = [
            {"type": "image", "data": "AAAA", "mimeType": "image/png"},
            {"type": "audio", "data": "AAAA", "mimeType": "audio/wav"},
            {"type": "resource_link", "uri": "mem://a", "name": "a"},
        ]
        return {"result": {"content": blocks}}
    if name == "slow":
        return {}
    if name == "die":
        sys.exit(3)
    if name == "progress":
        assert isinstance(meta, dict)
        params_ = {"progressToken": meta["progressToken"], "progress": 1, "message": "half way"}
        send({"jsonrpc": "2.0", "method": "notifications/progress", "params": params_})
        return {"result": text("done")}
    if name == "whoami":
        return {"result": text([os.getpid(), os.environ.get("WHO")])}
    if name == "wait":
        arguments = params["arguments"]
        assert isinstance(arguments, dict)
        Path(arguments["reached"]).write_text("here")
        Path(arguments["opened"]).read_text()
        return {"result": text(os.getpid())}
    if name == "grow":
        TOOLS.append(tool(f"grown_{len(TOOLS)}"))
        send({"jsonrpc": "2.0", "method": "notifications/tools/list_changed"})
    if name == "huge":
        return {"result": text("x" * 3_000_000)}
    return {"result": text(f"{name} ran")}


read_answers = lru_cache(maxsize=1)(json.loads)
"""Reads what `answers` says: thousands of tools take their time, and hardly ever change."""


def answer(method: str, params: dict[str, object]) -> dict[str, object]:
    """Answer a request; an empty answer is not sent."""
    if "answers" in sys.argv:
        answers = read_answers(Path(sys.argv[sys.argv.index("answers") + 1]).read_text())
        if method in answers:
            return {"result": answers[method]}
        refused, why = answers.get("error", (None, None))
        if method == refused:
            return {"error": {"code": -32000, "message": why}}
    if method == "initialize":
        if "hang" in sys.argv:
            return {}
        result = {
            "protocolVersion": params["protocolVersion"],
            "capabilities": {
                "tools": {},
                "resources": {},
                **(SANDBOX if "sandbox" in sys.argv else {}),
            },
            "serverInfo": {"name": "peer", "version": "1"},
            "instructions": "Use it wisely.",
        }
        return {"result": result}
    if method == "tools/list":
        tools = TOOLS + ([tool("huge")] if "big" in sys.argv else [])
        tools = tools + (UI_TOOLS if "ui" in sys.argv else [])
        if "paged" not in sys.argv:
            return {"result": {"tools": tools, "_meta": {"list": 1}}}
        page = int(str(params.get("cursor", 0)))
        following = {"nextCursor": str(page + 1)} if page + 1 < len(tools) else {}
        return {"result": {"tools": tools[page : page + 1], **following}}
    if method == "tools/call":
        return call(str(params["name"]), params)
    if method == "resources/list" and "frail" in sys.argv:
        sys.exit(3)
    if method == "resources/list":
        return {"result": {"resources": [{"uri": "mem://a", "name": "a"}]}}
    if method == "resources/templates/list":
        return {"result": {"resourceTemplates": [{"uriTemplate": "mem://{x}", "name": "x"}]}}
    if method == "resources/read":
        if params["uri"] == "mem://die":
            sys.exit(3)
        return {"result": {"contents": [{"uri": params["uri"], "text": json.dumps(params)}]}}
    return {"error": {"code": -32601, "message": f"no {method}"}}


def send(message: dict[str, object]) -> None:
    """Write one message."""
    sys.stdout.write(json.dumps(message) + "\n")
    sys.stdout.flush()


def main() -> None:
    """Serve until stdin ends."""
    forbidden = sys.argv[sys.argv.index("unless") + 1] if "unless" in sys.argv else None
    if "die" in sys.argv or (forbidden is not None and Path(forbidden).exists()):
        print("cannot go on", file=sys.stderr)
        sys.exit(7)
    if "garbage" in sys.argv:
        print("this is not JSON", flush=True)
    if "flood" in sys.argv:
        sys.stderr.write("x" * 1_000_000)
    log = open(sys.argv[sys.argv.index("log") + 1], "a") if "log" in sys.argv else None
    for line in sys.stdin:
        if log is not None:
            log.write(line)
            log.flush()
        message = json.loads(line)
        name = message.get("params", {}).get("name")
        if "method" not in message and message["id"] in asked:
            reply = text({key: message[key] for key in ("result", "error") if key in message})
            send({"jsonrpc": "2.0", "id": asked.pop(message["id"]), "result": reply})
        elif name == "request":
            question_id = f"ask-{message['id']}"
            asked[question_id] = message["id"]
            send({"jsonrpc": "2.0", "id": question_id, **message["params"]["arguments"]})
        elif name in ("meet", "meet_writing"):
            met.append((message["id"], message["params"]["arguments"]["n"]))
            if len(met) == 2:
                for request_id, number in reversed(met):
                    result = text(f"met {number}")
                    send({"jsonrpc": "2.0", "id": request_id, "result": result})
        elif "id" in message and "method" in message:
            answered = answer(message["method"], message.get("params", {}))
            if answered:
                if "deaf" in sys.argv and message["method"] == "tools/list":
                    send({"jsonrpc": "2.0", "id": message["id"], **answered})
                    signal.pause()
                send({"jsonrpc": "2.0", "id": message["id"], **answered})


if __name__ == "__main__":
    main()
