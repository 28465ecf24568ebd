"""One connection to an exec server: how it is reached, and the processes that are started over it.

When it ends, for whatever reason, everything that waits on it fails at once.
Source: docs/environments.md, "Adding an environment", "The exec protocol".
"""

import asyncio
import itertools
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Literal, TypeVar

import anyio
from pydantic import ValidationError
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import (
    ConnectionClosed,
    InvalidMessage,
    InvalidStatus,
    WebSocketException,
)

from app_server.host.exec.client.address import ExecAddress
from app_server.host.exec.client.process import RemoteProcess
from app_server.host.exec.client.starts import Start
from app_server.host.exec.protocol import (
    MAX_FRAME_BYTES,
    VERSION,
    ProtocolBroken,
    pack,
    parse,
    read_params,
    render,
    unpack,
)
from protocol.exec.processes import (
    ExecEnvironmentInfoResponse,
    ExecInitializeParams,
    ExecInitializeResponse,
    ExecMessage,
    ProcessCreditParams,
    ProcessExitedParams,
    ProcessParams,
    ProcessStartResponse,
)
from protocol.jsonrpc.errors import ErrorObject
from protocol.model import Json, WireModel

Result = TypeVar("Result", bound=WireModel)

CLOSED = "the connection to the exec server is closed"

ANSWER_S = 30.0
"""For the answer to a request; the start of a process may take as long."""

SEND_S = 30.0
"""For the exec server to take a message; then it counts as gone."""

END_S = 5.0
"""For a process to end that was asked to: it gets SIGKILL after 2 s."""


