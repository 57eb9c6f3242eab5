"""A demonstration: a small team's work in a throw-away home, done by agents on the scripted model.

`place` is the directory and what lies in it, `team` the agents and their schedules, `scripts` what the model says,
`stage` puts all of it into a running crib and plays it; `orders` and `upstreams` are the tools the team has.

Above: `toolcrib demo`. Below: `client`, by which all is done as a person would do it, and `scripted`. It must never
touch anything outside of its own place.
"""
