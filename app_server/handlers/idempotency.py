"""What a client sends again after a lost answer: ids that it chose for threads.

Source: docs/wire.md, "Sending again".
"""

import uuid

from protocol.jsonrpc.errors import invalid_member


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
