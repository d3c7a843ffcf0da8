"""Sends spans to a collector over OTLP/HTTP (protobuf)."""

import os
from collections.abc import Sequence

from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import SpanExportResult

from tasks.errors import UnavailableError, UsageError

_PATH = "/v1/traces"
_TOGETHER = 100
"""Spans in one request; with what was said in them, some are 100 kB large."""


def send(spans: Sequence[ReadableSpan], endpoint: str | None) -> None:
    """Send spans to an endpoint, by default to the one that OpenTelemetry's environment variables name.

    Headers, for example for a key, and certificates are taken from those variables too.

    Raises:
        UsageError: no endpoint is named.
        UnavailableError: it did not take them.
    """
    named = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")
    if endpoint is None and not any(os.environ.get(name) for name in named):
        raise UsageError("No endpoint is named. Add --endpoint URL, or set OTEL_EXPORTER_OTLP_ENDPOINT.")
    exporter = OTLPSpanExporter(endpoint=None if endpoint is None else _address(endpoint))
    try:
        for start in range(0, len(spans), _TOGETHER):
            if exporter.export(spans[start : start + _TOGETHER]) is not SpanExportResult.SUCCESS:
                raise UnavailableError(
                    f"{endpoint or 'The endpoint of the environment'} did not take the spans; {start} of {len(spans)} "
                    "were sent. Is it a collector's OTLP/HTTP address? Does it want a key, in "
                    "OTEL_EXPORTER_OTLP_HEADERS? Sent again, they have the same ids."
                )
    finally:
        exporter.shutdown()


def _address(endpoint: str) -> str:
    """The address for spans below a collector's, as with OTEL_EXPORTER_OTLP_ENDPOINT."""
    return endpoint if endpoint.endswith(_PATH) else endpoint.rstrip("/") + _PATH
