"""What a handler is given, and what it may ask for."""