class ExecConnection:
    """A connection that has shaken hands. `run` owns it."""

    def __init__(self, socket: ClientConnection) -> None:
        self.answer_s = ANSWER_S
        """Seconds for the answer to a request."""
        self.send_s = SEND_S
        """Seconds for the exec server to take a frame."""
        self.end_s = END_S
        """Seconds for a process to end that was asked to."""
        self._socket = socket
        self._request_ids = itertools.count(1)
        self._process_ids = itertools.count(1)
        self._asked: dict[int, asyncio.Future[ExecMessage]] = {}
        self._processes: dict[int, RemoteProcess] = {}
        self._control: deque[str] = deque()
        self._with_input: deque[RemoteProcess] = deque()
        self._wake = anyio.Event()
        self._scope = anyio.CancelScope()
        self.closed = anyio.Event()
        self.loss = CLOSED
        """Why it ended."""

    async def run(self) -> None:
        """Read and write until the connection ends or is closed."""
        try:
            with self._scope:
                async with anyio.create_task_group() as tasks:
                    tasks.start_soon(self._write)
                    self.loss = await self._read()
                    tasks.cancel_scope.cancel()
        finally:
            self.closed.set()
            for answer in self._asked.values():
                if not answer.done():
                    answer.set_exception(ConnectionError(self.loss))
            for process in list(self._processes.values()):
                process.lost()

    def close(self, why: str) -> None:
        """End the connection; its processes end with it."""
        if not self.closed.is_set():
            self.loss = why
            self._scope.cancel()

    async def info(self) -> ExecEnvironmentInfoResponse:
        """Ask about the machine.

        Raises:
            ConnectionError: the connection has ended, or there was no answer.
        """
        return _result_of(ExecEnvironmentInfoResponse, await self._ask("environment/info", None))

    @asynccontextmanager
    async def start(self, start: Start) -> AsyncIterator[RemoteProcess]:
        """Run something for as long as the context lasts; leaving ends it.

        Raises:
            ConnectionError: the connection has ended, or there was no answer.
            OSError: it cannot be started there, or not be confined; it may have the number of an
                error of that machine.
        """
        number = next(self._process_ids)
        params = start.params.model_copy(update={"process_id": number})
        process = RemoteProcess(number, start.read_limit_bytes, self._credit, self._queue_input)
        self._processes[number] = process
        try:
            await self._start(process, start.method, params)
            yield process
        finally:
            if not process.ended.is_set():
                self._kill(process)
                with anyio.CancelScope(shield=True), anyio.move_on_after(self.end_s):
                    await process.ended.wait()
            del self._processes[number]

    async def _start(self, process: RemoteProcess, method: str, params: WireModel) -> None:
        try:
            answer = await self._ask(method, params)
            process.size = _result_of(ProcessStartResponse, answer).size
        except OSError:
            # It may start all the same, if it was the answer that did not come.
            self._kill(process)
            process.lost()
            raise

    def _kill(self, process: RemoteProcess) -> None:
        params = ProcessParams(process_id=process.id)
        self._post(render(method="process/kill", params=params))

    async def _ask(self, method: str, params: WireModel | None) -> Json:
        if self.closed.is_set():
            raise ConnectionError(self.loss)
        request_id = next(self._request_ids)
        text = render(id=request_id, method=method, params=params or {})
        if len(text.encode()) > MAX_FRAME_BYTES:
            raise OSError(f"{method} needs more than {MAX_FRAME_BYTES} bytes")
        answer = self._asked[request_id] = asyncio.get_running_loop().create_future()
        self._post(text)
        try:
            with anyio.fail_after(self.answer_s):
                message = await answer
        except TimeoutError:
            raise ConnectionError(f"no answer to {method} in {self.answer_s:g} s") from None
        finally:
            del self._asked[request_id]
        if message.error is not None:
            raise _failure_of(message.error)
        return message.result

    # Writing.

    def _post(self, text: str) -> None:
        self._control.append(text)
        self._wake.set()

    def _credit(self, process_id: int, stream: Literal["stdout", "stderr"], count: int) -> None:
        params = ProcessCreditParams(process_id=process_id, stream=stream, bytes=count)
        self._post(render(method="process/credit", params=params))

    def _queue_input(self, process: RemoteProcess) -> None:
        if process not in self._with_input:
            self._with_input.append(process)
        self._wake.set()

    async def _write(self) -> None:
        try:
            while True:
                await self._wake.wait()
                self._wake = anyio.Event()
                while (frame := self._next_frame()) is not None:
                    with anyio.fail_after(self.send_s):
                        await self._socket.send(frame)
        except ConnectionClosed:
            # The reader finds out why.
            return
        except TimeoutError:
            self.close("the exec server does not read")

    def _next_frame(self) -> str | bytes | None:
        """Return the next frame to send: control first, then a chunk of each process in turn."""
        if self._control:
            return self._control.popleft()
        while self._with_input:
            process = self._with_input.popleft()
            if (piece := process.take_input()) is not None:
                self._with_input.append(process)
                return pack("stdin", process.id, piece)
        return None

    # Reading.

    async def _read(self) -> str:
        """Take messages until the connection ends; returns why it did."""
        try:
            while True:
                frame = await self._socket.recv()
                if isinstance(frame, bytes):
                    self._take_output(frame)
                else:
                    self._on_message(parse(frame))
        except ConnectionClosed as exc:
            return f"the connection to the exec server was lost: {exc}"
        except ProtocolBroken as exc:
            return f"the exec server broke the protocol: {exc}"

    def _take_output(self, frame: bytes) -> None:
        stream, process_id, data = unpack(frame)
        if stream == "stdin":
            raise ProtocolBroken("input from an exec server")
        if (process := self._processes.get(process_id)) is not None:
            process.feed(stream, data)

    def _on_message(self, message: ExecMessage) -> None:
        if message.method == "process/credit":
            credit = read_params(ProcessCreditParams, message)
            if (process := self._processes.get(credit.process_id)) is not None:
                process.grant(credit.bytes)
        elif message.method == "process/exited":
            exited = read_params(ProcessExitedParams, message)
            if (process := self._processes.get(exited.process_id)) is not None:
                process.exited(exited)
        elif message.id is not None:
            answer = self._asked.get(message.id)
            if answer is not None and not answer.done():
                answer.set_result(message)


