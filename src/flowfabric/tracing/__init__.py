"""Spans of submits and attempts, for programs that use OpenTelemetry."""
