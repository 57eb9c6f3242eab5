#!/bin/sh
# Runs the tests on several workers. Up to five failed tests run once more, one at a time: thousands of tests with real
# processes on a busy machine sometimes fail without a fault in the code. Both runs are printed, so a
# test that needed its second run is seen and can be fixed.
set -u
cd "$(dirname "$0")/.."
failed=.pytest_cache/v/cache/lastfailed

rm -f "$failed"
.venv/bin/pytest "$@" && exit 0
status=$?
count=$(.venv/bin/python -c 'import json, sys; print(len(json.load(open(sys.argv[1]))))' "$failed" 2>/dev/null || echo 0)
# 1 means failed tests; anything else is an interruption or an error of the run itself.
if [ "$status" -ne 1 ] || [ "$count" -lt 1 ] || [ "$count" -gt 5 ]; then
    exit "$status"
fi
echo "toolcrib: $count failed; running them once more, one at a time…" >&2
.venv/bin/pytest "$@" --last-failed --last-failed-no-failures none --numprocesses 0 --dist no
