"""Addresses and keys of servers: whether they can be any, and what of them may be shown and recorded."""

from urllib.parse import urlsplit, urlunsplit

from tasks.errors import UsageError


def require_address(url: str) -> None:
    """Raise UsageError where the address of a server is none."""
    try:
        parts = urlsplit(url)
        usable = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        usable = False
    if not usable:
        # It is not shown: nobody can tell where in it a password stands.
        raise UsageError(
            "The address of the model's server (--base-url or OPENAI_BASE_URL) is none. It has the form "
            "http://host:port/v1."
        )


def require_key(name: str, key: str) -> str:
    """A key without the space around it; raises UsageError where no request can hold it. `name` is the variable's."""
    stripped = key.strip()
    if not (stripped.isascii() and stripped.isprintable()):
        raise UsageError(f"The key in {name} holds a character that no key has. Set it again, without line breaks.")
    return stripped


def without_secrets(url: str) -> str:
    """A URL without the user, the password and the query, which may hold a key."""
    parts = urlsplit(url)
    return urlunsplit(parts._replace(netloc=parts.netloc.rpartition("@")[2], query=""))
