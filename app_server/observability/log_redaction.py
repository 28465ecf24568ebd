"""Takes secrets out of texts that leave the process.

This is the second wall: the first is that nobody logs them.

A secret is known by its name (`api_key=…`, `Authorization: …`), by its shape (`sk-…`, a JSON Web
Token), by its place in a URL (user, password, query, fragment), or as the value of a variable of
the environment whose name says that it is one.
Source: docs/operations.md, "Secrets in the log".
"""

import re
from collections.abc import Mapping

REDACTED = "***"

MIN_VALUE_CHARS = 8
"""Of the value of a variable that is looked for: shorter ones are words that mean other things."""
MAX_VALUES = 256
"""Of variables that are looked for, the longest first."""

SECRET_NAME = (
    r"(?:api[_-]?key|access[_-]?key|private[_-]?key|client[_-]?key|token(?!s)|secret(?!s)|passw(?:or)?d|"
    r"passphrase|authorization|cookie|credential(?!s))"
)
"""Part of the name of what is a secret; `tokens` and the like are counts and lists."""

_NAME = re.compile(r"KEY|TOKEN|SECRET|PASSW|CREDENTIAL|AUTHORIZATION|COOKIE", re.IGNORECASE)

_RULES: tuple[tuple[re.Pattern[str], str], ...] = (
    (
        re.compile(
            r"-----BEGIN [A-Z ]{0,32}PRIVATE KEY-----.*?"
            r"(?:-----END [A-Z ]{0,32}PRIVATE KEY-----|\Z)",
            re.DOTALL,
        ),
        REDACTED,
    ),
    # User and password, query and fragment of a URL.
    (
        re.compile(r"(\b[a-z][a-z0-9+.-]{1,15}://)[^/\s@\"']{1,1024}@", re.IGNORECASE),
        rf"\1{REDACTED}@",
    ),
    (
        re.compile(r"(\b(?:https?|wss?)://[^\s?#\"'<>]{1,2048})[?#][^\s\"'<>)\]}]*", re.IGNORECASE),
        rf"\1?{REDACTED}",
    ),
    # `name: value`, `"name": "value"`, `name=value`, and a scheme before the value.
    (
        re.compile(
            rf"({SECRET_NAME}[\w.-]{{0,64}}\\?[\"']?\]?\s{{0,4}}[:=]\s{{0,4}}"
            r"(?:(?:Bearer|Basic)\s{1,4})?)"
            r"(?:b?\\?\"[^\"]*\"?|b?'[^']*'?|[^\s,;&\"'}\])]+)",
            re.IGNORECASE,
        ),
        rf"\1{REDACTED}",
    ),
    # Pairs of a header as Python writes them.
    (
        re.compile(
            rf"(b?['\"][\w-]{{0,64}}{SECRET_NAME}[\w-]{{0,64}}['\"],\s?)b?(?:'[^']*'|\"[^\"]*\")",
            re.IGNORECASE,
        ),
        rf"\1{REDACTED}",
    ),
    (
        re.compile(r"\b(Bearer|Basic)\s{1,4}[A-Za-z0-9._~+/=-]{8,}", re.IGNORECASE),
        rf"\1 {REDACTED}",
    ),
    # Shapes that nothing else has.
    (
        re.compile(
            r"\b(?:sk|rk|pk)-[A-Za-z0-9_-]{8,}"
            r"|\bgh[opsur]_[A-Za-z0-9]{16,}|\bgithub_pat_\w{16,}|\bglpat-[\w-]{16,}"
            r"|\bxox[abeoprs]-[A-Za-z0-9-]{8,}|\b(?:AKIA|ASIA)[A-Z0-9]{16}\b|\bAIza[\w-]{30,}"
            r"|\beyJ[\w-]{8,}\.[\w-]{8,}\.?[\w-]*"
        ),
        REDACTED,
    ),
)


class Redactor:
    """Replaces secrets in texts; safe on any thread."""

    def __init__(self, environ: Mapping[str, str]) -> None:
        """Look for the values of those variables whose names say that they are secrets."""
        found = {
            value
            for name, value in environ.items()
            if _NAME.search(name) and len(value) >= MIN_VALUE_CHARS
        }
        values = sorted(found, key=len, reverse=True)[:MAX_VALUES]
        self._values = re.compile("|".join(map(re.escape, values))) if values else None

    def redact(self, text: str) -> str:
        """Return the text with `***` in the place of each secret."""
        if self._values is not None:
            text = self._values.sub(REDACTED, text)
        for pattern, replacement in _RULES:
            text = pattern.sub(replacement, text)
        return text
