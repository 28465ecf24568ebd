"""thread/wake/*: what wakes a thread, set, listed and cancelled."""

import os
from collections.abc import Iterator
from contextlib import contextmanager

import anyio.to_thread

from app_server.handlers.errors import config_failures, cursor_failures, thread_failures
from app_server.handlers.services import Services
from app_server.handlers.serving import RequestContext, serves
from app_server.handlers.views.pages import page_size
from app_server.permissions.sandbox.policy import (
    EffectivePolicy,
    Ruling,
    effective_policy_of,
    resolved,
)
from app_server.permissions.sandbox.roots import RootChanged, with_hidden_paths
from app_server.rpc.dispatch import storage_failed
from app_server.signals.recipients import NoRecipient
from app_server.signals.shown_wakes import shown_wake, shown_wakes
from app_server.signals.wakes import NoProcess, WakeOver, WakeUnknown
from app_server.threads.failures import StoreUnavailable
from app_server.threads.operations import operation_made_id
from app_server.threads.wakes import TooManyWakes
from protocol.jsonrpc.errors import RpcError, internal_error, invalid_member, invalid_request
from protocol.signals.wakes import (
    MAX_EVERY_S,
    MAX_NOTE_BYTES,
    MAX_PATH_BYTES,
    MIN_EVERY_S,
    FileWakeSource,
    ProcessWakeSource,
    ThreadWakeCancelParams,
    ThreadWakeCancelResponse,
    ThreadWakeListParams,
    ThreadWakeListResponse,
    ThreadWakeSetParams,
    ThreadWakeSetResponse,
    TimerWakeSource,
)


@serves("thread/wake/set")
async def set_wake(context: RequestContext, params: ThreadWakeSetParams) -> ThreadWakeSetResponse:
    """Arm a wake; answered when it is on disk."""
    if len(params.note.encode()) > MAX_NOTE_BYTES:
        raise invalid_member("note", f"holds more than {MAX_NOTE_BYTES} bytes")
    services = context.services
    with thread_failures(params.thread_id), _wake_failures(params.thread_id):
        wakes = await services.signals.wakes()
        if (made := await wakes.find(operation_made_id())) is not None:
            return ThreadWakeSetResponse(wake=shown_wake(made))
        match params.source:
            case TimerWakeSource():
                _check_timer(params.source, services.clock.now_ms())
            case ProcessWakeSource():
                _check_process(services, params.thread_id, params.source.process_id)
            case FileWakeSource():
                await _check_path(services, params.thread_id, params.source.path)
        wake = await wakes.set(params.thread_id, params.source, params.note, params.mode)
    return ThreadWakeSetResponse(wake=shown_wake(wake))


@serves("thread/wake/list")
async def list_wakes(
    context: RequestContext, params: ThreadWakeListParams
) -> ThreadWakeListResponse:
    """Page through wakes."""
    limit = page_size(params.limit)
    with cursor_failures(), _wake_failures(params.thread_id or ""):
        wakes = await context.services.signals.wakes()
        page = await wakes.list_page(params.thread_id, params.state, params.cursor, limit)
    return ThreadWakeListResponse(data=shown_wakes(page.wakes), next_cursor=page.next_cursor)


@serves("thread/wake/cancel")
async def cancel_wake(
    context: RequestContext, params: ThreadWakeCancelParams
) -> ThreadWakeCancelResponse:
    """Cancel a wake; answered when that is on disk."""
    named = {"threadId": params.thread_id, "wakeId": params.wake_id}
    with _wake_failures(params.thread_id):
        wakes = await context.services.signals.wakes()
        try:
            wake = await wakes.cancel(params.thread_id, params.wake_id)
        except WakeUnknown as exc:
            text = f"thread {params.thread_id} has no wake {params.wake_id}"
            raise invalid_request(text, "wakeNotFound", **named) from exc
        except WakeOver as exc:
            text = f"wake {params.wake_id} cannot be cancelled: it is {exc.state}"
            raise invalid_request(text, "wakeOver", state=exc.state, **named) from exc
    return ThreadWakeCancelResponse(wake=shown_wake(wake))


def _check_timer(source: TimerWakeSource, now_ms: int) -> None:
    every_s = source.every_secs
    if source.at_ms is None and every_s is None:
        raise invalid_member("source", "needs `atMs` or `everySecs`")
    if every_s is not None and not MIN_EVERY_S <= every_s <= MAX_EVERY_S:
        raise invalid_member("source.everySecs", f"must be {MIN_EVERY_S} to {MAX_EVERY_S}")
    if source.at_ms is not None and not now_ms <= source.at_ms <= now_ms + MAX_EVERY_S * 1000:
        raise invalid_member(
            "source.atMs", f"must not be in the past, and at most {MAX_EVERY_S} seconds away"
        )
    if source.until_ms is None:
        return
    if every_s is None:
        raise invalid_member("source.untilMs", "needs `everySecs`")
    first_ms = now_ms + every_s * 1000 if source.at_ms is None else source.at_ms
    if source.until_ms < first_ms:
        raise invalid_member("source.untilMs", "must not be before the first time")


def _check_process(services: Services, thread_id: str, process_id: str) -> None:
    session = services.sessions.find(thread_id)
    command = None if session is None else session.commands.find(process_id)
    if command is None or command.completed.is_set():
        raise _not_running()


def _not_running() -> RpcError:
    return invalid_member("source.processId", "must be a process that the thread has running")


async def _check_path(services: Services, thread_id: str, path: str) -> None:
    """Refuse a path that is none, or that commands of the thread could not read."""
    field = "source.path"
    if not path.startswith("/") or "\0" in path or len(path.encode()) > MAX_PATH_BYTES:
        raise invalid_member(
            field, f"must be absolute, of at most {MAX_PATH_BYTES} bytes, and without NUL"
        )
    session = services.sessions.find(thread_id)
    if session is not None:
        settings = session.log.state.settings
        machine_paths = session.context.settings.machine_paths
    else:
        settings = (await services.store.read(thread_id)).settings
        with config_failures():
            config = await services.configuration.read()
        machine_paths = with_hidden_paths(config, services.machine_paths)
    sandbox_policy = effective_policy_of(settings, machine_paths)
    if not await anyio.to_thread.run_sync(_may_read, sandbox_policy, path):
        raise invalid_member(field, "must be a path that the thread may read")


def _may_read(sandbox_policy: EffectivePolicy, path: str) -> bool:
    try:
        ruling = Ruling(resolved(sandbox_policy))
    except RootChanged:
        return False
    return ruling.access(os.path.realpath(path)) != "none"


@contextmanager
def _wake_failures(thread_id: str) -> Iterator[None]:
    try:
        yield
    except NoRecipient as exc:
        raise invalid_request(
            str(exc), exc.code, recipientState=exc.state, threadId=thread_id
        ) from exc
    except NoProcess as exc:
        raise _not_running() from exc
    except TooManyWakes as exc:
        raise invalid_request(str(exc), "tooManyWakes", threadId=thread_id) from exc
    except StoreUnavailable as exc:
        raise storage_failed(exc, "wakes cannot be stored") from exc
    except OSError as exc:
        raise internal_error(f"wakes cannot be stored: {exc}", "storageFailed") from exc
