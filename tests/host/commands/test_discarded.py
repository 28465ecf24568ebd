"""host: commands: output that nobody wants."""

import os

import pytest

from app_server.host.commands.local_commands import TerminalSize
from app_server.host.commands.output import READ_BYTES, Stream
from app_server.host.programs import ProgramOutput
from app_server.permissions.sandbox.policy import UNRESTRICTED
from tests.support.host.commands import Printed, commands, finished, sh

LINE = "echo begin; read _; head -c 3000000 /dev/zero; echo err >&2; echo end"
"""More than a pipe holds, so that it waits for whoever reads it."""


@pytest.fixture(params=["moved", "read", "no device"])
def _ways(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Discard in each of the ways that a machine may have."""

    def refused(*_: object) -> int:
        raise OSError(22, "not for these")

    opened = os.open

    def full(path: str, *more: int) -> int:
        if path == os.devnull and more == (os.O_WRONLY,):
            raise OSError(24, "too many open files")
        return opened(path, *more)

    if request.param == "read" and hasattr(os, "splice"):
        monkeypatch.setattr(os, "splice", refused)
    elif request.param == "no device":
        monkeypatch.setattr(os, "open", full)


@pytest.mark.usefixtures("_ways")
@pytest.mark.parametrize("terminal", [None, TerminalSize()])
async def test_a_discarded_stream_is_read_to_its_end(terminal: TerminalSize | None) -> None:
    async with commands() as local:
        printed = Printed()
        launch = sh(LINE, merges_stderr=False, has_stdin=True, terminal=terminal)
        command = await local.start(launch, UNRESTRICTED, printed.take)
        await printed.until(b"begin")
        before = list(printed.pieces)
        for _ in range(2):
            command.discard("stdout")
        await command.write(b"\n")
        assert await finished(command) == 0
        errors: list[tuple[Stream, bytes]] = [] if terminal else [("stderr", b"err\n")]
        assert printed.pieces == [*before, *errors]
        assert command.has_all_output


async def test_nothing_is_handed_over_above_the_cap_of_an_output() -> None:
    async with commands() as local:
        output = ProgramOutput(10, None, lambda: 0)
        printed = Printed()

        def take(stream: Stream, data: bytes) -> None:
            printed.take(stream, data)
            output.take(stream, data)

        command = await local.start(sh(LINE, has_stdin=True), UNRESTRICTED, take)
        output.open(command)
        await command.write(b"\n")
        assert await finished(command) == 0
        assert (output.kept("stdout"), output.cap_reached("stdout")) == ("begin\n" + "\0" * 4, True)
        assert len(printed.of("stdout")) <= len("begin\n") + READ_BYTES
