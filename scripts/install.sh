#!/bin/sh
# Brings .venv to exactly one locked set of packages (base or dev) and puts the project itself on top, editable.
# Run by make when a requirements file changed; the stamp it leaves is what make compares with.
set -eu
cd "$(dirname "$0")/.."
locked=$1

uv() {
    sh scripts/uv.sh "$@"
}

# step SENTENCE COMMAND…: run quietly; if it fails say the sentence.
step() {
    sentence=$1
    shift
    "$@" >.tools/install.log 2>&1 && return
    echo "toolcrib: $sentence Details: .tools/install.log" >&2
    exit 1
}

uv --version >/dev/null
if ! .venv/bin/python -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then
    step "the virtual environment .venv could not be made." \
        uv venv --clear --no-python-downloads --python .tools/bin/python .venv
fi
echo "toolcrib: installing requirements/$locked.txt…" >&2
step "the packages could not be downloaded: is there a network, and does the package index answer?" \
    uv pip sync --python .venv/bin/python --require-hashes "requirements/$locked.txt"
step "the packages are there, but the project itself could not be installed." \
    uv pip install --python .venv/bin/python --no-deps --no-build-isolation --editable .
rm -f .venv/*.stamp
touch ".venv/$locked.stamp"
