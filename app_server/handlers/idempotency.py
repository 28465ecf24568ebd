"""What a client sends again after a lost answer: ids that it chose, and whether it is the same.

Source: docs/wire.md, "Sending again".
"""

import hashlib
import uuid
from collections.abc import Set

from pydantic_core import to_json

from protocol.jsonrpc.errors import invalid_member
from protocol.model import WireModel


def chosen_id(thread_id: str) -> str:
    """Return the id that a client chose for a thread.

    Raises:
        RpcError: it is not a UUID in its usual form.
    """
    try:
        if str(uuid.UUID(thread_id)) == thread_id:
            return thread_id
    except ValueError:
        pass
    rule = "must be a UUID in small letters, with hyphens"
    raise invalid_member("threadId", rule)


def digest_of(params: WireModel, *, without: Set[str] = frozenset()) -> str:
    """Return the SHA-256 of a request's members, in hexadecimal; members `without` do not count.

    Members that are null and members that are missing are the same, and their order is nothing.
    """
    value = params.model_dump(mode="json", by_alias=True, exclude=set(without), exclude_none=True)
    return hashlib.sha256(to_json(_sorted(value))).hexdigest()


def _sorted(value: object) -> object:
    if isinstance(value, dict):
        return {key: _sorted(value[key]) for key in sorted(value)}
    if isinstance(value, list):
        return [_sorted(element) for element in value]
    return value
