"""What a page asks for: its operations, in the name of the caller."""
