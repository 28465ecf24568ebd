"""Pages that a command fetches through the proxy: with Python, as not every machine has curl."""

import shlex

from tests.support.host.sandboxes import PYTHON

PROGRAM = r"""
import os, socket, sys
from urllib.parse import urlsplit

def exactly(stream, count):
    data = stream.read(count)
    assert len(data) == count, data
    return data

def status(way, url):
    parts = urlsplit(url)
    port = parts.port or {"http": 80, "https": 443}[parts.scheme]
    proxy = urlsplit(os.environ["http_proxy"]) if way != "direct" else parts
    connection = socket.create_connection((proxy.hostname, proxy.port), timeout=60)
    with connection, connection.makefile("rwb") as stream:
        if way == "socks":
            host = parts.hostname.encode()
            stream.write(b"\5\1\0")
            stream.flush()
            assert exactly(stream, 2) == b"\5\0"
            stream.write(b"\5\1\0\3" + bytes([len(host)]) + host + port.to_bytes(2, "big"))
            stream.flush()
            assert exactly(stream, 4)[:2] == b"\5\0"
            exactly(stream, 6)
        request = f"CONNECT {parts.hostname}:{port}" if way == "tunnel" else f"GET {url}"
        stream.write(f"{request} HTTP/1.1\r\nHost: {parts.netloc}\r\n\r\n".encode())
        stream.flush()
        return stream.readline().split()[1].decode()

for word in sys.argv[1:]:
    way, _, url = word.rpartition("=")
    try:
        print(status(way, url), end=" ")
    except OSError as exc:
        print(exc.strerror, end=" ")
"""


def fetch_line(*urls: str) -> str:
    """Give a shell's line that prints the status, or the error, of each URL, and a space.

    Each is fetched through the proxy that `http_proxy` names, with a GET. A prefix says otherwise:
    `tunnel=` with a CONNECT, of which the status is printed, `socks=` with SOCKS 5 at the same
    port, `direct=` without the proxy.
    """
    return shlex.join([*PYTHON, PROGRAM, *urls])
