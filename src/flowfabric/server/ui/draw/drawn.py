"""The drawings that templates may ask for, by their names."""

from __future__ import annotations

from flowfabric.server.ui.draw.timeline import timeline as timeline
