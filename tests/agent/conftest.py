"""Fixtures of the tests of model clients."""

from collections.abc import Iterator

import pytest
from model_server import ModelServer

from agent import served


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[ModelServer]:
    """A scripted server; clients wait next to nothing unless it asks them to."""
    monkeypatch.setattr(served, "_BACKOFF", lambda _: 0.01)
    made = ModelServer()
    yield made
    made.close()
