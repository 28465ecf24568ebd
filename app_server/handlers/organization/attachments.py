"""thread/attachment/*, thread/attachmentOwner/list: what clients tie to threads.

Source: docs/threads.md, "Attachments".
"""

from collections.abc import Callable, Sequence

from pydantic_core import to_json

from app_server.handlers.errors import cursor_failures, thread_failures, unknown_thread
from app_server.handlers.services import Services
from app_server.handlers.serving import RequestContext, serves
from app_server.handlers.views.pages import fitting, page_size
from app_server.threads.failures import ThreadNotFound
from app_server.threads.log.state import ThreadState
from app_server.threads.operations import made_id
from protocol.cursors import InvalidCursor, parse_cursor, render_cursor
from protocol.jsonrpc.errors import invalid_params, invalid_request
from protocol.log.metadata import AttachmentAdded, AttachmentRemoved
from protocol.log.rollout import Record
from protocol.organization.attachments import (
    ThreadAttachmentAddParams,
    ThreadAttachmentAddResponse,
    ThreadAttachmentListParams,
    ThreadAttachmentListResponse,
    ThreadAttachmentOperation,
    ThreadAttachmentOwner,
    ThreadAttachmentOwnerListParams,
    ThreadAttachmentOwnerListResponse,
    ThreadAttachmentRemoveParams,
    ThreadAttachmentRemoveResponse,
    ThreadAttachmentUpdatedNotification,
)
from protocol.threads.thread import ThreadAttachment

DEFAULT_PAGE = 50

MAX_PAYLOAD_BYTES = 65_536

MAX_NAME_CHARS = 1024
"""Characters of a type, and of a key."""

MAX_ATTACHMENTS = 1000
"""Of one thread."""

MAX_LIST_BYTES = 900_000
"""Payloads of one page; an answer stays below 1 MiB."""


@serves("thread/attachment/add")
async def add_attachment(
    context: RequestContext, params: ThreadAttachmentAddParams
) -> ThreadAttachmentAddResponse:
    """Add an attachment to a thread; one of the same names stays as it is."""
    thread_id, names = params.thread_id, (params.attachment_type, params.identity_key)
    _check_names(*names)
    if len(to_json(params.payload)) > MAX_PAYLOAD_BYTES:
        raise invalid_params(
            f"attachment payload must not exceed {MAX_PAYLOAD_BYTES} bytes", field="payload"
        )
    at_ms = context.services.clock.now_ms()
    attachment = ThreadAttachment(
        id=made_id(context.services.clock),
        attachment_type=names[0],
        identity_key=names[1],
        payload=params.payload,
        created_at=at_ms // 1000,
    )

    def decide(state: ThreadState) -> Sequence[Record]:
        if state.metadata.attachment(*names) is not None:
            return []
        if len(state.metadata.attachments) >= MAX_ATTACHMENTS:
            raise invalid_request(
                f"the thread has {MAX_ATTACHMENTS} attachments already", "tooManyAttachments"
            )
        return [AttachmentAdded(at_ms=at_ms, attachment=attachment)]

    state, added = await _change(context.services, thread_id, decide)
    if added:
        _notify(context, thread_id, attachment, "created")
        return ThreadAttachmentAddResponse(outcome="created", attachment=attachment)
    found = state.metadata.attachment(*names)
    assert found is not None
    return ThreadAttachmentAddResponse(outcome="existing", attachment=found)


@serves("thread/attachment/remove")
async def remove_attachment(
    context: RequestContext, params: ThreadAttachmentRemoveParams
) -> ThreadAttachmentRemoveResponse:
    """Remove an attachment from a thread; a missing one is no failure."""
    thread_id, names = params.thread_id, (params.attachment_type, params.identity_key)
    _check_names(*names)
    at_ms = context.services.clock.now_ms()
    removed: list[ThreadAttachment] = []

    def decide(state: ThreadState) -> Sequence[Record]:
        found = state.metadata.attachment(*names)
        if found is None:
            return []
        removed.append(found)
        return [AttachmentRemoved(at_ms=at_ms, attachment_id=found.id)]

    await _change(context.services, thread_id, decide)
    for attachment in removed:
        _notify(context, thread_id, attachment, "deleted")
    return ThreadAttachmentRemoveResponse()


