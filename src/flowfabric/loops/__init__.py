"""What happens by itself."""
