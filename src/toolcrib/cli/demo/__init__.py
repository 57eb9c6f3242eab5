"""A demo: the work of a small team in a temporary home, done by agents on a scripted model.

`place` is the directory and its files, `team` the agents and schedules, `scripts` the lines of the model. `stage` sets
up a running crib and plays the scenes through the API client; `orders` and `upstreams` are the tools.

Must never touch anything outside its own directory.
"""
