"""Where it lives: find, lock, write back. No rule about an execution's life is here."""
