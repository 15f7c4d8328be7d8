"""What may happen to a suspension, its waitpoints and its signals."""
