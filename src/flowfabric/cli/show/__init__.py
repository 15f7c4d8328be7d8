"""Output for a terminal."""
