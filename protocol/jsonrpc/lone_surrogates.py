"""JSON with lone surrogates, half of a pair each.

JavaScript counts a character beyond U+FFFF as two, cuts texts between them, and writes each half as
an escape of its own. No UTF-8 can say that, and a strict parser refuses the whole text.
"""

import json
from typing import Any, Literal

from pydantic_core import from_json

_SURROGATE = "hex escape"
"""In what the parser says of a lone surrogate."""


MAX_REPAIRED = 512 * 1024
"""Bytes or characters; what is longer takes too long to be read three times, and is refused."""


CACHED: Literal["keys"] = "keys"
"""Which texts the parser keeps for later: those of values keep the memory around them as well.

After a message of 20,000 tools it was 17 MB, for as long as the process lived.
"""


def read_json(content: bytes | str, *, allow_inf_nan: bool = True) -> Any:
    """Read JSON; U+FFFD takes the place of each lone surrogate, up to MAX_REPAIRED.

    Raises:
        ValueError: it is not JSON.
        TypeError: a text has surrogates itself, not as escapes.
    """
    try:
        return from_json(content, allow_inf_nan=allow_inf_nan, cache_strings=CACHED)
    except ValueError as exc:
        if _SURROGATE not in str(exc) or len(content) > MAX_REPAIRED:
            raise
    try:
        # This one lets them pass. It is as fast, but makes other values of some numbers.
        text = json.dumps(json.loads(content), ensure_ascii=False)
    except RecursionError as exc:
        raise ValueError("recursion limit exceeded") from exc
    whole = text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    return from_json(whole, allow_inf_nan=allow_inf_nan, cache_strings=CACHED)
