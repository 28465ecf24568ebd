"""An MCP server on stdio for tests that does its worst, as its argument says.

`hang` never answers initialize. `flood` writes to stderr without end. `garbage` answers every line
with nonsense, then with the answer. `huge` answers its tool with 100 MB in one line. `many` answers
it with a legal result of very many blocks. `die` ends in the middle of its tool. `says FILE` writes
the lines of a file instead of the answer to its tool, with the ids of the call and of its progress
in the place of ID and TOKEN.
"""

import json
import sys
import threading
from pathlib import Path

KIND = sys.argv[1]
TOOLS = [{"name": "act", "inputSchema": {"type": "object"}, "annotations": {"readOnlyHint": True}}]


def flood() -> None:
    """Write to stderr for as long as somebody reads."""
    while True:
        sys.stderr.write("x" * 65_536)


def send(message: object) -> None:
    """Write one message."""
    sys.stdout.write(json.dumps(message) + "\n")
    sys.stdout.flush()


def main() -> None:
    """Serve until stdin ends."""
    if KIND == "flood":
        threading.Thread(target=flood, daemon=True).start()
    for line in sys.stdin:
        message = json.loads(line)
        if KIND == "hang" or "id" not in message:
            continue
        if KIND == "garbage":
            sys.stdout.write('{"jsonrpc": "2.0", "id": 1\n\x00\xff\n[]\n"text"\n{"id": {}}\n')
        answer = {"jsonrpc": "2.0", "id": message["id"]}
        match message["method"]:
            case "initialize":
                info = {"name": KIND, "version": "1"}
                version = message["params"]["protocolVersion"]
                hello = {"protocolVersion": version, "capabilities": {}, "serverInfo": info}
                send({**answer, "result": hello})
            case "tools/list":
                send({**answer, "result": {"tools": TOOLS}})
            case "tools/call" if KIND == "die":
                sys.exit(3)
            case "tools/call" if KIND == "huge":
                for _ in range(1600):
                    sys.stdout.write("x" * 65_536)
                sys.stdout.flush()
            case "tools/call" if KIND == "says":
                said = Path(sys.argv[2]).read_text()
                token = message["params"].get("_meta", {}).get("progressToken")
                said = said.replace("ID", str(message["id"])).replace("TOKEN", str(token))
                sys.stdout.write(said)
                sys.stdout.flush()
            case "tools/call" if KIND == "many":
                block = {"type": "text", "text": "ab"}
                send({**answer, "result": {"content": [block] * 200_000}})
            case "tools/call":
                send({**answer, "result": {"content": [{"type": "text", "text": "done"}]}})


if __name__ == "__main__":
    main()
