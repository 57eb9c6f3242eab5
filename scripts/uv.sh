#!/bin/sh
# Runs the pinned uv. The first run downloads it with pip into .tools, so a clone needs only Python, git and make.
# Every failure is one sentence; the output of pip is kept in a log.
set -eu
cd "$(dirname "$0")/.."

fail() {
    echo "toolcrib: $*" >&2
    exit 1
}

find_python() {
    found=""
    for candidate in ${PYTHON:-python3 python3.14 python3.13 python3.12 python3.11}; do
        version=$("$candidate" -c 'import sys; print("%d.%d.%d" % sys.version_info[:3])' 2>/dev/null) || continue
        if "$candidate" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then
            echo "$candidate"
            return
        fi
        found="$found${found:+, }$candidate is $version"
    done
    fail "Python 3.11 or newer is needed (found: ${found:-no Python at all})." \
        "Install one, or name it: make PYTHON=/path/to/python3"
}

fetch_uv() {
    python=$(find_python)
    rm -rf .tools
    mkdir .tools
    echo "toolcrib: fetching uv with pip…" >&2
    "$python" -m venv .tools >.tools/install.log 2>&1 ||
        fail "$python cannot make virtual environments. Install its venv package" \
            "(Debian and Ubuntu: python3-venv), then run make again. Details: .tools/install.log"
    .tools/bin/python -m pip install --require-hashes -r requirements/tools.txt >>.tools/install.log 2>&1 ||
        fail "uv could not be downloaded: is there a network, and does pip work?" \
            "Then run make again. Details: .tools/install.log"
    cp requirements/tools.txt .tools/installed.txt
}

pip_setting() {
    .tools/bin/python -m pip config get "global.$1" 2>/dev/null || true
}

cmp -s requirements/tools.txt .tools/installed.txt || fetch_uv

# uv does not read pip's settings: it gets pip's index and certificates, unless it has its own.
if [ -z "${UV_DEFAULT_INDEX:-}${UV_INDEX_URL:-}" ]; then
    index=${PIP_INDEX_URL:-$(pip_setting index-url)}
    [ -z "$index" ] || export UV_DEFAULT_INDEX="$index"
fi
if [ -z "${SSL_CERT_FILE:-}" ]; then
    certificates=${PIP_CERT:-$(pip_setting cert)}
    [ -z "$certificates" ] || export SSL_CERT_FILE="$certificates"
fi

exec .tools/bin/uv "$@"
