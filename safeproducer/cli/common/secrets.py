"""Keeps secret values of the configuration out of everything a command prints."""

import re
from collections.abc import Iterable, Mapping

REDACTED = "[redacted]"

_SECRET_NAME = re.compile(
    r"pass|pwd|secret|token|jaas|credential|assertion|oauthbearer\.config|\.key\b|\.pem$|private", re.I
)
_SECURITY_NAME = re.compile(r"^(sasl|ssl)\.", re.I)
# Security settings that a person needs to see in an error message and that hold nothing secret.
_PUBLIC_NAME = re.compile(
    r"\.(mechanisms?|location|username|algorithm|suites|list|providers|name|principal|method|url|scope|ms)$", re.I
)
# A short value under an unknown security name is rather "true" than a secret, and would blank out words.
_SHORTEST_GUESS = 4


def is_secret(name: str) -> bool:
    """Tell whether a setting of this name is certain to hold a secret."""
    return bool(_SECRET_NAME.search(name)) and not _PUBLIC_NAME.search(name)


class Redactor:
    """Replaces secret values in text. Misspelt names count: any ``sasl.`` or ``ssl.`` value not known as public."""

    def __init__(self, settings: Mapping[str, object] | None = None) -> None:
        self._secrets: list[str] = []
        self.learn((settings or {}).items())

    def learn(self, settings: Iterable[tuple[str, object]]) -> None:
        """Add the secrets of these settings; longer ones are replaced first, so none shows through another."""
        for name, value in settings:
            text = value if isinstance(value, str) else ""
            guess = _SECURITY_NAME.match(name) and not _PUBLIC_NAME.search(name) and len(text) >= _SHORTEST_GUESS
            if text and (is_secret(name) or guess):
                self._secrets.append(text)
        self._secrets.sort(key=len, reverse=True)

    def __call__(self, text: str) -> str:
        """Return the text without any secret that is known by now."""
        for secret in self._secrets:
            text = text.replace(secret, REDACTED)
        return text

    def tree(self, value: object) -> object:
        """Return a JSON-like value whose strings, at any depth, hold no secret."""
        if isinstance(value, str):
            return self(value)
        if isinstance(value, dict):
            return {name: self.tree(item) for name, item in value.items()}
        if isinstance(value, list | tuple):
            return [self.tree(item) for item in value]
        return value
