"""A model that answers at once, as a process of its own so that it does not slow the bench down.

Run by tests/bench.py; prints its port. It speaks just enough HTTP for the clients at hand: the
number of deltas is in the last user message (`deltas 2000`), else there is one.
"""

import asyncio
import json
import re
from typing import Any


def answer(deltas: int) -> bytes:
    """Render one response of the Responses API as a chunked event stream."""
    usage = {"input_tokens": 1, "output_tokens": 1, "total_tokens": 2}
    message = {"type": "message", "role": "assistant", "id": "msg_1"}
    text = "word " * deltas
    events: list[dict[str, Any]] = [
        {"type": "response.created", "response": {"id": "resp_1"}},
        {"type": "response.output_item.added", "item": {**message, "content": []}},
        *(
            {"type": "response.output_text.delta", "item_id": "msg_1", "delta": "word "}
            for _ in range(deltas)
        ),
        {
            "type": "response.output_item.done",
            "item": {**message, "content": [{"type": "output_text", "text": text}]},
        },
        {"type": "response.completed", "response": {"id": "resp_1", "usage": usage}},
    ]
    body = b"".join(
        b"event: %b\ndata: %b\n\n" % (str(e["type"]).encode(), json.dumps(e).encode())
        for e in events
    )
    return (
        b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
        b"%x\r\n%b\r\n0\r\n\r\n" % (len(body), body)
    )


ANSWERS = {deltas: answer(deltas) for deltas in (1, 2000)}
NOT_FOUND = b"HTTP/1.1 404 Not Found\r\ncontent-length: 2\r\n\r\n{}"


async def converse(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Answer one connection's requests."""
    try:
        while True:
            head = await reader.readuntil(b"\r\n\r\n")
            length = re.search(rb"content-length: (\d+)", head, re.IGNORECASE)
            body = await reader.readexactly(int(length[1])) if length else b""
            if head.startswith(b"POST"):
                writer.write(ANSWERS[2000 if b"deltas 2000" in body[-4000:] else 1])
            else:
                writer.write(NOT_FOUND)
            await writer.drain()
    except (asyncio.IncompleteReadError, ConnectionError):
        writer.close()


async def main() -> None:
    """Serve on a free port until killed."""
    server = await asyncio.start_server(converse, "127.0.0.1", 0, limit=1 << 26)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(main())
