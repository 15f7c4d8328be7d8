"""Metrics: their text, their bounds, and that nothing passes them."""

from __future__ import annotations

import asyncio
import random
from bisect import bisect_left

import pytest

from flowfabric.errors import InvalidInput
from flowfabric.figures import _BUCKET
from flowfabric.metrics.catalogue import CATALOGUE, SERIES_MAX, WORK_S, Form
from flowfabric.metrics.listener import Listener, host_and_port
from flowfabric.metrics.registry import Registry
from flowfabric.model.statistic import BUCKETS_MS, bucket_of
from tests.support.scrape import Scrape


def test_all_metrics_together_have_at_most_so_many_series() -> None:
    assert sum(each.series for each in CATALOGUE) <= SERIES_MAX


def test_a_thousand_lanes_and_kinds_stay_under_the_bound_and_the_rest_is_other() -> None:
    registry = Registry()
    for metric in CATALOGUE:
        for number in range(3_000):
            labels = tuple(
                f"x{number}" if name in metric.open else f"word{number % 2}"
                for name in metric.labels
            )
            if metric.form is Form.HISTOGRAM:
                registry.histogram(metric.name).observe(0.1, labels)
            else:
                registry.counter(metric.name).add(labels)
    scrape = Scrape(registry.text())
    assert len(scrape.samples) <= SERIES_MAX
    assert scrape.total("ff_executions_total") == 3_000
    assert scrape.value("ff_executions_total", lane="other", kind="other", event="word0")
    assert scrape.value("ff_pickup_seconds_count", lane="other", kind="other") == 3_000 - 17


def test_of_too_many_lanes_a_gauge_shows_the_largest_and_the_rest_together() -> None:
    registry = Registry()
    counter = registry.counter("ff_ready")
    counter.show({(f"lane{number}",): number for number in range(100)})
    scrape = Scrape(registry.text())
    assert scrape.value("ff_ready", lane="lane99") == 99
    assert scrape.value("ff_ready", lane="other") == sum(range(71))
    counter.show({("mail",): 1})
    assert Scrape(registry.text()).total("ff_ready") == 1


def test_strange_labels_are_escaped() -> None:
    registry = Registry()
    registry.counter("ff_ready").show({('a"b\\c\nd',): 1})
    assert 'ff_ready{lane="a\\"b\\\\c\\nd"} 1' in registry.text()
    Scrape(registry.text())


def test_a_histogram_counts_each_value_in_every_bucket_that_has_it() -> None:
    registry = Registry()
    for value in (0.001, 0.0011, 7, 70):
        registry.histogram("ff_store_seconds").observe(value, ("write",))
    scrape = Scrape(registry.text())
    buckets = {
        dict(labels)["le"]: value
        for (name, labels), value in scrape.samples.items()
        if name == "ff_store_seconds_bucket"
    }
    assert (buckets["0.001"], buckets["0.0025"], buckets["5"]) == (1, 2, 2)
    assert (buckets["10"], buckets["+Inf"]) == (3, 4)
    assert scrape.value("ff_store_seconds_sum", operation="write") == pytest.approx(77.0021)


def test_buckets_of_statistics_fall_into_those_of_metrics() -> None:
    draw = random.Random(5)
    durations = [*BUCKETS_MS, *(draw.randrange(10**8) for _ in range(500)), 0]
    for duration_ms in durations:
        assert _BUCKET[bucket_of(duration_ms)] == bisect_left(WORK_S, duration_ms / 1_000)


@pytest.mark.parametrize("address", [":x", "1.2.3.4:99999", ":9464:", "a:b:c"])
def test_an_address_that_is_none_is_refused(address: str) -> None:
    with pytest.raises(InvalidInput, match="metrics"):
        host_and_port(address)


def test_a_port_answers_scrapes_and_nothing_else() -> None:
    async def ask(address: str, sent: bytes) -> bytes:
        host, port = host_and_port(address)
        reader, writer = await asyncio.open_connection(host, port)
        writer.write(sent)
        writer.write_eof()
        try:
            return await reader.read()
        finally:
            writer.close()

    async def story() -> None:
        listener = Listener("127.0.0.1:0", lambda: "ff_x 1\n")
        await listener.start()
        taken = Listener(listener.address, str)
        with pytest.raises(InvalidInput, match="cannot listen"):
            await taken.start()
        address = listener.address
        try:
            answer = await ask(address, b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n")
            assert answer.startswith(b"HTTP/1.1 200")
            assert answer.endswith(b"\r\n\r\nff_x 1\n")
            head = await ask(address, b"HEAD /metrics HTTP/1.0\r\n\r\n")
            assert head.endswith(b"\r\n\r\n")
            assert (await ask(address, b"GET / HTTP/1.1\r\n\r\n")).startswith(b"HTTP/1.1 404")
            assert (await ask(address, b"PUT /metrics H\r\n\r\n")).startswith(b"HTTP/1.1 405")
            for nonsense in (b"", b"\r\n", b"x" * 20_000, b"\xff\x00\r\n\r\n"):
                assert not (await ask(address, nonsense)).startswith(b"HTTP/1.1 200")
        finally:
            await listener.stop()

    asyncio.run(story())
