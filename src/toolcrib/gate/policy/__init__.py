"""The policy: which principal may see and use what, and why.

`decide` is the single decision for every listing and every call: pure, total and explained. It evaluates `rules`
(patterns, conditions, scope), which `rule_parser` reads from what people write. `explain` returns the reasons and what
would change them, `simulate` what other rules would have changed. Stateful parts are `permissions` (the rules in force)
and `limits` (usage).

Invariant: what cannot be decided is denied.
"""
