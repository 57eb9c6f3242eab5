#!/usr/bin/env bash
# Runs both commands of the README like a new user: a fresh clone of the committed files, and an empty HOME.
# Part of `make test-all`.
set -euo pipefail
set -m # gives background jobs their own process group, so that all their processes can be stopped
cd "$(dirname "$0")/.."
ready_seconds=300

folder=$(mktemp -d "${TMPDIR:-/tmp}/toolcrib-clone.XXXXXX")
running=""
cleanup() {
    [[ -z $running ]] || kill -TERM -- "-$running" 2>/dev/null || true
    rm -rf "$folder"
}
trap cleanup EXIT

fail() {
    echo "fresh clone: $*" >&2
    exit 1
}

[[ -z $(git status --porcelain) ]] || echo "fresh clone: what is not committed is not tried" >&2
git clone --quiet . "$folder/toolcrib"
mkdir "$folder/home"
cd "$folder/toolcrib"
for name in "${!TOOLCRIB_@}" "${!XDG_@}" MAKEFLAGS MAKELEVEL VIRTUAL_ENV; do
    [[ $name == TOOLCRIB_CORPUS ]] || unset "$name"
done
export HOME=$folder/home

# Any free port, because a crib may run on this machine; everything else as in the README.
make run ARGS="--port 0 --no-open --json" >"$folder/ready" 2>"$folder/talk" &
running=$!
for ((second = 0; ; second++)); do
    grep -q '"ready"' "$folder/ready" && break
    kill -0 "$running" 2>/dev/null || fail "make run ended: $(cat "$folder/talk")"
    ((second < ready_seconds)) || fail "make run was not ready within $ready_seconds s: $(cat "$folder/talk")"
    sleep 1
done
address=$(.venv/bin/python -c 'import json, sys; print(json.loads(sys.stdin.readline())["mcp"])' <"$folder/ready")
.venv/bin/python -c 'import sys, urllib.request as r; r.urlopen(sys.argv[1], timeout=10)' "${address%/mcp*}/healthz" ||
    fail "the crib does not answer at $address"
kill -TERM -- "-$running"
wait "$running" 2>/dev/null || true
running=""
echo "fresh clone: make run was ready at $address"

make test
