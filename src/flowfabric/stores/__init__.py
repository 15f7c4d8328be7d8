"""Where it lives: find, hold, write back. No rule about an execution's life is here."""
