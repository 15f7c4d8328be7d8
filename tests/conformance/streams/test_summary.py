"""The rolling document: RFC 7396 with exact numbers, versions and bounds."""

from __future__ import annotations

import pytest

from flowfabric.errors import (
    FlowFabricError,
    InvalidInput,
    PatchDepthExceeded,
    RetentionLimitExceeded,
    StaleSummaryVersion,
)
from flowfabric.limits import SUMMARY_BYTES
from flowfabric.model.results import Claimed
from flowfabric.model.stream import PatchKind
from tests.support.lab import Lab, scenario
from tests.support.streams import append, frame, page, summary


async def document(lab: Lab, claimed: Claimed) -> bytes | None:
    """The document of the claimed attempt."""
    found = await lab.engine.read_summary(
        execution_id=claimed.execution_id, attempt_index=claimed.attempt_index
    )
    return None if found is None else found.document


@scenario
async def test_patches_are_merged_and_counted(lab: Lab) -> None:
    claimed = await lab.started()
    assert await document(lab, claimed) is None
    began = lab.now
    first = await append(lab, claimed, summary(b'{"a":1,"b":{"c":2}}'))
    lab.clock.advance(5)
    second = await append(lab, claimed, summary(b'{"a":null,"b":{"d":3}}'))
    assert (first.summary_version, second.summary_version) == (1, 2)
    found = await lab.engine.read_summary(execution_id=claimed.execution_id)
    assert found is not None
    assert found.document == b'{"b":{"c":2,"d":3}}'
    assert (found.version, found.patch_kind) == (2, PatchKind.MERGE)
    assert (found.first_applied_at, found.last_updated_at) == (began, began + 5)


@scenario
async def test_the_change_itself_is_a_frame(lab: Lab) -> None:
    claimed = await lab.started()
    await append(lab, claimed, summary(b'{"a": 1}'))
    (found,) = (await page(lab, claimed)).frames
    assert (found.payload, found.summary_version, found.mode) == (b'{"a": 1}', 1, "summary")


@scenario
async def test_numbers_stay_as_exact_as_they_were_written(lab: Lab) -> None:
    claimed = await lab.started()
    text = b'{"us":1731542400123456789,"big":123456789012345678901234567890,"x":0.10,"y":1e400}'
    await append(lab, claimed, summary(text))
    await append(lab, claimed, summary(b'{"n":1}'))
    stored = await document(lab, claimed)
    assert stored is not None
    assert b'"us":1731542400123456789,"big":123456789012345678901234567890,"x":0.10' in stored


@scenario
async def test_an_empty_object_leaves_an_object_and_a_list_replaces(lab: Lab) -> None:
    claimed = await lab.started()
    await append(lab, claimed, summary(b'{"a":{"b":1},"l":[1]}'), summary(b'{"a":{},"l":[]}'))
    assert await document(lab, claimed) == b'{"a":{"b":1},"l":[]}'


@scenario
async def test_text_and_lists_grow_by_appending(lab: Lab) -> None:
    claimed = await lab.started()
    steps = (
        b'[{"path":"/answer","value":"Hel"}]',
        b'[{"path":"/answer","value":"lo"},{"path":"/m/tools","value":[1]}]',
        b'[{"path":"/m/tools","value":[2,3]},{"path":"/a~1b","value":"x"}]',
    )
    versions = [
        (await append(lab, claimed, summary(step, patch_kind="append"))).summary_version
        for step in steps
    ]
    assert versions == [1, 2, 3]
    assert await document(lab, claimed) == b'{"answer":"Hello","m":{"tools":[1,2,3]},"a/b":"x"}'


@scenario
async def test_a_change_may_ask_for_the_version_it_knows(lab: Lab) -> None:
    claimed = await lab.started()
    await append(lab, claimed, summary(b'{"n":1}', expected_version=0))
    async with lab.refuses(StaleSummaryVersion):
        await append(lab, claimed, summary(b'{"n":2}', expected_version=0))
    await append(lab, claimed, summary(b'{"n":2}', expected_version=1))
    assert await document(lab, claimed) == b'{"n":2}'


@scenario
async def test_each_attempt_has_its_own(lab: Lab) -> None:
    backoff = {"type": "fixed", "delay_ms": 0}
    policy = {"retry_policy": {"max_retries": 1, "backoff": backoff}}
    claimed = await lab.started(policy=policy)
    await append(lab, claimed, summary(b'{"of":1}'))
    await lab.engine.fail(claimed.handle, reason="broke")
    again = await lab.claim()
    await append(lab, again, summary(b'{"on":2}'))
    assert await document(lab, claimed) == b'{"of":1}'
    assert await document(lab, again) == b'{"on":2}'
    current = await lab.engine.read_summary(execution_id=claimed.execution_id)
    assert current is not None
    assert current.document == b'{"on":2}'


DEEP = b'{"a":' * 17 + b"{}" + b"}" * 17


@pytest.mark.parametrize(
    ("payload", "kind", "error"),
    [
        (b"", "json-merge-patch", InvalidInput),
        (b"{", "json-merge-patch", InvalidInput),
        (b"[]", "json-merge-patch", InvalidInput),
        (b"null", "json-merge-patch", InvalidInput),
        (b"7", "json-merge-patch", InvalidInput),
        (b'{"a":' + b"1" * 5_000 + b"}", "json-merge-patch", InvalidInput),
        (DEEP, "json-merge-patch", PatchDepthExceeded),
        (b"{}", "append", InvalidInput),
        (b'[{"path":"a","value":"x"}]', "append", InvalidInput),
        (b'[{"path":"/a","value":1}]', "append", InvalidInput),
        (b'[{"path":"/text/x","value":"x"}]', "append", InvalidInput),
        (b'[{"path":"/text","value":[1]}]', "append", InvalidInput),
        (b'[{"path":"/a","value":"x","more":1}]', "append", InvalidInput),
        (b'[{"path":"' + b"/a" * 20 + b'","value":"x"}]', "append", PatchDepthExceeded),
    ],
)
def test_a_change_that_does_not_fit_is_refused(
    lab: Lab, payload: bytes, kind: str, error: type[FlowFabricError]
) -> None:
    async def check() -> None:
        claimed = await lab.started()
        await append(lab, claimed, summary(b'{"text":"t"}'))
        async with lab.refuses(error, "payload"):
            await append(lab, claimed, summary(payload, patch_kind=kind))

    lab.run(check())


@scenario
async def test_sixteen_levels_below_the_root_are_allowed(lab: Lab) -> None:
    claimed = await lab.started()
    await append(lab, claimed, summary(b'{"a":' * 16 + b"{}" + b"}" * 16))


@scenario
async def test_a_document_has_at_most_256_kib(lab: Lab) -> None:
    claimed = await lab.started()
    part = b"x" * 60_000
    for name in (b"a", b"b", b"c", b"d"):
        await append(lab, claimed, summary(b'{"%s":"%s"}' % (name, part)))
    async with lab.refuses(RetentionLimitExceeded, str(SUMMARY_BYTES)):
        await append(lab, claimed, summary(b'{"e":"%s"}' % part))
    await append(lab, claimed, summary(b'{"a":null}'), frame())
