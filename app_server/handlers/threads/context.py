"""thread/prepareApprovedPlan, thread/compact/start: what the model of a thread is sent.

Source: docs/tools.md, "Plan mode"; docs/compaction.md.
"""

from pathlib import Path

import anyio.to_thread

from app_server.handlers.errors import thread_failures
from app_server.handlers.serving import RequestContext, serves
from app_server.models.prompt.request import message
from app_server.runtime.files.opening import open_regular
from protocol.jsonrpc.errors import invalid_params, invalid_request
from protocol.threads.context import (
    ThreadCompactStartParams,
    ThreadCompactStartResponse,
    ThreadPrepareApprovedPlanParams,
    ThreadPrepareApprovedPlanResponse,
)

MAX_PLAN_BYTES = 40_000
"""Of a plan that goes into the model's context; a larger one must be a file that can be read."""

PROMPT = "Carry out the approved plan."


@serves("thread/prepareApprovedPlan")
async def prepare_approved_plan(
    context: RequestContext, params: ThreadPrepareApprovedPlanParams
) -> ThreadPrepareApprovedPlanResponse:
    """Give a thread's model an approved plan, and return the prompt to begin the turn with."""
    plan, path = params.markdown, params.attachment_path
    if not plan.strip():
        raise invalid_request("The approved plan is empty.", "emptyPlan")
    if path is not None and not path.startswith("/"):
        rule = "must be absolute on the app server"
        raise invalid_params(f"`attachmentPath` {rule}", field="attachmentPath", rule=rule)
    with thread_failures(params.thread_id):
        session = await context.services.sessions.writable(params.thread_id)
        if path is not None and await anyio.to_thread.run_sync(_is_readable, Path(path)):
            prompt = f"Carry out the approved plan. It is in the file {path}: read it first."
            return ThreadPrepareApprovedPlanResponse(prompt=prompt)
        if len(plan.encode()) > MAX_PLAN_BYTES:
            raise invalid_request(
                f"the plan has more than {MAX_PLAN_BYTES} bytes and no file of it can be read; "
                "carry it out in the thread that made it",
                "planTooLarge",
                limitBytes=MAX_PLAN_BYTES,
            )
        approved = message("developer", f"<approved_plan>\n{plan}\n</approved_plan>")
        await session.input.inject([approved])
    return ThreadPrepareApprovedPlanResponse(prompt=PROMPT)


def _is_readable(path: Path) -> bool:
    """Whether a path names a regular file that this process may read."""
    try:
        file = open_regular(path)
    except OSError:
        return False
    if file is not None:
        file.close()
    return file is not None


@serves("thread/compact/start")
async def start_compaction(
    context: RequestContext, params: ThreadCompactStartParams
) -> ThreadCompactStartResponse:
    """Compact a thread's history in a turn of its own, in the place of one that runs."""
    with thread_failures(params.thread_id):
        accepted = await context.services.sessions.get(params.thread_id).turns.start_compaction()
    if accepted is not None:
        context.after_answer(accepted.run_soon)
    return ThreadCompactStartResponse()
