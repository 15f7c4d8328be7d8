"""Rules of streams: appending, summaries, retention, closing."""
