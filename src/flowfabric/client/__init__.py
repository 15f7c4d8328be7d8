"""The client: an engine that is elsewhere, asked over HTTP."""
