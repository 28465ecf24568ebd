"""A web server of its own process: the proxy refuses the ports of the server's process."""

import asyncio
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import anyio

from tests.support.harness import WAIT_S

PROGRAM = r"""
import socket, threading
listener = socket.create_server(("127.0.0.1", 0))
print(listener.getsockname()[1], flush=True)
def serve(connection):
    with connection:
        data = b""
        while b"\r\n\r\n" not in data:
            piece = connection.recv(65536)
            if not piece: return
            data += piece
        head, _, body = data.partition(b"\r\n\r\n")
        for line in head.lower().split(b"\r\n"):
            if line.startswith(b"content-length:"):
                while len(body) < int(line.split(b":")[1]): body += connection.recv(65536)
        answer = head + b"\n--\n" + body
        connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(answer) + answer)
while True:
    connection, _ = listener.accept()
    threading.Thread(target=serve, args=(connection,), daemon=True).start()
"""
"""Answers with what it was sent."""


@asynccontextmanager
async def origin() -> AsyncIterator[int]:
    """Run it; gives its port on 127.0.0.1."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-I", "-S", "-c", PROGRAM), stdout=asyncio.subprocess.PIPE
    )
    assert process.stdout is not None
    try:
        with anyio.fail_after(WAIT_S):
            port = int(await process.stdout.readline())
        yield port
    finally:
        process.kill()
        await process.wait()
