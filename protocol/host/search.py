"""fuzzyFileSearch, fuzzyFileSearch/session*: find files by letters of their paths."""

from typing import Literal

from typing_extensions import TypeAliasType

from protocol.model import OpenEnum, SnakeModel, UInt32, WireModel


class FuzzyFileSearchParams(WireModel):
    """Find files and directories whose paths have the letters of a query."""

    query: str
    roots: list[str]
    """Directories to search; best given as absolute paths."""
    cancellation_token: str | None = None
    """A later search with the same token cancels this one."""


FuzzyFileSearchMatchType = TypeAliasType(
    "FuzzyFileSearchMatchType", OpenEnum[Literal["file", "directory"]]
)
"""What was found."""


class FuzzyFileSearchResult(SnakeModel):
    """A file or directory that matches."""

    root: str
    """The directory of `roots` that it is in."""
    path: str
    """Relative to `root`."""
    match_type: FuzzyFileSearchMatchType
    file_name: str
    """Last part of `path`."""
    score: UInt32
    """Higher is better."""
    indices: list[UInt32] | None = None
    """Positions of the matching characters in `path`, ascending; null if not known."""


class FuzzyFileSearchResponse(WireModel):
    """What matches, best first."""

    files: list[FuzzyFileSearchResult]


class FuzzyFileSearchSessionStartParams(WireModel):
    """Begin a search that follows the user's typing."""

    session_id: str
    """Chosen by the client."""
    roots: list[str]


class FuzzyFileSearchSessionStartResponse(WireModel):
    """Nothing: the session waits for its first query."""


class FuzzyFileSearchSessionStopParams(WireModel):
    """End a search session."""

    session_id: str


class FuzzyFileSearchSessionStopResponse(WireModel):
    """Nothing."""


class FuzzyFileSearchSessionUpdateParams(WireModel):
    """Change what a session searches for."""

    session_id: str
    query: str


class FuzzyFileSearchSessionUpdateResponse(WireModel):
    """Nothing: matches arrive as `fuzzyFileSearch/sessionUpdated`."""


class FuzzyFileSearchSessionCompletedNotification(WireModel):
    """The session has finished with its latest query."""

    session_id: str


class FuzzyFileSearchSessionUpdatedNotification(WireModel):
    """What a session has found so far, in place of what it sent before."""

    session_id: str
    query: str
    """The query that `files` answers."""
    files: list[FuzzyFileSearchResult]
