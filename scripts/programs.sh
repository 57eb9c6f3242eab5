#!/bin/sh
# Installs third-party programs for tests and bench, as locked in requirements/: node, agents, clients, apps, ui_servers, servers, fastmcp or peers,
# each into a folder of that name in .tools. Does nothing if they are current; prints one sentence if they cannot be installed.
set -eu
cd "$(dirname "$0")/.."
programs=$1
folder=.tools/$programs
log=.tools/$programs.log

fail() {
    echo "toolcrib: $*" >&2
    exit 1
}

npm_install() {
    command -v npm >/dev/null || fail "npm is not installed."
    mkdir -p "$folder"
    cp "requirements/$programs/package.json" "requirements/$programs/package-lock.json" "$folder"
    # Not `npm ci`: it refuses a lock without the packages of other platforms, which some registries lack. The optional
    # packages of agents contain Claude Code again, with hundreds of megabytes.
    [ "$programs" = agents ] && omit=--omit=optional || omit=
    # Short timeouts, because npm would retry an unreachable registry for minutes without output.
    npm install --no-audit --no-fund --fetch-timeout=60000 --fetch-retries=1 --fetch-retry-mintimeout=1000 \
        --fetch-retry-maxtimeout=5000 $omit --prefix "$folder" >"$log" 2>&1
}

uv_install() {
    export UV_HTTP_TIMEOUT=60 UV_HTTP_RETRIES=1
    sh scripts/uv.sh venv --clear --no-python-downloads --python .tools/bin/python "$folder" >"$log" 2>&1 &&
        sh scripts/uv.sh pip sync --python "$folder/bin/python" --require-hashes "requirements/$programs.txt" >>"$log" 2>&1
}

case $programs in
node | agents | clients | apps | ui_servers) locked=requirements/$programs/package-lock.json install=npm_install ;;
*) locked=requirements/$programs.txt install=uv_install ;;
esac
cmp -s "$locked" "$folder/installed.lock" && exit 0
echo "toolcrib: installing $programs…" >&2
$install || fail "the programs of $locked could not be installed. Details: $log"
cp "$locked" "$folder/installed.lock"
