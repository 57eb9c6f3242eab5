"""For tests of one's own tools, runners and sources: shipped, and used by Toolcrib's own tests.

- `call` and `crib`: a tool as a model would meet it; these need no test framework.
- `plugin`: pytest fixtures, also for Claude Code on a scripted model.
- `runners`, `sources`: what every `Runner` and every `ToolSource` has to keep to, as suites to inherit.
- `played`: a runner without a process or an API, which plays scripts.

Above: tests. Below: everything.
"""

import sys

from toolcrib.testing.cribs import call, crib

if (_pytest := sys.modules.get("pytest")) is not None:
    # Suites are inherited by tests, so their assertions should explain themselves like those of tests.
    _pytest.register_assert_rewrite(f"{__name__}.runners", f"{__name__}.sources")

__all__ = ["call", "crib"]
