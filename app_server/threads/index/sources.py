"""What the `source` of a thread says: the kind to filter by, and whose sub-agent it is. No I/O.

Source: the contract, ThreadSourceKind.
"""

from protocol.model import Json

_SUB_AGENTS = {"review": "subAgentReview", "compact": "subAgentCompact"}
SUB_AGENT_KINDS = (
    "subAgentReview",
    "subAgentCompact",
    "subAgentThreadSpawn",
    "subAgentOther",
)


def source_kind(source: Json) -> str:
    """Name the kind of program that created a thread."""
    match source:
        case str():
            return source
        case {"subAgent": {"thread_spawn": _}}:
            return "subAgentThreadSpawn"
        case {"subAgent": str(kind)}:
            return _SUB_AGENTS.get(kind, "subAgentOther")
        case {"subAgent": _}:
            return "subAgentOther"
    return "unknown"


def parent_of(source: Json) -> str | None:
    """Return the thread whose agent started this one."""
    match source:
        case {"subAgent": {"thread_spawn": {"parent_thread_id": str(thread_id)}}}:
            return thread_id
    return None
