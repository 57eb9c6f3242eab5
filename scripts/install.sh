#!/bin/sh
# Brings .venv to exactly one locked set of packages (base or dev) and puts the project itself on top, editable.
# Run by make when a requirements file changed; the stamp it leaves is what make compares with.
set -eu
cd "$(dirname "$0")/.."
locked=$1

uv() {
    sh scripts/uv.sh "$@"
}

# step SENTENCE COMMAND…: run the command quietly; print the sentence if it fails.
step() {
    sentence=$1
    shift
    "$@" >>.tools/install.log 2>&1 && return
    fail "$sentence"
}

fail() {
    echo "toolcrib: $1 Details: .tools/install.log" >&2
    exit 1
}

uv --version >/dev/null
: >.tools/install.log
count=$(grep -c '^[a-zA-Z0-9]' "requirements/$locked.txt")
if ! .venv/bin/python -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then
    echo "toolcrib: step 1 of 3: making the virtual environment .venv…" >&2
    step "the virtual environment .venv could not be made." \
        uv venv --clear --no-python-downloads --python .tools/bin/python .venv
fi
echo "toolcrib: step 2 of 3: installing $count packages (requirements/$locked.txt)…" >&2
if ! { uv pip sync --verbose --python .venv/bin/python --require-hashes "requirements/$locked.txt" 2>&1 ||
    echo "sync failed"; } | tee -a .tools/install.log | .venv/bin/python scripts/install_progress.py "$count"; then
    fail "the packages could not be downloaded: is there a network, and does the package index answer?"
fi
echo "toolcrib: step 3 of 3: installing Toolcrib itself…" >&2
step "the packages are there, but the project itself could not be installed." \
    uv pip install --python .venv/bin/python --no-deps --no-build-isolation --editable .
step "the packages could not be compiled." .venv/bin/python -m compileall -q -j 0 src .venv/lib -x '/(tests?|testing)/'
rm -f .venv/*.stamp
touch ".venv/$locked.stamp"
