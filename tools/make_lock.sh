#!/usr/bin/env bash
# Resolves requirements.lock from pyproject.toml: one file for running, testing and developing, with hashes, for every
# platform and Python from 3.11 on. It names no package index: each user's own settings decide where packages come from.
# tools/spark-extras.lock has what the page spark-day-one.md needs beside it, at versions that go with it,
# tools/fuzz.lock what fuzzing needs, tools/browser.lock what drives a browser.
set -euo pipefail
cd "$(dirname "$0")/.."
venv="${VENV:-build/lock-env}"
"${PYTHON:-python3}" -m venv --clear "$venv"
"$venv/bin/python" -m pip --quiet --disable-pip-version-check install uv
"$venv/bin/uv" pip compile --quiet --generate-hashes --no-emit-index-url --no-header \
    --python-version 3.11 --universal --extra dev pyproject.toml --output-file requirements.lock
locked=()
for package in $(sed -n 's/^\([a-z][^ =]*\)==.*/\1/p' requirements.lock | sort -u); do
    locked+=(--no-emit-package "$package")
done
"$venv/bin/uv" pip compile --quiet --generate-hashes --no-emit-index-url --no-header \
    --python-version 3.11 --universal --constraints requirements.lock "${locked[@]}" \
    tools/spark-extras.in --output-file tools/spark-extras.lock
"$venv/bin/uv" pip compile --quiet --generate-hashes --no-emit-index-url --no-header \
    --python-version 3.11 --universal --constraints requirements.lock \
    tools/fuzz.in --output-file tools/fuzz.lock
"$venv/bin/uv" pip compile --quiet --generate-hashes --no-emit-index-url --no-header \
    --python-version 3.11 --universal --constraints requirements.lock \
    tools/browser.in --output-file tools/browser.lock
rm -rf "$venv"
