"""Ids of threads as clients may write them: any form of a UUID, read as the usual one.

The forms are those of RFC 9562 and the usual variations: capital letters, no hyphens, braces, or
`urn:uuid:` in front. Everything behind the wire sees small letters with hyphens.
"""

import re
from typing import Annotated

from pydantic import AfterValidator

_GROUPS = "-".join(f"[0-9a-fA-F]{{{size}}}" for size in (8, 4, 4, 4, 12))
_USUAL = re.compile("-".join(f"[0-9a-f]{{{size}}}" for size in (8, 4, 4, 4, 12)))
_UUID = re.compile(rf"(?:urn:uuid:)?{_GROUPS}|\{{{_GROUPS}\}}|[0-9a-fA-F]{{32}}")


def is_thread_id(text: str) -> bool:
    """Whether a text is a UUID in any form."""
    return _UUID.fullmatch(text) is not None


def usual_form(text: str) -> str:
    """Write a UUID in small letters with hyphens; text that is none stays as it is."""
    # Most are in it already, and are asked for several times in a request.
    if _USUAL.fullmatch(text) is not None or not is_thread_id(text):
        return text
    digits = text.removeprefix("urn:uuid:").strip("{}").replace("-", "").lower()
    return "-".join((digits[:8], digits[8:12], digits[12:16], digits[16:20], digits[20:]))


ThreadIdParam = Annotated[str, AfterValidator(usual_form)]
"""A thread that a request names. What is no UUID stays as it is, to be refused in its turn."""
