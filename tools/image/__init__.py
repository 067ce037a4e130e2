"""The container image: what goes into it, its build with podman, and its test in real containers."""
