"""A hand-written MCP server on stdio for tests: quick to start, and as badly behaved as told.

Arguments: `hang` never answers initialize; `die` ends at once; `garbage` prints nonsense first;
`flood` writes a lot to stderr; `deaf` reads nothing after its tools were listed; `big` adds a tool
with a huge result; `paged` lists its tools a page each.
"""

import json
import signal
import sys

READ_ONLY = {"readOnlyHint": True}


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
]


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
    if name == "huge":
        return {"result": text("x" * 3_000_000)}
    return {"result": text(f"{name} ran")}


def answer(method: str, params: dict[str, object]) -> dict[str, object]:
    """Answer a request; an empty answer is not sent."""
    if method == "initialize":
        if "hang" in sys.argv:
            return {}
        result = {
            "protocolVersion": params["protocolVersion"],
            "capabilities": {"tools": {}, "resources": {}},
            "serverInfo": {"name": "peer", "version": "1"},
            "instructions": "Use it wisely.",
        }
        return {"result": result}
    if method == "tools/list":
        tools = TOOLS + ([tool("huge")] if "big" in sys.argv else [])
        if "paged" not in sys.argv:
            return {"result": {"tools": tools, "_meta": {"list": 1}}}
        page = int(str(params.get("cursor", 0)))
        following = {"nextCursor": str(page + 1)} if page + 1 < len(tools) else {}
        return {"result": {"tools": tools[page : page + 1], **following}}
    if method == "tools/call":
        return call(str(params["name"]), params)
    if method == "resources/list":
        return {"result": {"resources": [{"uri": "mem://a", "name": "a"}]}}
    if method == "resources/templates/list":
        return {"result": {"resourceTemplates": [{"uriTemplate": "mem://{x}", "name": "x"}]}}
    if method == "resources/read":
        return {"result": {"contents": [{"uri": params["uri"], "text": json.dumps(params)}]}}
    return {"error": {"code": -32601, "message": f"no {method}"}}


def send(message: dict[str, object]) -> None:
    """Write one message."""
    sys.stdout.write(json.dumps(message) + "\n")
    sys.stdout.flush()


def main() -> None:
    """Serve until stdin ends."""
    if "die" in sys.argv:
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
        if "id" in message and "method" in message:
            answered = answer(message["method"], message.get("params", {}))
            if answered:
                if "deaf" in sys.argv and message["method"] == "tools/list":
                    send({"jsonrpc": "2.0", "id": message["id"], **answered})
                    signal.pause()
                send({"jsonrpc": "2.0", "id": message["id"], **answered})


if __name__ == "__main__":
    main()
