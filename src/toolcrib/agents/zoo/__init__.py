"""The zoo: agents with a prompt, skills, a memory and permissions.

`zoo` stores agents and `brain` their memory. `input` defines the accepted fields, `check` validates them, `compile`
builds the prompt, `difference` compares two revisions. `transfer` imports and exports other tools' formats. `starters`
and `library` are the initial content of a new zoo.

Must never decide on a tool call: it only reports what an agent was granted.
"""
