"""What the Python SDK of the reference is used for, as it is.

It takes most of a second to import: whoever uses it does that, and not each process that collects.
"""

import asyncio
from pathlib import Path

from tests.support.harness import WAIT_S, environment_without
from tests.support.model import Gate


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
        events = list(thread.turn("two").stream())
        deltas = [
            event.payload.delta  # type: ignore[union-attr]
            for event in events
            if event.method == "item/agentMessage/delta"
        ]
        assert deltas == ["sec", "ond"]
        assert events[-1].method == "turn/completed"
        turn = thread.turn("three")
        asyncio.run_coroutine_threadsafe(gate.wait_until_reached(), loop).result(timeout=WAIT_S)
        turn.interrupt()
        *_, last = turn.stream()
        loop.call_soon_threadsafe(gate.opened.set)
        assert last.payload.turn.status.value == "interrupted"  # type: ignore[union-attr]
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
