"""What callers say and hear: one request per operation, and the protocol that carries them."""
