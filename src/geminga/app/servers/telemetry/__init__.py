"""Traces for OpenTelemetry: what puts spans around a broker's work, loaded where it is asked for."""
