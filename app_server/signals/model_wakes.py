"""Wakes that models set for their own threads.

Source: docs/wakes.md, "For models".
"""

from app_server.signals.recipients import NoRecipient
from app_server.signals.wakes import NoProcess, Wakes
from app_server.threads.wakes import TooManyWakes
from app_server.turns.server_context import WakeRefused
from protocol.signals.wakes import ProcessWakeSource, TimerWakeSource, WakeSource


async def set_timer(wakes: Wakes, thread_id: str, at_ms: int, note: str) -> None:
    """Have a turn begin at a time; see TurnWakes.at_time."""
    await _set(wakes, thread_id, TimerWakeSource(at_ms=at_ms), note)


async def set_on_exit(wakes: Wakes, thread_id: str, session_id: str, note: str) -> None:
    """Have a turn begin when a command ends; see TurnWakes.at_exit."""
    await _set(wakes, thread_id, ProcessWakeSource(process_id=session_id), note)


async def _set(wakes: Wakes, thread_id: str, source: WakeSource, note: str) -> None:
    try:
        await wakes.set(thread_id, source, note)
    except (NoRecipient, TooManyWakes) as exc:
        raise WakeRefused(str(exc)) from exc
    except NoProcess as exc:
        raise WakeRefused("its session has ended") from exc
    except OSError as exc:
        raise WakeRefused("the wake cannot be stored") from exc
