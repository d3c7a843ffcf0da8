"""The ways of asking a model's server that the command line names."""

from enum import StrEnum


class Api(StrEnum):
    """The interface that a server speaks."""

    CHAT = "chat"
    """OpenAI's Chat Completions, which nearly every server has."""
    RESPONSES = "responses"
    """OpenAI's Responses, which alone gives the reasoning of OpenAI's own models."""


class ReasoningEcho(StrEnum):
    """Whether a model gets its earlier reasoning back. Corrected once, if the server refuses what was chosen."""

    AUTO = "auto"
    """Yes, if it came in a field of its own; no, if it stood in `<think>` tags of the text."""
    INCLUDE = "include"
    EXCLUDE = "exclude"
