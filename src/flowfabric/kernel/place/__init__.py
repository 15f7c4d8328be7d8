"""What may happen to lanes and workers."""
