"""Checks the limit of open files, which connections, servers and the database share.

Must never change a limit.
"""

from collections.abc import Iterator

from toolcrib.base.home import find_holder
from toolcrib.doctor.finding import Finding
from toolcrib.doctor.surroundings import Surroundings

ENOUGH = 1_024
"""The number of open files a crib needs to work well."""


def check_files(surroundings: Surroundings) -> Iterator[Finding]:
    """Check that a crib may open enough files."""
    holder = find_holder(surroundings.home) if surroundings.home.lock_file.is_file() else None
    allowed = surroundings.allowed_files(holder.pid if holder else None)
    if allowed is None or allowed >= ENOUGH:
        yield Finding("files", "ok", "The limit on open files is sufficient.", f"limit {allowed or 'none'}")
        return
    subject = f"The running crib (process {holder.pid})" if holder else "A crib started here"
    message = f"{subject} may open only {allowed} files, which limits connections and servers."
    fix = f"Run `ulimit -n {4 * ENOUGH}` before `toolcrib serve`, or set LimitNOFILE={4 * ENOUGH} in its service file."
    yield Finding("files", "warning", message, f"limit {allowed}, at least {ENOUGH} recommended", fix)
