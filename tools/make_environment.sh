#!/usr/bin/env bash
# Makes the virtual environment $VENV with exactly what requirements.lock names, and Geminga itself in editable form.
# PYTHON may name an interpreter; otherwise the first of python3, python3.11 ... python3.14 that is 3.11 or newer is taken.
set -euo pipefail
cd "$(dirname "$0")/.."
venv="${VENV:-.venv}"

is_new_enough() {
    command -v "$1" >/dev/null 2>&1 && "$1" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null
}

python=""
for candidate in ${PYTHON:-python3 python3.13 python3.12 python3.11 python3.14}; do
    if is_new_enough "$candidate"; then
        python="$candidate"
        break
    fi
done
if [ -z "$python" ]; then
    found="$("${PYTHON:-python3}" --version 2>&1 | head -n 1 || true)"
    echo "Geminga needs Python 3.11 or newer, found: ${found:-none}. Install one, or name it: make PYTHON=/path/to/python3.11 ..." >&2
    exit 1
fi

echo "making $venv with $("$python" --version)"
if ! "$python" -m venv --clear "$venv"; then
    echo "$python -m venv failed: on Debian and Ubuntu the package python3-venv has it" >&2
    exit 1
fi
pip=("$venv/bin/python" -m pip --quiet --disable-pip-version-check)
"${pip[@]}" install --require-hashes -r requirements.lock
"${pip[@]}" install --no-deps --no-build-isolation -e .
