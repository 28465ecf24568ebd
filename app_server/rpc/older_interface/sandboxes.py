"""Sandbox policies that a conversation begins with and a thread of today cannot. No I/O.

They go with the first turn, and hold from then on.
Source: docs/older_interface.md.
"""

from collections import OrderedDict

from protocol.model import Json, JsonObject

MAX_WAITING = 1_000
"""Conversations of a connection that had no turn yet; the oldest begin without their policy."""


class FirstSandboxes:
    """The policies that wait for the first turns of a connection's conversations."""

    def __init__(self) -> None:
        self._waiting: OrderedDict[Json, Json] = OrderedDict()

    def keep(self, conversation_id: str, policy: Json) -> None:
        """Have a policy go with the conversation's next turn; None: what waited is void."""
        self._waiting.pop(conversation_id, None)
        if policy is not None:
            self._waiting[conversation_id] = policy
            if len(self._waiting) > MAX_WAITING:
                self._waiting.popitem(last=False)

    def with_policy(self, params: JsonObject) -> JsonObject:
        """Return the parameters of `turn/start` with what waits, unless they have a policy."""
        policy = self._waiting.get(params["threadId"])
        return params if policy is None else {"sandboxPolicy": policy, **params}

    def begun(self, params: JsonObject) -> None:
        """Note that a turn with these parameters was accepted: the thread has its policy now."""
        self._waiting.pop(params["threadId"], None)
