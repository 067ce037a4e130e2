"""Boards and alert rules against what Geminga's processes really tell: ``make boards``, ``docs/metrics.md``."""
