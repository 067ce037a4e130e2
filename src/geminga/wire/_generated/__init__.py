"""Classes generated from ``wire/proto`` by ``tools/generate_protos.py``; never edited by hand."""
