"""sessions.turn.turn: what a turn of each kind finds and leaves when it begins."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
import pytest

from app_server.config.values import Config
from app_server.models.prompt.user_input import TurnInput
from app_server.sessions.session import ThreadSession
from app_server.sessions.settings import of_review
from app_server.sessions.turn import (
    CompactionWork,
    InputWork,
    ReviewWork,
    TurnWork,
)
from app_server.sessions.user_shell import UserCommand
from app_server.threads.files.store import FileStore
from app_server.turns.slot import TurnOptions
from protocol.log.rollout import Record
from protocol.turns.code_review import UncommittedChangesReviewTarget
from tests.support.event_loop.clock import LoopClock
from tests.support.harness import WAIT_S
from tests.support.threads.stores import created, sessions_of

KINDS = ("input", "compaction", "review", "command")


@asynccontextmanager
async def loaded(home: Path) -> AsyncIterator[ThreadSession]:
    """Give a loaded thread without a model."""
    store = FileStore(home)
    await store.open()
    with anyio.fail_after(WAIT_S):
        async with anyio.create_task_group() as tasks:
            sessions = sessions_of(home, store, tasks)
            session, _ = await sessions.loading.start_once(created(), Config({}))
            yield session
            await sessions.aclose()
    await store.aclose()


def work_of(kind: str, session: ThreadSession) -> TurnWork:
    settings = session.log.state.settings
    match kind:
        case "input":
            return InputWork(TurnInput((), []), settings)
        case "compaction":
            return CompactionWork()
        case "review":
            target = UncommittedChangesReviewTarget(type="uncommittedChanges")
            return ReviewWork(target, of_review(settings, "reviewer"))
    return UserCommand(line="exit 0", output_limit_bytes=1_000)


@pytest.mark.parametrize("kind", KINDS)
async def test_a_turn_that_the_disk_refuses_leaves_an_idle_thread(
    tmp_path: Path, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def refuse(*records: Record, sync: bool = True) -> None:
        raise OSError(28, "No space left on device")

    async with loaded(tmp_path) as session:
        turns, slot, state = session.queue.turns, session.slot, session.log.state
        with monkeypatch.context() as patch:
            patch.setattr(session.log, "append", refuse)
            async with slot.reserve():
                with pytest.raises(OSError, match="No space"):
                    await turns.begin(work_of(kind, session))
        left = slot.turn, slot.unpublished_turn_id, state.turn_settings, state.turns
        assert (slot.idle.is_set(), *left) == (True, None, None, None, [])
        # The next one begins and ends.
        async with slot.reserve():
            turn = await turns.begin(CompactionWork())
        assert (slot.turn, slot.idle.is_set()) == (turn, False)
        turn.run_soon()
        await slot.idle.wait()
        assert [(one.id, one.status) for one in session.log.state.turns] == [(turn.id, "completed")]


@pytest.mark.parametrize("kind", KINDS)
async def test_a_turn_has_its_settings_and_kind_from_its_beginning(
    tmp_path: Path, kind: str
) -> None:
    async with loaded(tmp_path) as session:
        turns, slot = session.queue.turns, session.slot
        settings = session.log.state.settings
        options = TurnOptions(service_tier="fast") if kind == "input" else None
        async with slot.reserve():
            turn = await turns.begin(work_of(kind, session), options)
        expected = {
            "input": settings.model_copy(update={"service_tier": "fast"}),
            "review": of_review(settings, "reviewer"),
        }
        kinds = {"compaction": "compact", "review": "review"}
        assert session.log.state.turn_settings == expected.get(kind, settings)
        assert (turn.kind, slot.unpublished_turn_id) == (kinds.get(kind), turn.id)
        # One that is interrupted before it runs ends so, with its end in the log.
        turn.interrupt()
        turn.run_soon()
        await slot.idle.wait()
        state = session.log.state
        assert [(one.id, one.status) for one in state.turns] == [(turn.id, "interrupted")]
        assert (state.turn_settings, state.queue.paused) == (None, True)


async def test_a_turn_ends_whenever_what_comes_before_its_end_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with loaded(tmp_path) as session:
        slot = session.slot
        async with slot.reserve():
            turn = await session.queue.turns.begin(CompactionWork())
        # As more input for the turn does that the disk holds up.
        async with slot.exclusive:
            turn.interrupt()
            turn.run_soon()
            await anyio.wait_all_tasks_blocked()
            LoopClock(monkeypatch).put_forward(WAIT_S / 2)
            await anyio.wait_all_tasks_blocked()
            assert slot.turn is turn
        await slot.idle.wait()
        assert [(one.id, one.status) for one in session.log.state.turns] == [
            (turn.id, "interrupted")
        ]
