#!/bin/sh
# Builds the documentation as a site in build/site, and fails on broken links. Run by `make docs`.
# The pages keep their paths, so that every link works both on a code host and in the site.
set -eu
cd "$(dirname "$0")/.."
sh scripts/programs.sh docs
rm -rf build/pages build/site
mkdir -p build/pages/tests/cluster
cp -R README.md CONTRIBUTING.md CHANGELOG.md LICENSE docs examples build/pages
cp tests/cluster/README.md build/pages/tests/cluster
find build/pages -name __pycache__ -prune -exec rm -rf {} +
.tools/docs/bin/zensical build --strict
echo "toolcrib: the documentation is in build/site/index.html" >&2
