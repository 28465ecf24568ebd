"""Reading a file of another environment, which its exec server opens.

Source: docs/environments.md, "The exec protocol".
"""

from contextlib import AbstractAsyncContextManager

from app_server.host.exec.client.process import RemoteProcess


async def read_beginning(
    opening: AbstractAsyncContextManager[RemoteProcess], limit_bytes: int
) -> tuple[bytes, int]:
    """Return at most so many bytes of a file, and its size; `opening` is of Environments.open_file.

    Raises:
        ConnectionError: the environment is out of reach, or the file was not read to there.
        OSError: it is not there, is something else, or may not be read.
    """
    content = bytearray()
    async with opening as file:
        while len(content) < limit_bytes:
            if not (piece := await file.stdout.read(limit_bytes - len(content))):
                await file.ended.wait()
                break
            content += piece
    if len(content) < limit_bytes and file.returncode != 0:
        raise ConnectionError("it was not read to its end")
    return bytes(content), len(content) if file.size is None else file.size
