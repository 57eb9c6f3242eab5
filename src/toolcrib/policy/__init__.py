"""Who may see and use what, and why.

`decide` is the one answer for every listing and every call: pure, total and explained. It reads `rules` (patterns,
conditions, for whom), which `reading` takes from what people write; `explain` says why and what would change it,
`simulate` what other rules would have changed. What lives here is `RuleBook` (the rules in force now), `Limits` (what
sessions have used) and `Approvals` (open questions to a person); `pins` and `lint` judge the definitions of tools.

Above: the gate. Below: `config.syntax`, `store`, `model`. The answer to a question that it cannot place is no.
"""
