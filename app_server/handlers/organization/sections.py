"""threadSection/*, thread/section/move: groups of threads that the user made.

Source: docs/threads.md, "Projects and sections".
"""

from collections.abc import Sequence

import anyio

from app_server.handlers.errors import filing_failures
from app_server.handlers.services import Services
from app_server.handlers.serving import RequestContext, serves
from app_server.handlers.threads.stored import (
    change_thread,
    not_for_ephemeral,
)
from app_server.handlers.views.pages import page_size
from app_server.threads.operations import made_id
from app_server.threads.organization import PINNED, FilingState, NotInSection
from protocol.jsonrpc.errors import RpcError, invalid_params, invalid_request
from protocol.log.filing import FilingRecord, SectionDeleted, SectionPut
from protocol.log.metadata import SectionChanged
from protocol.organization.sections import (
    ThreadSectionChangedNotification,
    ThreadSectionCreateParams,
    ThreadSectionCreateResponse,
    ThreadSectionDeleteParams,
    ThreadSectionDeleteResponse,
    ThreadSectionListParams,
    ThreadSectionListResponse,
    ThreadSectionMoveParams,
    ThreadSectionMoveResponse,
    ThreadSectionUpdateParams,
    ThreadSectionUpdateResponse,
)
from protocol.threads.thread import ThreadSection, ThreadSectionAppearance

DEFAULT_PAGE = 50

MAX_SECTIONS = 1000

MAX_CHARS = 4096
"""Characters of a section's name, icon and color together."""


@serves("threadSection/create")
async def create_section(
    context: RequestContext, params: ThreadSectionCreateParams
) -> ThreadSectionCreateResponse:
    """Make a section; names may be there twice."""
    section = ThreadSection(
        id=made_id(context.services.clock),
        name=_name(params.name, params.appearance),
        appearance=params.appearance,
    )

    def decide(state: FilingState) -> Sequence[FilingRecord]:
        if section.id in state.sections:
            # Made by the same operation, before a crash.
            return []
        if len(state.sections) >= MAX_SECTIONS:
            raise invalid_request(f"there are {MAX_SECTIONS} sections already", "tooManySections")
        return [SectionPut(at_ms=context.services.clock.now_ms(), section=section)]

    with filing_failures():
        await context.services.store.organization.change(decide)
    return ThreadSectionCreateResponse(section=section)


@serves("threadSection/delete")
async def delete_section(
    context: RequestContext, params: ThreadSectionDeleteParams
) -> ThreadSectionDeleteResponse:
    """Remove a section; its threads stay, in none."""
    section_id = params.section_id
    if section_id == PINNED.id:
        raise invalid_params("the built-in pinned section cannot be deleted", "builtInSection")

    def decide(state: FilingState) -> Sequence[FilingRecord]:
        _require(state, section_id)
        return [SectionDeleted(at_ms=context.services.clock.now_ms(), section_id=section_id)]

    with filing_failures():
        await context.services.store.organization.change(decide)
    return ThreadSectionDeleteResponse()


@serves("threadSection/list")
async def list_sections(
    context: RequestContext, params: ThreadSectionListParams
) -> ThreadSectionListResponse:
    """Page through the sections, oldest first; the cursor is the id of the last one seen."""
    with filing_failures("read"):
        state = await context.services.store.organization.refresh()
    rest = sorted(
        (section for section in state.sections.values() if section.id > (params.cursor or "")),
        key=lambda section: section.id,
    )
    limit = page_size(params.limit, DEFAULT_PAGE)
    page = rest[:limit]
    return ThreadSectionListResponse(
        data=page, next_cursor=page[-1].id if len(rest) > limit else None
    )


@serves("threadSection/update")
async def update_section(
    context: RequestContext, params: ThreadSectionUpdateParams
) -> ThreadSectionUpdateResponse:
    """Rename a section; its look stays unless it is given."""
    section_id = params.section_id
    if section_id == PINNED.id:
        raise invalid_params("the built-in pinned section cannot be renamed", "builtInSection")
    changed: dict[str, object] = {"name": _name(params.name, params.appearance)}
    if "appearance" in params.model_fields_set:
        changed["appearance"] = params.appearance
    section = PINNED

    def decide(state: FilingState) -> Sequence[FilingRecord]:
        nonlocal section
        before = _require(state, section_id)
        section = before.model_copy(update=changed)
        return (
            []
            if section == before
            else [SectionPut(at_ms=context.services.clock.now_ms(), section=section)]
        )

    with filing_failures():
        await context.services.store.organization.change(decide)
    return ThreadSectionUpdateResponse(section=section)


@serves("thread/section/move")
async def move_to_section(
    context: RequestContext, params: ThreadSectionMoveParams
) -> ThreadSectionMoveResponse:
    """Put a thread into a section, to another place in it, or out of it."""
    thread_id, section_id = params.thread_id, params.section_id
    await _check_move(context.services, params)
    async with context.services.part(_moving):
        rank = None if section_id is None else await _rank(context.services, params, section_id)
        record = SectionChanged(
            at_ms=context.services.clock.now_ms(), section_id=section_id, rank=rank
        )
        await change_thread(
            context.services,
            thread_id,
            lambda _: [record],
            ephemeral=not_for_ephemeral("section moves", thread_id),
        )
    event = ThreadSectionChangedNotification(thread_id=thread_id, section_id=section_id)
    context.after_answer(context.services.hub.broadcast, event)
    return ThreadSectionMoveResponse()


async def _check_move(services: Services, params: ThreadSectionMoveParams) -> None:
    section_id, before = params.section_id, params.before_thread_id
    if section_id is None and before is not None:
        raise invalid_request("beforeThreadId requires a non-null sectionId", "sectionRequired")
    if before == params.thread_id:
        raise invalid_request(f"thread {before} cannot be moved before itself", "movedBeforeItself")
    with filing_failures("read"):
        state = await services.store.organization.refresh()
    if section_id is not None and section_id not in state.sections:
        raise invalid_request(
            f"section {section_id} does not exist", "sectionNotFound", sectionId=section_id
        )


async def _rank(services: Services, params: ThreadSectionMoveParams, section_id: str) -> str:
    before = params.before_thread_id
    try:
        return await services.store.organization.rank_in_section(
            section_id, params.thread_id, before
        )
    except NotInSection as exc:
        raise invalid_request(
            f"before thread {before} is not in section {section_id}",
            "notInSection",
            threadId=before,
            sectionId=section_id,
        ) from exc


def _require(state: FilingState, section_id: str) -> ThreadSection:
    section = state.sections.get(section_id)
    if section is None:
        raise invalid_params(
            f"thread section not found: {section_id}", "sectionNotFound", sectionId=section_id
        )
    return section


def _name(name: str, appearance: ThreadSectionAppearance | None) -> str:
    name = name.strip()
    if not name:
        raise invalid_params("section name must not be empty", "emptyName")
    look = appearance or ThreadSectionAppearance()
    if len(name) + len(look.icon or "") + len(look.color or "") > MAX_CHARS:
        raise _too_long()
    return name


def _too_long() -> RpcError:
    return invalid_params(
        f"a section's name and look must have at most {MAX_CHARS} characters", "nameTooLong"
    )


def _moving(_: Services) -> anyio.Lock:
    """Make the lock of moves: two must not find the same place."""
    return anyio.Lock()
