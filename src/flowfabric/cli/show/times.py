"""Instants and durations as people read them."""

from __future__ import annotations

from flowfabric.model.times import absolute as absolute
from flowfabric.model.times import both as both
from flowfabric.model.times import count as count
from flowfabric.model.times import relative as relative
from flowfabric.model.times import span as span
