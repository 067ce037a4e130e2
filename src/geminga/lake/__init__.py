"""The lake tier: closed ledgers as Parquet files in a directory or a bucket (docs/formats/lake.md).

Nothing here is loaded before a topic is offloaded or read from there; ``pyarrow`` comes with the extra ``lake``.
"""
