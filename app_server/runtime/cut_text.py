"""Texts cut to a number of bytes, with a mark of the cut. No I/O."""

CUT = "\n[… cut]"


def cut_middle(text: str, limit_bytes: int) -> str:
    """Cut UTF-8 text to a number of bytes, keeping as much of its beginning as of its end.

    A token counts as four bytes in the note that stands for the middle.
    """
    encoded = text.encode()
    if len(encoded) <= limit_bytes:
        return text
    half = limit_bytes // 2
    head = encoded[:half].decode(errors="ignore")
    tail = encoded[len(encoded) - half :].decode(errors="ignore")
    tokens = (len(encoded) - 2 * half + 3) // 4
    return f"{head}…{tokens} tokens truncated…{tail}"


def cut_text(text: str, limit_bytes: int) -> str:
    """Cut a text down to a number of bytes, and say so at its end."""
    content = text.encode()
    if len(content) <= limit_bytes:
        return text
    return content[: max(0, limit_bytes - len(CUT.encode()))].decode(errors="ignore") + CUT
