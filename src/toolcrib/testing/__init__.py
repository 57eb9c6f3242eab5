"""Test utilities for tools, runtimes and tool sources; also used by Toolcrib's own tests.

- `call` and `crib`: call a tool as a model would; these need no test framework.
- `plugin`: pytest fixtures, also for Claude Code on a scripted model.
- `runners`, `sources`: conformance suites for every `Runtime` and `ToolSource`, to inherit.
- `replay`: a recorded session, replayed in a test.
- `played`: a runtime without a process or an API, which plays scripts.
"""

import sys

from toolcrib.testing.cribs import call, crib

if (_pytest := sys.modules.get("pytest")) is not None:
    # Suites are inherited by tests, so their assertions are rewritten like those of tests.
    _pytest.register_assert_rewrite(f"{__name__}.runners", f"{__name__}.sources")

__all__ = ["call", "crib"]
