"""Runs a turn: the loop of requests and calls, from the first event to the end.

The loop: take what was queued, ask the model, make the calls it wants, until it wants none and
nothing is queued. A turn is owned by its thread; clients come and go.
Source: docs/wire.md, "Turns".
"""

import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

import anyio

from app_server.logs.context import REQUEST, THREAD, TURN
from app_server.sessions.publisher import TurnEnd
from app_server.sessions.turn.ending import TurnEnding
from app_server.sessions.turn.hooks import TurnHooks
from app_server.sessions.turn.parts import ThreadParts
from app_server.sessions.turn.skill_servers import SkillServers
from app_server.telemetry.spans import span, without_span
from app_server.turns.model.interface import ModelFailure, kind_of
from app_server.turns.run import TurnRun
from protocol.log.rollout import InputTaken
from protocol.turns.items import UserMessageThreadItem
from protocol.turns.turn import TurnError

logger = logging.getLogger(__name__)

MAX_REQUESTS = 500
"""Model calls of one turn; a model that never stops calling tools is stopped here."""

WRITE_END_S = 10.0
"""For writing the end of a turn that was cancelled."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnRunner:
    """Runs the turns of one loaded thread, one at a time."""

    parts: ThreadParts
    hooks: TurnHooks
    skill_servers: SkillServers
    ending: TurnEnding
    before_request: Callable[[TurnRun], Awaitable[None]]
    """Gets the thread ready for a request of a model."""
    go_on: Callable[[], Awaitable[None]]
    """Begins what waited for the end of a turn."""

    async def run(self, run: TurnRun, user_message: UserMessageThreadItem | None) -> None:
        """Run a turn that is in the log; its end is in the log when this returns."""
        THREAD.set(self.parts.thread.id)
        TURN.set(run.id)
        with span(
            "turn",
            "turn",
            appserver__thread__id=self.parts.thread.id,
            appserver__turn__id=run.id,
        ) as work:
            end, failure = await self._run_to_end(run, user_message)
            work.set(appserver__turn__end=end)
            if failure is not None:
                work.fail(kind_of(failure.codex_error_info))
        # What goes on now belongs to the thread, and to no turn or request that is over.
        TURN.set(None)
        REQUEST.set(None)
        with without_span():
            await self.go_on()

    async def _run_to_end(
        self, run: TurnRun, user_message: UserMessageThreadItem | None
    ) -> tuple[TurnEnd, TurnError | None]:
        end: TurnEnd = "completed"
        self.parts.slot.unpublished_turn_id = None
        self.parts.status.publish()
        self.parts.publisher.turn_started(run.id, run.started_at_ms)
        if user_message is not None:
            self.parts.publisher.user_message(run.id, user_message)
        failure: TurnError | None = None
        try:
            with run.scope:
                if await self.hooks.begin(run, user_message) or not await self._complete(run):
                    await self._loop(run)
        except ModelFailure as exc:
            failure = TurnError(message=exc.message, codex_error_info=exc.info)
        except OSError as exc:
            failure = self.parts.publisher.failure(
                run.id, f"the log cannot be written: {exc.strerror}"
            )
        except Exception:
            logger.exception("turn %s failed", run.id)
            failure = self.parts.publisher.failure(run.id, "internal error")
        finally:
            with anyio.CancelScope(shield=True), anyio.move_on_after(WRITE_END_S):
                async with self.parts.slot.exclusive():
                    if self.parts.slot.run is run:
                        end = "interrupted" if failure is None else "failed"
                        await self.ending.end(run, end, failure)
        return end, failure

    async def _loop(self, run: TurnRun) -> None:
        """Run until the turn is complete.

        Raises:
            ModelFailure: the model failed for good; it was announced.
            OSError: the disk refused.
        """
        if run.work is not None:
            await run.work()
            run.work = run.kind = None
            if await self._complete(run):
                return
        if run.needed_servers:
            await self.skill_servers.offer(run.id, run.needed_servers)
            run.needed_servers = ()
        for _ in range(MAX_REQUESTS):
            await self.before_request(run)
            await self._take_queued(run)
            answer = await run.ask()
            await self.parts.goals.spend(run.id, answer.usage)
            await run.make_calls(answer)
            if answer.calls or await self.hooks.stop(run):
                continue
            if await self._complete(run):
                return
        raise run.given_up(ModelFailure(f"the model made {MAX_REQUESTS} requests in one turn"))

    async def _take_queued(self, run: TurnRun) -> None:
        """Make queued input visible to the model and publish it."""
        if not self.parts.thread.state.queued:
            return
        async with self.parts.slot.exclusive():
            queued = list(self.parts.thread.state.queued)
            await self.parts.thread.append(InputTaken(at_ms=self.parts.clock.now_ms()), sync=False)
        for entry in queued:
            if entry.message is not None:
                self.parts.publisher.user_message(run.id, entry.message)

    async def _complete(self, run: TurnRun) -> bool:
        """Complete the turn unless input is queued that it has to go on for."""
        async with self.parts.slot.exclusive():
            queued = self.parts.thread.state.queued
            if any(entry.message is not None or entry.steers for entry in queued):
                return False
            await self.ending.end(run, "completed", None)
            return True
