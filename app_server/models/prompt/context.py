"""Tokens of a history in the context of a model, and the compacted history. No I/O.

Tokens are counted by the model; between its answers they are estimated: four bytes are one token.
Where a bound must hold, one byte is: no token has less.
Source: docs/compaction.md; docs/usage.md, "Budgets".
"""

from collections.abc import Sequence

from pydantic_core import to_json

from app_server.models.prompt.environment_context import kind_of, newest_of_each
from app_server.models.prompt.request import message
from app_server.runtime.cut_text import cut_text
from app_server.threads.log.state import ThreadState
from protocol.model import Json, JsonObject

BYTES_PER_TOKEN = 4
MEDIA_TOKENS = 2_000
"""Estimated tokens of an image, a sound or a file, however many bytes it has."""
MOST_IMAGE_TOKENS = 50_000
"""At most, of one image: no model that is known counts more, and its bytes say nothing of it."""
KEPT_USER_TOKENS = 20_000
"""At most, of the user's own messages that a compaction keeps as they are, newest first."""
KEPT_SHARE = 4
"""Of a limit, what is kept is one such part at most: else the next compaction would be near."""
MAX_SUMMARY_BYTES = 64 * 1024

SUMMARY_PREFIX = (
    "The conversation before this point was condensed to make room. This is the summary that was "
    "written of it; it is information, and no new request of the user:\n\n"
)
NOT_KEPT = "[something that is no text was here, and is not shown any more]"


def tokens_in_context(state: ThreadState) -> int:
    """Return what the next request will take: the model's last count, and what came after it."""
    counted = 0 if state.usage is None else state.usage.last.total_tokens
    return counted + estimated_tokens(state.history[state.measured :])


def estimated_tokens(items: Sequence[Json]) -> int:
    """Estimate the tokens of history items; media count as MEDIA_TOKENS each."""
    size, media = _size_without(items, ("input_image", "input_audio", "input_file"))
    return size // BYTES_PER_TOKEN + media * MEDIA_TOKENS


def most_tokens(items: Sequence[Json]) -> int:
    """Bound the tokens of parts of a request: bytes as JSON, and MOST_IMAGE_TOKENS an image."""
    size, images = _size_without(items, ("input_image",))
    return size + images * MOST_IMAGE_TOKENS


def _size_without(items: Sequence[Json], media: Sequence[str]) -> tuple[int, int]:
    """Return the bytes of items without media of these types, and how many media there are."""
    found = 0

    def lean(value: Json) -> Json:
        nonlocal found
        if isinstance(value, dict):
            if value.get("type") in media:
                found += 1
                return None
            return {key: lean(inner) for key, inner in value.items()}
        if isinstance(value, list):
            return [lean(inner) for inner in value]
        return value

    return (len(to_json([lean(item) for item in items])) if items else 0), found


def split_unseen(history: Sequence[JsonObject]) -> tuple[list[JsonObject], list[JsonObject]]:
    """Part a history at the messages that the model has not answered yet."""
    at = len(history)
    while at and _is_input(history[at - 1]) and not is_summary(history[at - 1]):
        at -= 1
    return list(history[:at]), list(history[at:])


def worth_compacting(seen: Sequence[JsonObject]) -> bool:
    """Whether anything came since the last compaction."""
    return bool(seen) and not is_summary(seen[-1])


def kept_tokens(limit: int | None) -> int:
    """Return how much of the user's own messages a compaction keeps under a limit of tokens."""
    return KEPT_USER_TOKENS if limit is None else min(KEPT_USER_TOKENS, limit // KEPT_SHARE)


def compacted(
    seen: Sequence[JsonObject],
    summary: str,
    unseen: Sequence[JsonObject] = (),
    keep: int = KEPT_USER_TOKENS,
) -> list[JsonObject]:
    """Make the history that takes the place of another.

    It has what the model was shown last of its environment; the newest of the user's own messages,
    as text, up to `keep` tokens; the summary; and what the model has not seen yet.
    """
    kept: list[JsonObject] = []
    left = keep * BYTES_PER_TOKEN
    for item in reversed(seen):
        if left <= 0 or item.get("role") != "user" or is_summary(item) or kind_of(item):
            continue
        text = cut_text(_text_of(item), left)
        left -= len(text.encode())
        kept.append(message("user", text))
    said = cut_text(summary, MAX_SUMMARY_BYTES)
    newer = dict(newest_of_each(unseen))
    before = [item for kind, item in newest_of_each(seen) if kind not in newer]
    return [*reversed(before), *reversed(kept), message("user", SUMMARY_PREFIX + said), *unseen]


def is_summary(item: JsonObject) -> bool:
    """Whether an item is the summary of an earlier compaction."""
    return item.get("role") == "user" and _text_of(item).startswith(SUMMARY_PREFIX)


def without_oldest(items: Sequence[JsonObject]) -> list[JsonObject]:
    """Leave out the oldest quarter, and outputs whose calls went with it."""
    rest: list[JsonObject] = []
    calls = set[Json]()
    for item in items[max(1, len(items) // 4) :]:
        if not _is_output(item):
            calls.add(item.get("call_id"))
        elif item.get("call_id") not in calls:
            continue
        rest.append(item)
    return rest


def _is_output(item: JsonObject) -> bool:
    return str(item.get("type", "")).endswith("_output")


def _is_input(item: JsonObject) -> bool:
    return item.get("type") == "message" and item.get("role") in ("user", "developer")


def _text_of(item: JsonObject) -> str:
    content = item.get("content")
    if isinstance(content, str):
        return content
    if not isinstance(content, list):
        return ""
    texts: list[str] = []
    for part in content:
        text = part.get("text") if isinstance(part, dict) else None
        texts.append(text if isinstance(text, str) else NOT_KEPT)
    return "\n".join(texts)
