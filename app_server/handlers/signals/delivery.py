"""signal/*: messages from outside into threads, once, with receipts."""

from collections.abc import Iterator
from contextlib import contextmanager

from pydantic_core import to_json

from app_server.handlers.errors import thread_failures
from app_server.handlers.serving import RequestContext, serves
from app_server.handlers.views.pages import page_size
from app_server.rpc.dispatch import storage_failed
from app_server.signals.notifications import PEER_NAME
from app_server.signals.recipients import NoRecipient
from app_server.signals.service import (
    NotRecallable,
    SignalConflict,
    SignalUnknown,
    TooManyWaiting,
)
from app_server.threads.failures import StoreUnavailable
from protocol.cursors import InvalidCursor
from protocol.jsonrpc.errors import (
    internal_error,
    invalid_member,
    invalid_request,
    overloaded,
)
from protocol.signals.delivery import (
    MAX_NAME_BYTES,
    MAX_PAYLOAD_BYTES,
    MAX_SUMMARY_BYTES,
    Signal,
    SignalDeliverParams,
    SignalDeliverResponse,
    SignalListParams,
    SignalListResponse,
    SignalReadParams,
    SignalReadResponse,
    SignalRecallParams,
    SignalRecallResponse,
)
from protocol.signals.frame import TOOL_NAME


@serves("signal/deliver")
async def deliver_signal(
    context: RequestContext, params: SignalDeliverParams
) -> SignalDeliverResponse:
    """Accept a signal; answered when it is on disk, and in the thread if that can be now."""
    _check(params.signal)
    if params.payload_tool is not None and not TOOL_NAME.fullmatch(params.payload_tool):
        raise invalid_member("payloadTool", "must be 1 to 128 characters of A-Z, a-z, 0-9, _ and -")
    key = params.signal.source, params.signal.id
    with _signal_failures(*key):
        signals = await context.services.signals.get()
        outcome = await signals.deliver(params, of_peer=_is_peer(context))
    receipt = outcome.entry.receipt()
    context.services.signal_notifier.came_from(receipt, context.connection_id)
    context.after_answer(signals.follow_up, outcome)
    return SignalDeliverResponse(receipt=receipt)


@serves("signal/read")
async def read_signal(context: RequestContext, params: SignalReadParams) -> SignalReadResponse:
    """Return the receipt of a signal."""
    with _signal_failures(params.source, params.id):
        signals = await context.services.signals.get()
        entry = await signals.read(params.source, params.id)
    return SignalReadResponse(receipt=entry.receipt())


@serves("signal/list")
async def list_signals(context: RequestContext, params: SignalListParams) -> SignalListResponse:
    """Page through receipts."""
    limit = page_size(params.limit)
    with _signal_failures("", ""):
        signals = await context.services.signals.get()
        page = await signals.list_page(params.thread_id, params.stage, params.cursor, limit)
    return SignalListResponse(
        data=[entry.receipt() for entry in page.entries], next_cursor=page.next_cursor
    )


@serves("signal/recall")
async def recall_signals(
    context: RequestContext, params: SignalRecallParams
) -> SignalRecallResponse:
    """Recall a signal."""
    with _signal_failures(params.source, params.id):
        signals = await context.services.signals.get()
        with thread_failures("", "the thread is gone"):
            outcome = await signals.recall(params.source, params.id, of_peer=_is_peer(context))
    context.after_answer(signals.follow_up, outcome)
    return SignalRecallResponse(receipt=outcome.entry.receipt())


def _is_peer(context: RequestContext) -> bool:
    """Whether a server hands on what it was asked; that is not handed on again."""
    return context.initialized is not None and context.initialized.info.name == PEER_NAME


def _check(signal: Signal) -> None:
    for name in ("id", "source", "type", "sender"):
        value: str = getattr(signal, name)
        if not value or len(value.encode()) > MAX_NAME_BYTES or not value.isprintable():
            raise invalid_member(
                f"signal.{name}", f"must be 1 to {MAX_NAME_BYTES} bytes of printable text"
            )
    if len(signal.summary.encode()) > MAX_SUMMARY_BYTES:
        raise invalid_member("signal.summary", f"holds more than {MAX_SUMMARY_BYTES} bytes")
    if len(to_json(signal.payload)) > MAX_PAYLOAD_BYTES:
        raise invalid_member("signal.payload", f"holds more than {MAX_PAYLOAD_BYTES} bytes as JSON")


@contextmanager
def _signal_failures(source: str, signal_id: str) -> Iterator[None]:
    """Translate failures around one signal."""
    named = {"source": source, "signalId": signal_id}
    try:
        yield
    except NoRecipient as exc:
        raise invalid_request(str(exc), exc.code, recipientState=exc.state, **named) from exc
    except SignalConflict as exc:
        raise invalid_request(
            f"signal {signal_id} of {source} is known with another content or target",
            "signalConflict",
            **named,
        ) from exc
    except SignalUnknown as exc:
        raise invalid_request(
            f"no signal {signal_id} of {source} is known", "signalNotFound", **named
        ) from exc
    except NotRecallable as exc:
        raise invalid_request(
            f"signal {signal_id} cannot be recalled: it is {exc.stage} or being read",
            "signalNotRecallable",
            stage=exc.stage,
            **named,
        ) from exc
    except TooManyWaiting as exc:
        raise overloaded() from exc
    except InvalidCursor as exc:
        raise invalid_request(f"invalid cursor: {exc}", "invalidCursor", cursor=str(exc)) from exc
    except StoreUnavailable as exc:
        raise storage_failed(exc, "signals cannot be stored") from exc
    except OSError as exc:
        raise internal_error(f"signals cannot be stored: {exc}", "storageFailed") from exc
