"""One-line changes of the product that its short tests must catch: ``python -m tools.mutants``."""
