"""Progress of a call, on the stream of its answer."""

from types import SimpleNamespace
from typing import Any, cast

import anyio

from app_server.apps.routes import session
from app_server.apps.routes.backing import OpenStreams, RouteBounds
from tests.support.harness import WAIT_S


class Listener:
    """A connection that notes what it is told, and whether its stream was open then."""

    session_id = "mine"

    def __init__(self, streams: OpenStreams) -> None:
        self.told: list[int] = []
        self._streams = streams

    async def notify(self, method: str, params: Any) -> None:
        self.told.append(params["progress"])


def session_of(
    listener: Listener, streams: OpenStreams, progress_s: float = WAIT_S
) -> session.LocalSession:
    bounds = RouteBounds(progress_s=progress_s)
    backing: Any = SimpleNamespace(generation_id="g", streams=streams, bounds=bounds)
    return session.LocalSession(cast(Any, listener), "s", backing)


def request_of(*, streams_answer: bool, report: Any = None) -> Any:
    """Make a request of a client; `report` is what its stream takes progress with."""
    scoped = SimpleNamespace(can_send_request=streams_answer, report_progress=report)
    return SimpleNamespace(session=scoped)


def progress_to(listener: Listener, streams: OpenStreams, progress_s: float = WAIT_S) -> Any:
    context = request_of(streams_answer=False)
    return session_of(listener, streams, progress_s).progress_of(context, "token")


async def test_progress_of_an_answer_that_is_a_stream_comes_before_it_on_that_stream() -> None:
    listener = Listener(streams := OpenStreams())
    reported: list[tuple[Any, ...]] = []

    async def report(*progress: Any) -> None:
        reported.append(progress)

    local = session_of(listener, streams)
    context = request_of(streams_answer=True, report=report)
    passes_on = local.progress_of(context, "token")
    assert passes_on is not None
    await passes_on(1, 2, "half way")
    assert (reported, listener.told) == ([(1, 2, "half way")], [])
    assert local.progress_of(context, None) is None


async def test_the_first_progress_waits_until_the_client_listens() -> None:
    streams = OpenStreams()
    listener = Listener(streams)
    report = progress_to(listener, streams)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(report, 1, None, None)
        await anyio.wait_all_tasks_blocked()
        assert listener.told == []
        streams.opened("mine")
    await report(2, None, None)
    assert listener.told == [1, 2]


class Deaf(OpenStreams):
    """Streams on which nobody listens; counts who waits for one."""

    waits = 0

    async def wait_for(self, session_id: str) -> None:
        self.waits += 1
        await super().wait_for(session_id)


async def test_progress_waits_once_for_a_client_and_not_for_ever() -> None:
    streams = Deaf()
    listener = Listener(streams)
    report = progress_to(listener, streams, progress_s=0)
    with anyio.fail_after(WAIT_S):
        await report(1, None, None)
        await report(2, None, None)
    assert (listener.told, streams.waits) == ([1, 2], 1)
