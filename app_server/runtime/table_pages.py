"""Statements for pages of tables with numbered rows, as SQLite and PostgreSQL take them."""

from collections.abc import Mapping
from typing import Any, Literal


def newest_first(
    select: str,
    marker: Literal["?", "%s"],
    equal: Mapping[str, str | None],
    before: int | None,
    limit: int,
) -> tuple[str, list[Any]]:
    """Return a statement for the rows with the highest numbers, and its values.

    `select` has a WHERE already; `marker` stands for a value. Of `equal` those columns count that
    have a value. Rows have numbers below `before`, and one more than `limit` comes, which says that
    there are others.
    """
    wanted = {f"{column} = {marker}": value for column, value in equal.items() if value is not None}
    values: list[Any] = list(wanted.values())
    conditions = list(wanted)
    if before is not None:
        conditions.append(f"number < {marker}")
        values.append(before)
    where = "".join(f" AND {condition}" for condition in conditions)
    return f"{select}{where} ORDER BY number DESC LIMIT {marker}", [*values, limit + 1]
