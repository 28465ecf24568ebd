"""How many entries a page of a list has."""

DEFAULT_PAGE = 25
MAX_PAGE = 100


def page_size(limit: int | None, default: int = DEFAULT_PAGE) -> int:
    """Choose it by what a client asks for: 1 to MAX_PAGE, `default` without a wish."""
    return min(max(default if limit is None else limit, 1), MAX_PAGE)
