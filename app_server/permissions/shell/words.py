"""The text of one word of a shell script: quotes taken away, or that it is not known. No I/O.

The grammar says where a word is, and this reads it a second time by the rules of the shell: where
the two do not agree, the text counts as not known.
Source: https://pubs.opengroup.org/onlinepubs/9799919799/utilities/V3_chap02.html, "Quoting".
"""

import re

from app_server.permissions.shell.script import Word

_EXPANDS = re.compile(r"\$[A-Za-z0-9_{(\[@*#?$!-]")
_BRACES = re.compile(r"\{.*(?:,|\.\.).*\}", re.DOTALL)
_ENDS = frozenset(" \t\n;|&<>()")
_PATTERN = frozenset("*?[")
_ZSH_PATTERN = frozenset("^#{")


def read_word(source: str) -> Word:
    """Read a word as the script has it. What is not known is shown without its quotes."""
    return _Reader(source).read()


class _Reader:
    def __init__(self, source: str) -> None:
        self._source = source
        self._at = 0
        self._text: list[str] = []
        self._unquoted: list[str] = []
        """Text in which the shell expands braces; quoted parts are left out of it."""
        self._is_literal = True
        self._is_pattern = False
        self._is_zsh_pattern = False

    def read(self) -> Word:
        if self._source.startswith("#"):
            self._is_literal = False
        while self._at < len(self._source):
            match self._source[self._at]:
                case "'":
                    self._single()
                case '"':
                    self._double()
                case "\\":
                    self._escape()
                case char:
                    self._plain(char)
        if _BRACES.search("".join(self._unquoted)):
            self._is_literal = False
        return Word("".join(self._text), self._is_literal, self._is_pattern, self._is_zsh_pattern)

    def _plain(self, char: str) -> None:
        if char in _ENDS or char == "`" or self._expands(quotes=True):
            self._is_literal = False
        if char in _PATTERN:
            self._is_pattern = True
        if char in _ZSH_PATTERN:
            self._is_zsh_pattern = True
        self._text.append(char)
        self._unquoted.append(char)
        self._at += 1

    def _expands(self, *, quotes: bool) -> bool:
        if _EXPANDS.match(self._source, self._at):
            return True
        return quotes and self._source[self._at : self._at + 2] in ("$'", '$"')

    def _escape(self) -> None:
        escaped = self._source[self._at + 1 : self._at + 2]
        # Lines that are joined within a word may make something else of it.
        if escaped in ("", "\n"):
            self._is_literal = False
        else:
            self._text.append(escaped)
        self._at += 2

    def _single(self) -> None:
        end = self._source.find("'", self._at + 1)
        if end < 0:
            self._is_literal = False
            end = len(self._source)
        self._text.append(self._source[self._at + 1 : end])
        self._at = end + 1

    def _double(self) -> None:
        self._at += 1
        while (char := self._source[self._at : self._at + 1]) != '"':
            following = self._source[self._at + 1 : self._at + 2]
            if not char:
                self._is_literal = False
                return
            if char == "\\" and following and following in '$`"\\':
                self._text.append(following)
                self._at += 2
                continue
            if char == "`" or (char == "\\" and following == "\n") or self._expands(quotes=False):
                self._is_literal = False
            self._text.append(char)
            self._at += 1
        self._at += 1