async def _change(
    services: Services, thread_id: str, decide: Callable[[ThreadState], Sequence[Record]]
) -> tuple[ThreadState, Sequence[Record]]:
    def decide_for_stored(state: ThreadState) -> Sequence[Record]:
        if state.created.ephemeral:
            raise unknown_thread(thread_id)
        return decide(state)

    with thread_failures(thread_id):
        try:
            return await services.sessions.change(thread_id, decide_for_stored)
        except ThreadNotFound as exc:
            raise unknown_thread(thread_id) from exc


def _notify(
    context: RequestContext,
    thread_id: str,
    attachment: ThreadAttachment,
    operation: ThreadAttachmentOperation,
) -> None:
    event = ThreadAttachmentUpdatedNotification(
        thread_id=thread_id,
        attachment_type=attachment.attachment_type,
        identity_key=attachment.identity_key,
        attachment_id=attachment.id,
        operation=operation,
    )
    context.after_answer(context.services.hub.broadcast, event)


@serves("thread/attachment/list")
async def list_attachments(
    context: RequestContext, params: ThreadAttachmentListParams
) -> ThreadAttachmentListResponse:
    """Page through the attachments of a thread, oldest first."""
    attachments = await _attachments(context.services, params.thread_id)
    after = "" if params.cursor is None else _parse(params.cursor, "attachment")
    rest = [attachment for attachment in attachments if attachment.id > after]
    asked = rest[: page_size(params.limit, DEFAULT_PAGE)]
    page = fitting(asked, MAX_LIST_BYTES, lambda each: len(each.model_dump_json()))
    more = len(rest) > len(page)
    return ThreadAttachmentListResponse(
        data=page, next_cursor=render_cursor("attachment", page[-1].id) if more else None
    )


async def _attachments(services: Services, thread_id: str) -> Sequence[ThreadAttachment]:
    session = services.sessions.find(thread_id)
    if session is not None:
        return session.log.state.metadata.attachments
    with thread_failures(thread_id):
        try:
            return (await services.store.read(thread_id)).metadata.attachments
        except ThreadNotFound:
            return []


@serves("thread/attachmentOwner/list")
async def list_attachment_owners(
    context: RequestContext, params: ThreadAttachmentOwnerListParams
) -> ThreadAttachmentOwnerListResponse:
    """Page through the threads that have an attachment, oldest first."""
    names = params.attachment_type, params.identity_key
    _check_names(*names)
    limit = page_size(params.limit, DEFAULT_PAGE)
    after = "" if params.cursor is None else _parse(params.cursor, "owner")
    owners = await context.services.store.organization.owners(
        names, params.archived, after, limit + 1
    )
    page = [
        ThreadAttachmentOwner(thread_id=owner.id, archived=owner.archived)
        for owner in owners[:limit]
    ]
    more = len(owners) > limit
    return ThreadAttachmentOwnerListResponse(
        data=page, next_cursor=render_cursor("owner", page[-1].thread_id) if more else None
    )


def _check_names(attachment_type: str, identity_key: str) -> None:
    for name, value in (("attachmentType", attachment_type), ("identityKey", identity_key)):
        if not value:
            raise invalid_params(f"{name} must not be empty", field=name)
        if len(value) > MAX_NAME_CHARS:
            raise invalid_params(
                f"{name} must have at most {MAX_NAME_CHARS} characters", field=name
            )


def _parse(cursor: str, kind: str) -> str:
    with cursor_failures():
        match parse_cursor(cursor):
            case [str(found), str(last)] if found == kind:
                return last
        raise InvalidCursor(cursor)
