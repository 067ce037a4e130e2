"""Coverage-guided fuzzing of what reads a stranger's credentials; its corpus is kept."""
