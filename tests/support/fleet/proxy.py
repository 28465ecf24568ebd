"""TCP proxies before PostgreSQL and before a node: they cut, delay, and lose what is said.

What is lost is lost silently: no connection ends by it, and nobody is told of an end, as when a
machine or a cable is gone.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

CHUNK = 1 << 16


class DatabaseProxy:
    """Passes bytes on to the socket of a PostgreSQL, as long as it is not told otherwise."""

    def __init__(self, target: Path) -> None:
        """Name the folder with the socket of PostgreSQL."""
        self.target = target
        self.port = 0
        self.delay_s = 0.0
        """For which each piece is held back, in both directions."""
        self.is_cut = False
        self.swallows_answers = False
        """Whether what PostgreSQL says is lost, as in a network that broke in one direction."""
        self._is_heard = asyncio.Event()
        self._is_heard.set()
        self._open: set[asyncio.StreamWriter] = set()
        self._serving: set[asyncio.Task[None]] = set()

    @property
    def is_silent(self) -> bool:
        """Whether all is lost, in both directions, also of connections that are new."""
        return not self._is_heard.is_set()

    def silence(self) -> None:
        """Lose all until `heal`."""
        self._is_heard.clear()

    def cut(self) -> None:
        """Break all connections, and take no new ones until `heal`."""
        self.is_cut = True
        self.break_all()

    def break_all(self) -> None:
        """Break all connections that are open now."""
        for writer in self._open:
            writer.transport.abort()

    def heal(self) -> None:
        """Be a good network again; connections that lost something are broken."""
        if self.swallows_answers or self.is_silent:
            self.break_all()
        self.is_cut, self.swallows_answers = False, False
        self._is_heard.set()
        self.delay_s = 0.0

    @asynccontextmanager
    async def listening(self) -> AsyncIterator["DatabaseProxy"]:
        """Take connections while the context lasts."""
        server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.port = server.sockets[0].getsockname()[1]
        try:
            yield self
        finally:
            server.close()
            self._is_heard.set()
            self.cut()
            await server.wait_closed()
            # None is cancelled with the loop, of which asyncio would print a traceback.
            if self._serving:
                await asyncio.wait(self._serving)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        serving = asyncio.current_task()
        assert serving is not None
        self._serving.add(serving)
        serving.add_done_callback(self._serving.discard)
        self._open.add(writer)
        try:
            if self.is_cut:
                return
            with suppress(OSError):
                while self.is_silent and await reader.read(CHUNK):
                    pass
                behind = await self._connect()
                self._open.add(behind[1])
                try:
                    await asyncio.gather(
                        self._pass(reader, behind[1], are_answers=False),
                        self._pass(behind[0], writer, are_answers=True),
                    )
                finally:
                    self._open.discard(behind[1])
                    behind[1].transport.abort()
        finally:
            self._open.discard(writer)
            writer.transport.abort()

    def heard(self, piece: bytes) -> bytes:
        """Return what is passed on of a piece of an answer."""
        return piece

    async def _connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        return await asyncio.open_unix_connection(self.target / ".s.PGSQL.5432")

    async def _pass(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, *, are_answers: bool
    ) -> None:
        with suppress(OSError):
            while piece := await reader.read(CHUNK):
                if self.delay_s:
                    await asyncio.sleep(self.delay_s)
                if self.is_silent or (are_answers and self.swallows_answers):
                    continue
                writer.write(self.heard(piece) if are_answers else piece)
                await writer.drain()
        # One end has closed: so does the other, once it can be told.
        await self._is_heard.wait()
        writer.transport.abort()


class NodeProxy(DatabaseProxy):
    """Passes bytes on to a node, for others of its group."""

    def __init__(self) -> None:
        super().__init__(Path())
        self.node_port = 0
        """Port of the node, which is known once it listens."""

    async def _connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        return await asyncio.open_connection("127.0.0.1", self.node_port)
