"""Whether a worker in any language keeps the protocol: a server that watches it, and its cases."""
