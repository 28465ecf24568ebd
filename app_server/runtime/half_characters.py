"""JSON in which characters were cut in two.

JavaScript counts a character beyond U+FFFF as two, cuts texts between them, and writes each half as
an escape of its own. No UTF-8 can say that, and a strict parser refuses the whole text.
"""

import json
from typing import Any

from pydantic_core import from_json

_HALF = "hex escape"
"""In what the parser says of half a character."""


def read_json(content: bytes | str) -> Any:
    """Read JSON; U+FFFD takes the place of each half of a character.

    Raises:
        ValueError: it is not JSON.
        TypeError: a text has surrogates itself, not as escapes.
    """
    try:
        return from_json(content)
    except ValueError as exc:
        if _HALF not in str(exc):
            raise
    try:
        # This one lets them pass. It is as fast, but makes other values of some numbers.
        text = json.dumps(json.loads(content), ensure_ascii=False)
    except RecursionError as exc:
        raise ValueError("recursion limit exceeded") from exc
    return from_json(text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace"))
