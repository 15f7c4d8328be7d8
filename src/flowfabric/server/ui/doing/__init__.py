"""What a form of a page does: one operation, and a sentence about what has happened."""
