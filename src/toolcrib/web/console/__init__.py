"""The web console: server-rendered HTML, plus the static files it needs.

Served behind the guard. All text from outside this package is escaped.
"""
