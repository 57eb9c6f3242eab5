"""REST for schedules."""
