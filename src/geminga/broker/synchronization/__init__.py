"""Configuration stores of several clusters kept alike by a topic (see DESIGN.md)."""
