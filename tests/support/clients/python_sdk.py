"""Uses of the Python SDK of the reference, as it is.

It takes most of a second to import: whoever uses it does that, and not each process that collects.
"""

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING

from tests.support.harness import WAIT_S, environment_without
from tests.support.model import Gate

if TYPE_CHECKING:
    from openai_codex import Thread


def use_the_sdk(program: Path, home: Path, gate: Gate, loop: asyncio.AbstractEventLoop) -> None:
    """Start a program as the SDK does, and use it: three turns, the last of which is interrupted.

    The model says "first", "sec" and "ond", and then a part of "third" before the gate.
    """
    import openai_codex

    environment = environment_without("APP_SERVER_HOME") | {"CODEX_HOME": str(home)}
    config = openai_codex.CodexConfig(codex_bin=str(program), env=environment, cwd=str(home))
    with openai_codex.Codex(config) as codex:
        thread = codex.thread_start()
        assert thread.run("one").final_response == "first"
        assert streamed_deltas(thread) == ["sec", "ond"]
        interrupt_at(gate, thread, loop)
        thread.set_name("by the SDK")
        assert [found.id for found in codex.thread_list().data] == [thread.id]
        resumed = codex.thread_resume(thread.id)
        read = resumed.read(include_turns=True)
        assert read.thread.name == "by the SDK"
        assert [found.status.value for found in read.thread.turns] == [
            "completed",
            "completed",
            "interrupted",
        ]
        assert codex.models().data[0].id == "scripted"


def streamed_deltas(thread: "Thread") -> list[str]:
    """Run a turn to its end as a stream, and return the deltas of its message."""
    from openai_codex import models

    events = list(thread.turn("two").stream())
    assert events[-1].method == "turn/completed"
    payloads = [event.payload for event in events]
    return [one.delta for one in payloads if isinstance(one, models.AgentMessageDeltaNotification)]


def interrupt_at(gate: Gate, thread: "Thread", loop: asyncio.AbstractEventLoop) -> None:
    """Run a turn whose model waits at a gate, and interrupt it there."""
    from openai_codex import models

    turn = thread.turn("three")
    asyncio.run_coroutine_threadsafe(gate.wait_until_reached(), loop).result(timeout=WAIT_S)
    turn.interrupt()
    *_, last = turn.stream()
    loop.call_soon_threadsafe(gate.opened.set)
    assert isinstance(last.payload, models.TurnCompletedNotification)
    assert last.payload.turn.status.value == "interrupted"
