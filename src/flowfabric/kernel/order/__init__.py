"""Order: lines of serial keys, and what may exist once per key."""
