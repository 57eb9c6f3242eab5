"""Files: bounded reads, locks, atomic writes and undo."""
