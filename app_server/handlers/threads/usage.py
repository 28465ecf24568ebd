"""usage/read: sums of the ledger, and what they cost.

Source: docs/usage.md.
"""

import re
from collections.abc import Iterable, Mapping
from datetime import date

from app_server.handlers.errors import thread_failures
from app_server.handlers.serving import RequestContext, serves
from app_server.handlers.threads.history import refuse_ephemeral
from app_server.handlers.views.pages import invalid_cursor, page_size
from app_server.models.catalogue.prices import Money, Prices, read_prices, shown_money
from app_server.threads.usage import ModelName, Usage, UsageQuery, UsageSums, sum_of_turns
from protocol.cursors import InvalidCursor, parse_cursor, render_cursor
from protocol.jsonrpc.errors import invalid_member
from protocol.threads.usage import (
    UsageFigures,
    UsageReadParams,
    UsageReadResponse,
    UsageRow,
)

_DAY = re.compile(r"\d{4}-\d{2}-\d{2}")


@serves("usage/read")
async def read_usage(context: RequestContext, params: UsageReadParams) -> UsageReadResponse:
    """Sum up usage, of one thread or of all, and return a page of groups."""
    services = context.services
    query = UsageQuery(
        params.group_by,
        params.thread_id,
        _checked_day("since", params.since),
        _checked_day("until", params.until),
    )
    if query.since and query.until and query.since > query.until:
        raise invalid_member("until", "must not be before `since`")
    if params.group_by == "turn" and params.thread_id is None:
        raise invalid_member("threadId", "is needed for `groupBy`: `turn`")
    after = _place(params)
    prices = read_prices(await services.configuration.read())
    sums: UsageSums
    with thread_failures(params.thread_id or ""):
        if params.thread_id is not None:
            refuse_ephemeral(services.sessions, params.thread_id, context.method)
            # Whether there is such a thread.
            await services.store.lists.find(params.thread_id)
        if params.group_by == "turn" and params.thread_id is not None:
            records = await services.store.history.usage(params.thread_id)
            sums = sum_of_turns(records, query)
        else:
            sums = await services.store.lists.usage(query)
    groups = [group for group in sorted(sums) if after is None or group > after]
    size = page_size(params.limit)
    shown = groups[:size]
    more = len(groups) > size
    return UsageReadResponse(
        data=[UsageRow(group=group, usage=_figures([sums[group]], prices)) for group in shown],
        total=_figures(sums.values(), prices),
        prices_source=prices.source,
        next_cursor=render_cursor("usage", params.group_by, shown[-1]) if more else None,
    )


def _checked_day(field: str, text: str | None) -> str | None:
    if text is None:
        return None
    try:
        if _DAY.fullmatch(text):
            return date.fromisoformat(text).isoformat()
    except ValueError:
        pass
    raise invalid_member(field, "must be a day, `YYYY-MM-DD`")


def _place(params: UsageReadParams) -> str | None:
    if params.cursor is None:
        return None
    try:
        match parse_cursor(params.cursor):
            case ["usage", params.group_by, str(group)]:
                return group
    except InvalidCursor:
        pass
    raise invalid_cursor(params.cursor)


def _figures(groups: Iterable[Mapping[ModelName, Usage]], prices: Prices) -> UsageFigures:
    total, cost, unpriced = Usage(), Money(), 0
    for models in groups:
        for name, usage in models.items():
            total.add(usage)
            if (price := prices.find(name)) is not None:
                cost[price.currency] = cost.get(price.currency, 0) + price.cost(usage)
            else:
                unpriced += usage.tokens
    return UsageFigures(
        input_tokens=total.input_tokens,
        cached_input_tokens=total.cached_input_tokens,
        output_tokens=total.output_tokens,
        reasoning_output_tokens=total.reasoning_output_tokens,
        requests=total.requests,
        unreported_requests=total.unreported_requests,
        model_ms=total.model_ms,
        tool_ms=total.tool_ms,
        cost=shown_money(cost),
        unpriced_tokens=unpriced,
    )
