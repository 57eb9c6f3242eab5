"""Processes: started without a shell, monitored, and ended together with their descendants."""
