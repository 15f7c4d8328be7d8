"""Rules about schedules."""
