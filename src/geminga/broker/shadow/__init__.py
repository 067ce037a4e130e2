"""Shadow topics: topics that show the messages of another one, without copies. See DESIGN.md."""
