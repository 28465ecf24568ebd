"""Pages of a list that is short and in memory: a cursor is how many entries came before.

Source: observed behaviour of Codex's `model/list`; docs/wire.md.
"""

from collections.abc import Sequence

from app_server.views.offset_pages import invalid_cursor
from protocol.cursors import InvalidCursor, parse_offset
from protocol.errors import invalid_request
from protocol.models import Model, ModelListParams, ModelListResponse

MAX_DIGITS = 9


def page_of_models(models: Sequence[Model], params: ModelListParams) -> ModelListResponse:
    """Return the page that `params` ask for; without a limit all that is left, with 0 one model.

    Raises:
        RpcError: the cursor is no number, or beyond the end.
    """
    start = 0 if params.cursor is None else _number(params.cursor)
    if start > len(models):
        raise invalid_request(
            f"cursor {start} exceeds total models {len(models)}",
            "invalidCursor",
            cursor=params.cursor,
        )
    limit = len(models) if params.limit is None else params.limit
    end = min(start + max(limit, 1), len(models))
    return ModelListResponse(
        data=list(models[start:end]), next_cursor=str(end) if end < len(models) else None
    )


def _number(cursor: str) -> int:
    try:
        return parse_offset(cursor, MAX_DIGITS)
    except InvalidCursor:
        raise invalid_cursor(cursor) from None
