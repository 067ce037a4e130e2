"""Directories and metadata that are claimed, prepared, inspected and mended: of a standalone, a bookie, a cluster."""
