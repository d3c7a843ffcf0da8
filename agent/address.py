"""Addresses of servers as they may be shown and recorded."""

from urllib.parse import urlsplit, urlunsplit


def without_secrets(url: str) -> str:
    """A URL without the user, the password and the query, which may hold a key."""
    parts = urlsplit(url)
    return urlunsplit(parts._replace(netloc=parts.netloc.rpartition("@")[2], query=""))
