"""What command/exec and process/* do alike with the programs that a client runs.

Source: docs/tools.md, "Host methods".
"""

import base64
from contextlib import AbstractContextManager
from functools import partial
from typing import Protocol

from app_server.handlers.host.program_params import Size as GivenSize
from app_server.handlers.host.program_params import checked_size, program_failures
from app_server.host.commands.command import Stream
from app_server.host.programs.outlet import Outlet
from app_server.host.programs.program import Program
from app_server.host.programs.programs import Programs
from app_server.rpc.context import ConnectionId
from app_server.rpc.hub.hub import Hub
from protocol.model import WireModel


class OutputEvent(Protocol):
    """Makes an event of a piece of output."""

    def __call__(self, *, stream: Stream, delta_base64: str, cap_reached: bool) -> WireModel:
        """`cap_reached`: the bound ends the stream with this piece."""


class ClientPrograms:
    """The programs of one kind; those of a client end with its connection."""

    def __init__(self, hub: Hub, kind: str, name_of_id: str, noun: str) -> None:
        """`kind`, `name_of_id` and `noun` are what errors call programs, their ids, and a spawn."""
        self._hub = hub
        self._running = Programs(kind, name_of_id)
        self._kind = kind
        self._noun = noun

    def failures(self) -> AbstractContextManager[None]:
        """Translate why a program is not started, or does not do what it is asked for."""
        return program_failures(self._noun)

    def outlet(self, client: ConnectionId, cap: int | None, event: OutputEvent | None) -> Outlet:
        """Make an outlet that sends events to a client, or keeps all; `cap`: bytes of a stream."""

        def send(made: OutputEvent, stream: Stream, piece: bytes, cap_reached: bool) -> None:
            encoded = base64.b64encode(piece).decode("ascii")
            event = made(stream=stream, delta_base64=encoded, cap_reached=cap_reached)
            self._hub.notify(client, event)

        on_piece = None if event is None else partial(send, event)
        return Outlet(cap, on_piece, partial(self._hub.connections.waiting_chars, client))

    def entered(
        self, client: ConnectionId, program_id: str | None, program: Program
    ) -> AbstractContextManager[None]:
        """Know a program for as long as the context lasts; without an id nobody can ask for it.

        Raises:
            ProgramRefused: the client has one of this id, or as many as it may.
        """
        self._hub.connections.when_gone(client, self._running.terminate_all)
        return self._running.entered(client, program_id, program)

    def write(self, client: ConnectionId, program_id: str, data: bytes, *, close: bool) -> None:
        """Write to the input of a program; `close` ends the input after that.

        Raises:
            RpcError: none of this id runs, or it takes no input.
        """
        with self.failures():
            self._running.find(client, program_id).write(data, close=close)

    def resize(self, client: ConnectionId, program_id: str, size: GivenSize) -> None:
        """Change the size of a program's terminal.

        Raises:
            RpcError: it is no size, or the program has no terminal.
        """
        checked = checked_size(size, self._kind)
        with self.failures():
            self._running.find(client, program_id).resize(checked)

    def terminate(self, client: ConnectionId, program_id: str) -> None:
        """Have a program ended.

        Raises:
            RpcError: none of this id runs.
        """
        with self.failures():
            self._running.find(client, program_id).terminate()
