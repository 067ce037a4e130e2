"""Geminga beside other brokers under one load: ``python -m bench peers``; docs/benchmarks.md says what each row is."""
