"""What may happen to one execution."""
