"""Show the progress of `uv pip sync --verbose`, read from standard input.

On a terminal, one line changes with each package; elsewhere each large package has its own line. The exit code is 1
if the output ends with `sync failed`. Run by scripts/install.sh before any package is installed: standard library only.

"""

import re
import sys

RESOLVED = re.compile(r"Resolved (\d+) packages")
FETCHED = re.compile(r"Sending fresh GET.*/([^/]+?)-\d[^/]*\.(?:whl|gz|zip)")
LARGE = re.compile(r"\s*Downloading (\S+) \((.+)\)")
FINISHED = re.compile(r"\s*Downloaded (\S+)")
UNITS = {"KiB": 1, "MiB": 1024, "GiB": 1024**2}


def kibibytes(size: str) -> float:
    """Return the number that uv wrote as `154.3MiB`."""
    return float(size[:-3]) * UNITS[size[-3:]] if size[-3:] in UNITS else 0


def main() -> int:
    count, terminal = sys.argv[1], sys.stderr.isatty()
    package, started, last = "", 0, ""
    large: dict[str, str] = {}
    for line in sys.stdin:
        last = line.strip()
        if found := RESOLVED.match(line):
            count = found[1]
        elif found := FETCHED.search(line):
            package, started = found[1].replace("_", "-"), started + 1
        elif found := LARGE.match(line):
            large[found[1]] = found[2]
            if not terminal:
                sys.stderr.write(f"toolcrib: downloading {found[1]} ({found[2]})\n")
        elif found := FINISHED.match(line):
            large.pop(found[1], None)
        else:
            continue
        if terminal and started:
            largest = max(large, key=lambda name: kibibytes(large[name]), default="")
            shown = f"{largest} ({large[largest]})" if largest else package
            sys.stderr.write(f"\r\033[Ktoolcrib: package {started} of {count}: {shown}")
            sys.stderr.flush()
    if terminal:
        sys.stderr.write("\r\033[K")
    return int(last == "sync failed")


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit(130)
