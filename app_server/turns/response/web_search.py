"""Searches that whoever serves the model has made, as clients see them. No I/O.

Source: observed behaviour of Codex; the public Responses reference, `web_search_call`.
"""

from protocol.model import Json, JsonObject
from protocol.turns.items import (
    FindInPageWebSearchAction,
    OpenPageWebSearchAction,
    OtherWebSearchAction,
    SearchWebSearchAction,
    WebSearchAction,
    WebSearchThreadItem,
)


def search_item(item_id: str, raw: JsonObject) -> WebSearchThreadItem:
    """Make the item of a `web_search_call`; what is not known of it yet is empty."""
    given = raw.get("action")
    action = _action(given if isinstance(given, dict) else {})
    return WebSearchThreadItem(id=item_id, query=_words(action), action=action)


def _action(action: JsonObject) -> WebSearchAction:
    url = _text(action.get("url"))
    match action.get("type"):
        case "search":
            queries = action.get("queries")
            texts = (
                [each for each in queries if isinstance(each, str)]
                if (isinstance(queries, list))
                else None
            )
            return SearchWebSearchAction(query=_text(action.get("query")), queries=texts)
        case "open_page":
            return OpenPageWebSearchAction(url=url)
        case "find_in_page":
            return FindInPageWebSearchAction(url=url, pattern=_text(action.get("pattern")))
    return OtherWebSearchAction()


def _words(action: WebSearchAction) -> str:
    """Say an action in a few words."""
    match action:
        case SearchWebSearchAction():
            return action.query or next(iter(action.queries or ()), "")
        case OpenPageWebSearchAction():
            return action.url or ""
        case FindInPageWebSearchAction():
            places = [f"'{action.pattern}'"] if action.pattern else []
            return " in ".join([*places, *([action.url] if action.url else [])])
    return ""


def _text(value: Json) -> str | None:
    return value if isinstance(value, str) else None