def _failure_of(error: ErrorObject) -> OSError:
    """Make an error of the exec server one of this machine; numbers are the other machine's."""
    number = error.data.get("errno") if isinstance(error.data, dict) else None
    return OSError(number, error.message) if isinstance(number, int) else OSError(error.message)


def _result_of(kind: type[Result], value: Json) -> Result:
    try:
        return kind.model_validate(value)
    except ValidationError as exc:
        raise ConnectionError("the exec server gave an answer that makes no sense") from exc


CLIENT_NAME = "app-server"

PING_S = 20.0
"""Between pings, and for the pong; then the exec server counts as gone."""

CLOSE_S = 2.0


class _Connect(connect):
    def process_redirect(self, exc: Exception) -> Exception | str:
        """Follow none: the token was meant for this address."""
        return exc


@asynccontextmanager
async def open_exec_connection(address: ExecAddress) -> AsyncIterator[ExecConnection]:
    """Connect and shake hands; leaving closes the connection.

    Raises:
        ConnectionError: nobody answers there, or not like an exec server.
        TimeoutError: not in time.
        PermissionError: the exec server refuses this client.
    """
    doing = f"failed to connect to exec-server websocket `{address.shown}`"
    try:
        with anyio.fail_after(address.connect_s):
            socket = await _connect(address)
            try:
                await _shake_hands(socket)
            except BaseException:
                with anyio.CancelScope(shield=True):
                    await socket.close()
                raise
    except TimeoutError as exc:
        raise TimeoutError(f"{doing}: timed out after {address.connect_s:g} s") from exc
    except InvalidStatus as exc:
        status = exc.response.status_code
        kind = PermissionError if status in (401, 403) else ConnectionError
        raise kind(f"{doing}: HTTP status {status}") from exc
    except ConnectionClosed as exc:
        raise ConnectionError(f"{doing}: {exc}") from exc
    except ProtocolBroken as exc:
        raise PermissionError(f"{doing}: {exc}") from exc
    except (OSError, ValueError, ImportError, WebSocketException) as exc:
        raise ConnectionError(f"{doing}: {_words(exc)}") from exc
    try:
        yield ExecConnection(socket)
    finally:
        with anyio.CancelScope(shield=True), anyio.move_on_after(CLOSE_S):
            await socket.close()


async def _connect(address: ExecAddress) -> ClientConnection:
    return await _Connect(
        address.url,
        additional_headers=address.headers,
        user_agent_header=CLIENT_NAME,
        # A loopback address is here, whatever proxy there is.
        proxy=None if address.is_loopback else True,
        compression=None,
        max_size=MAX_FRAME_BYTES,
        open_timeout=None,
        close_timeout=CLOSE_S,
        ping_interval=PING_S,
        ping_timeout=PING_S,
    )


async def _shake_hands(socket: ClientConnection) -> None:
    hello = ExecInitializeParams(protocol_version=VERSION, client_name=CLIENT_NAME)
    await socket.send(render(id=0, method="initialize", params=hello))
    frame = await socket.recv()
    answer = parse(frame) if isinstance(frame, str) else ExecMessage()
    if answer.error is not None or answer.id != 0:
        raise ProtocolBroken("it does not speak this exec protocol")
    try:
        version = ExecInitializeResponse.model_validate(answer.result).protocol_version
    except ValidationError as exc:
        raise ProtocolBroken("it does not speak this exec protocol") from exc
    if version != VERSION:
        raise ProtocolBroken(f"it speaks version {version}, not {VERSION}")


def _words(exc: Exception) -> str:
    """Describe a failure without texts of libraries, which repeat whole URLs."""
    match exc:
        case ConnectionRefusedError():
            return "connection refused"
        case OSError() if exc.errno is not None and exc.strerror:
            return exc.strerror
        case OSError() if "Connect call failed" in str(exc):
            # All addresses of a name in one text.
            return "connection refused"
        case InvalidMessage():
            return "no answer in HTTP"
        case ImportError():
            return "this proxy needs the Python package python-socks"
        case UnicodeError():
            return "no such host name"
    return type(exc).__name__
