"""Where the class of an answer is another one than that of the reference, and why."""

from fnmatch import fnmatchcase

REASONS = {
    "thread/queue/* an unknown thread": "It calls a mistake of the client an internal error.",
    "thread/items/* an unknown thread": "It says that the method is not supported yet.",
    "thread/searchOccurrences an unknown thread": "It says that the method is not supported yet.",
    "thread/timeline/list an unknown thread": "It says that the method is not supported yet.",
    "thread/attachment/* no thread id": "An id that is none has one code in all methods here.",
    "thread/readState/update no thread id": "An id that is none has one code in all methods here.",
    "turn/settings/update valid": "It has a feature for it, which is off; here it always works.",
    "thread/* profile of a wrong type": "It does not know the member.",
    "thread/resume streamId of a wrong type": "It does not know the member.",
    "thread/resume afterSeq of a wrong type": "It does not know the member.",
    "thread/* unloadAfterSecs of a wrong type": "It does not know the member.",
    "thread/* budget of a wrong type": "It does not know the member.",
    "thread/start threadId of a wrong type": "It does not know the member.",
    "thread/unsubscribe unload of a wrong type": "It does not know the member.",
    "turn/* mcpMetaByServer of a wrong type": "It does not know the member.",
}
"""By a pattern of `METHOD CASE`."""


def reason_of(case: str) -> str | None:
    """Say why the class of a case differs; None if it must not."""
    return next((reason for name, reason in REASONS.items() if fnmatchcase(case, name)), None)
