"""A worker without the SDK, as any language may have one: HTTP and the standard library.

ff conformance worker -- python examples/worker_without_sdk.py
"""

import json
import os
import signal
import threading
import time
import urllib.request
import uuid
from http.client import HTTPException
from typing import Any

URL, LANE, SLOTS = os.environ.get("FLOWFABRIC_URL", "http://127.0.0.1:9090"), "conformance", 4
TOKEN = os.environ.get("FLOWFABRIC_TOKEN", "")
ME = {"worker_id": "plain", "worker_instance_id": f"plain-{uuid.uuid4()}"}
Job = dict[str, Any]
ending, held, lease_s = threading.Event(), dict[tuple[str, int], "Lease"](), [1.0]


class Lease(threading.Event):  # is set when it is lost: its handler should stop
    def __init__(self, job: Job) -> None:
        super().__init__()
        self.handle = job["handle"]


def ask(path: str, body: Any = None, method: str = "POST") -> Any:
    """An answer, however often it takes: by the same claim id or handle it is the same request."""
    headers = {"Content-Type": "application/json", "Authorization": f"Bearer {TOKEN}"}
    data, pause = None if body is None else json.dumps(body).encode(), 0.1
    while True:
        request = urllib.request.Request(URL + path, data, headers, method=method)
        try:
            with urllib.request.urlopen(request, timeout=60) as answer:
                return json.load(answer)
        except urllib.error.HTTPError as error:
            if error.code in (401, 403):  # nothing will come of it
                os._exit(1)
            if error.code < 500 and error.code != 429:
                raise
            time.sleep(float(error.headers.get("Retry-After", 0)))
        except (OSError, HTTPException, ValueError):  # it is away, or the answer was cut off
            pass
        time.sleep(pause)
        pause = min(2 * pause, 10)


def command(items: list[Job]) -> Any:
    return ask("/v1/commands", {"items": items})["items"]


def claim() -> None:
    while not ending.is_set():
        free = SLOTS - len(held)  # without one it only listens for stops, and not for long
        leases = [{"execution_id": each, "lease_epoch": epoch} for each, epoch in list(held)]
        mine = {"worker_instance_id": ME["worker_instance_id"], "claim_id": str(uuid.uuid4())}
        wanted = {"lanes": [LANE], "kinds": list(HANDLERS), "limit": free, "held": leases}
        wait_ms = 20_000 if free else 500
        told = ask("/v1/workers/claim", ME | mine | wanted | {"wait_ms": wait_ms})
        if ending.is_set():
            ask("/v1/workers/give-back", mine)
            return
        for job in told["items"]:
            lease_s[0] = (job["lease_expires_at"] - told["server_time_ms"]) / 1000
            held[job["execution_id"], job["lease_epoch"]] = lease = Lease(job)
            threading.Thread(target=run, args=(job, lease)).start()
        for each in told["stop"]:
            if lost := held.get((each["execution_id"], each["lease_epoch"])):
                lost.set()
        if told["drain"]:
            ending.set()


def run(job: Job, lease: Lease) -> None:
    try:
        report = {"type": "complete", **HANDLERS[job["execution_kind"]](job, lease)}
    except Exception as error:  # noqa: BLE001 - whatever a handler raises is its failure
        kind = "permanent" if isinstance(error, PermissionError) else "transient"
        report = {"type": "fail", "reason": str(error), "failure_class": kind}
    if not lease.is_set():
        command([{**report, "handle": lease.handle}])
    del held[job["execution_id"], job["lease_epoch"]]


def renew() -> None:
    while True:
        time.sleep(lease_s[0] / 4)
        if leases := list(held.values()):
            told = command([{"type": "renew", "handle": each.handle} for each in leases])
            for lease, answer in zip(leases, told, strict=True):
                if answer.get("status") in (404, 409):
                    lease.set()


def fail(job: Job, lease: Lease) -> Job:
    given = job["input"]
    if given.get("permanent") or job["attempt_index"] < given["times"]:
        raise (PermissionError if given.get("permanent") else RuntimeError)(given["reason"])
    return {"result": None}


def progress(job: Job, lease: Lease) -> Job:
    return {"result": command([{"type": "progress", "handle": lease.handle, **job["input"]}])}


def echo(job: Job, lease: Lease) -> Job:
    return {word.replace("input", "result"): job[word] for word in job if word.startswith("input")}


def sleep(job: Job, lease: Lease) -> Job:
    return {"result": lease.wait(job["input"]["ms"] / 1000)}


HANDLERS = {f"{LANE}.{each.__name__}": each for each in (echo, sleep, fail, progress)}

if __name__ == "__main__":
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: ending.set())
    about = {"kinds": list(HANDLERS), "concurrency": SLOTS, "liveness_ttl_ms": 60_000}
    ask("/v1/workers/register", ME | about | {"lanes": [LANE]})
    for work in (claim, renew):
        threading.Thread(target=work, daemon=True).start()
    ending.wait()
    while held:  # what runs is finished, and reported
        time.sleep(0.02)
    ask(f"/v1/workers/{ME['worker_instance_id']}", method="DELETE")
