"""One command as clients and the model see it: an item that begins, prints and ends.

Source: docs/tools.md, "Commands".
"""

import asyncio
import logging
import time
from collections.abc import Sequence
from secrets import token_hex

import anyio

from app_server.host.commands.local_command import LocalCommand
from app_server.host.commands.output import KeptOutput, without_split_end
from app_server.host.commands.reading import Stream
from app_server.host.exec.client.command import RemoteCommand
from app_server.turns.recorder import TurnRecorder
from protocol.turns.items import CommandExecutionOutputDeltaNotification, CommandExecutionThreadItem

MAX_DELTA_BYTES = 8 * 1024
INTERVAL_S = 0.05
"""Between two deltas of one command."""

_NOTE_BYTES = 64
"""Room for the line that says how much was left out."""


class OutputDeltas:
    """Turns the output of one command into deltas; what is too much is cut in the middle."""

    def __init__(self, recorder: TurnRecorder, item_id: str) -> None:
        self._recorder = recorder
        self._item_id = item_id
        self._loop = asyncio.get_running_loop()
        self._pending = KeptOutput(MAX_DELTA_BYTES - _NOTE_BYTES)
        self._next_s = 0.0
        self._timer: asyncio.TimerHandle | None = None

    def add(self, data: bytes) -> None:
        """Take output; it is sent now, or with what comes soon."""
        self._pending.add(data)
        if self._timer is not None:
            return
        wait_s = self._next_s - self._loop.time()
        if wait_s <= 0:
            self.send()
        else:
            self._timer = self._loop.call_later(wait_s, self.send)

    def send(self, *, is_last: bool = False) -> None:
        """Send at once what waits; a character that is not whole yet only if nothing follows."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        pending = self._pending
        if not pending.total:
            return
        self._pending = KeptOutput(MAX_DELTA_BYTES - _NOTE_BYTES)
        if pending.lost_bytes:
            text = pending.text()
        else:
            data = pending.all()
            # A character that is not whole yet waits for its rest.
            whole = data if is_last else without_split_end(data)
            self._pending.add(data[len(whole) :])
            text = whole.decode(errors="replace")
        if text:
            self._next_s = self._loop.time() + INTERVAL_S
            self._recorder.emit(
                CommandExecutionOutputDeltaNotification(
                    **self._recorder.ids, item_id=self._item_id, delta=_within(text)
                )
            )


def _within(text: str) -> str:
    """Cut what grew beyond the bound, as each byte that is no UTF-8 becomes three."""
    encoded = text.encode()
    if len(encoded) <= MAX_DELTA_BYTES:
        return text
    cut = KeptOutput(MAX_DELTA_BYTES - _NOTE_BYTES)
    cut.add(encoded)
    return cut.text()


logger = logging.getLogger(__name__)

NOT_STARTED = -1
"""The exit code of what could not be started."""

ABORTED = -1
"""The exit code of what the user interrupted."""
ABORTED_TEXT = "command aborted by user"
"""Said behind what it printed, in the words of Codex."""

MAX_NOTES = 16
"""Beside the output of a command, until the model reads it."""


class ThreadCommand:
    """A command of a thread, from when it has a session id to when its item is complete."""

    def __init__(
        self, item: CommandExecutionThreadItem, line: str, recorder: TurnRecorder, number: int
    ) -> None:
        """Take its place among the commands of the thread: `number` grows from each to the next."""
        self.item = item
        self.session_id = item.process_id or ""
        """Session id of the command, for the model and clients."""
        self.line = line
        """The command line for the shell."""
        self.number = number
        self.completed = anyio.Event()
        """The item is complete: in the log, and sent to clients."""
        self.is_background = False
        """The model was shown its session id."""
        self.unread = KeptOutput()
        """Output since the model last read of it."""
        self.output_s = time.monotonic()
        """Monotonic time in seconds of the last output, or of the start."""
        self.process: LocalCommand | RemoteCommand | None = None
        self.is_ordered = False
        """Its start was ordered: it may run, and print, before `process` is known."""
        self._notes: list[str] = []
        self._recorder = recorder
        self._output = KeptOutput()
        self._deltas = OutputDeltas(recorder, item.id)
        self._began_s = time.perf_counter()
        self._writing = anyio.Lock()
        self._is_aborted = False

    @property
    def thread_id(self) -> str:
        """The thread that it is of."""
        return self._recorder.log.id

    def take(self, stream: Stream, data: bytes) -> None:
        """Take output; never waits."""
        self._output.add(data)
        self.unread.add(data)
        self.output_s = time.monotonic()
        self._deltas.add(data)

    def read(self) -> KeptOutput:
        """Give what the model was not shown yet, and count it as shown."""
        unread, self.unread = self.unread, KeptOutput()
        return unread

    def note(self, text: str) -> None:
        """Keep a text that the model is shown beside the output; of too many the last are lost."""
        if len(self._notes) < MAX_NOTES:
            self._notes.append(text)

    def read_notes(self) -> list[str]:
        """Give the notes that the model was not shown yet, and count them as shown."""
        notes, self._notes = self._notes, []
        return notes

    def send_pending(self) -> None:
        """Send clients what it printed and was not sent yet, as its process has ended."""
        self._deltas.send(is_last=True)

    def again(self) -> None:
        """Forget what was printed, as it is started once more; clients have it."""
        self.process, self.is_ordered = None, False
        self._deltas.send(is_last=True)
        self._output, self.unread = KeptOutput(), KeptOutput()

    @property
    def exit_code(self) -> int | None:
        """Its exit status, or 128 and the number of a signal; None while it runs."""
        if self.item.exit_code is not None or self.process is None:
            return self.item.exit_code
        if not self.process.finished.is_set():
            return None
        status = self.process.returncode
        assert status is not None
        return 128 - status if status < 0 else status

    def so_far(self) -> CommandExecutionThreadItem:
        """Return the item as it is now, with what was printed so far."""
        return self._item(self._output)

    def snapshot(self, limit_bytes: int) -> CommandExecutionThreadItem:
        """Return the item with all output that clients were sent; what waited is sent first."""
        self._deltas.send()
        return self._item(self._output.shortened(limit_bytes))

    def _item(self, output: KeptOutput) -> CommandExecutionThreadItem:
        text = output.text() if output.total else None
        return self.item.model_copy(update={"aggregated_output": text})

    async def leave_running(self) -> bool:
        """Leave it running in the background; False if its process has ended meanwhile.

        Raises:
            OSError: the disk refused; it does not go on then.
        """
        async with self._writing:
            if self.exit_code is not None:
                return False
            await self._recorder.left_running(self.so_far())
            self.is_background = True
            return True

    async def complete(self, exit_code: int, output: str | None = None) -> None:
        """Complete the item, once; `output` takes the place of what was printed.

        Raises:
            OSError: the disk refused; the item stays in progress, and the next load completes it.
        """
        # What has ended is written down, also where its turn is cut off meanwhile.
        with anyio.CancelScope(shield=True):
            async with self._writing:
                if self.completed.is_set():
                    return
                self._deltas.send(is_last=True)
                if self._is_aborted:
                    exit_code = ABORTED
                    self._say(ABORTED_TEXT)
                item = self.so_far()
                if output is not None:
                    item.aggregated_output = output
                item.status = "completed" if exit_code == 0 else "failed"
                await self._complete(item, exit_code)

    def _say(self, text: str) -> None:
        """Put a line behind what was printed, for the item and for the model."""
        for output in (self._output, self.unread):
            is_new_line = not output.total or output.all().endswith(b"\n")
            output.add((text if is_new_line else f"\n{text}").encode())

    async def decline(self) -> None:
        """Complete the item of a command that must not run, or was not to run any more.

        Raises:
            OSError: the disk refused.
        """
        with anyio.CancelScope(shield=True):
            async with self._writing:
                if self.completed.is_set():
                    return
                item = self.so_far()
                item.status = "declined"
                await self._complete(item, None)

    async def _complete(self, item: CommandExecutionThreadItem, exit_code: int | None) -> None:
        item.exit_code = exit_code
        if self.process is None:
            # Nothing ran that could be named.
            item.process_id = None
        if exit_code is not None:
            item.duration_ms = round((time.perf_counter() - self._began_s) * 1000)
        self.item = item
        try:
            if self.is_background:
                await self._recorder.completed_after_turn(item)
            else:
                await self._recorder.completed(item)
        finally:
            self.completed.set()

    async def follow(self) -> None:
        """Wait for the end of a command that goes on behind the turns, and complete its item."""
        assert self.process is not None
        await self.process.finished.wait()
        assert self.exit_code is not None
        try:
            await self.complete(self.exit_code)
        except OSError as exc:
            logger.warning("the end of command %s cannot be written: %s", self.item.id, exc)

    async def stop(self, exit_code: int | None = None) -> None:
        """End the process, if it was started, and complete the item, if it is not yet.

        `exit_code` takes the place of that of the process.

        Raises:
            OSError: the disk refused the item.
        """
        if self.completed.is_set():
            return
        with anyio.CancelScope(shield=True):
            if self.process is None and not self.is_ordered:
                await self.decline()
                return
            if self.process is not None:
                await self.process.stop()
            code = self.exit_code if exit_code is None else exit_code
            await self.complete(KILLED if code is None else code)

    async def abort(self) -> None:
        """End the process for the user who interrupted it, and let its item say so.

        A process that has ended by itself is left as it ended.

        Raises:
            OSError: the disk refused the item.
        """
        if self.exit_code is None:
            self._is_aborted = True
        await self.stop()


KILLED = 137
"""The exit code of what was killed and yet did not end in time."""


BYTES_PER_TOKEN = 4


def tokens_in(size_bytes: int) -> int:
    """Estimate the tokens of this many bytes."""
    return -(-size_bytes // BYTES_PER_TOKEN)


def state_line(exit_code: int | None, session_id: str) -> str:
    """Say whether a command has ended."""
    if exit_code is None:
        return f"Process running with session ID {session_id}"
    return f"Process exited with code {exit_code}"


def model_text(
    output: KeptOutput, limit_bytes: int, wall_s: float, state: str, notes: Sequence[str] = ()
) -> str:
    """Render a command for the model: how long it waited, how the command is, what it printed."""
    lines = [
        f"Chunk ID: {token_hex(3)}",
        f"Wall time: {wall_s:.4f} seconds",
        state,
        *notes,
        f"Original token count: {tokens_in(output.total)}",
        "Output:",
    ]
    return "\n".join(lines) + "\n" + cut_to(output, limit_bytes)


def cut_to(output: KeptOutput, limit_bytes: int) -> str:
    """Return output as text, cut in the middle; a line says how much is missing."""
    return output.text(limit_bytes, lambda count: f"{tokens_in(count)} tokens")
