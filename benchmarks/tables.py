"""The report as Markdown: figures beside their floors, peers and targets."""

from collections.abc import Iterable, Sequence
from typing import Any

Run = dict[str, Any]  # {"machine": …, "ours": [measurement, …], "peers": [result, …]}

CYCLE_TARGETS = {"sqlite": 12_000, "postgres": 6_000}
RATIO_TARGET = 0.40
WORKER_TARGETS = {"sqlite": 6_000, "postgres": 5_000}
PEER_TARGETS = {"huey": 3.0, "procrastinate": 5.0, "dbos": 5.0, "pgqueuer": 0.4}
LATENCY_TARGETS_MS = {"sqlite": 3.0, "postgres": 6.0}
IDLE_TARGET_PER_S = 2.0
BACKLOG_TARGET_PERCENT = 20.0
USAGE_TARGETS = {"sqlite": 15_000, "postgres": 5_000}
ADMISSION_TARGET = 0.60
BLOCKED_TARGET = 0.90  # less than the machine's own noise
WAIT_TARGETS_MS = {"sqlite": 8.0, "postgres": 15.0}
WAITS_TARGETS = {"sqlite": 2_500, "postgres": 1_000}
CHAIN_TARGETS = {"sqlite": 300, "postgres": 150}
CHAIN_P99_TARGET_MS = 250.0
RACE_TARGET_MS = 500.0
FAN_TARGET = 0.60


def render(run: Run) -> str:
    machine = run["machine"]
    parts = [
        "# Results",
        f"Written by `benchmarks/report.py` on {machine['when']}, commit {machine['commit']}"
        + (" with uncommitted changes." if machine["uncommitted_changes"] else ".")
        + (" **A quick run: n is small, the figures are only a smoke test.**" * run["quick"]),
        "Everything below was measured in one run on one machine. Compare ratios, not figures of "
        "different machines. What each scenario does: [README](README.md).",
        _table(("fact", "value"), machine.items()),
        *_cycle(run),
        *_worker(run),
        *_latency(run),
        *_single(run),
        *_idle(run),
        *_usage(run),
        *_admission(run),
        *_suspend(run),
        *_flow(run),
        *_backlog(run),
    ]
    return "\n\n".join(parts) + "\n"


def _of(run: Run, scenario: str) -> list[Run]:
    return [each for each in run["ours"] if each["scenario"] == scenario]


def _peers(run: Run, scenario: str, store: str) -> list[Run]:
    return [
        each for each in run["peers"] if each["scenario"] == scenario and each["store"] == store
    ]


def _cycle(run: Run) -> Iterable[str]:
    yield "## Cycle: create → claim → complete"
    rows = []
    for each in _of(run, "cycle"):
        rate, ratio = each["throughput_per_s"], each["ratio_to_floor"]
        target = CYCLE_TARGETS[each["store"]]
        rows.append(
            (
                each["store"],
                f"{each['n']:,}",
                f"{rate:,.0f}",
                f"{each['floor_per_s']:,.0f}",
                f"{ratio:.0%}",
                f"{each['extra']['cpu_us_per_cycle']:.0f}",
                _verdict(rate >= target and ratio >= RATIO_TARGET, f"{target:,}/s and 40 %"),
            )
        )
    yield _table(
        ("store", "n", "cycles/s", "floor/s", "of floor", "CPU µs", "target"),
        rows,
    )


def _worker(run: Run) -> Iterable[str]:
    yield "## Worker: one process drains a backlog of no-op tasks"
    rows: list[tuple[str, ...]] = []
    for ours in _of(run, "worker"):
        store, rate = ours["store"], ours["throughput_per_s"]
        target = WORKER_TARGETS[store]
        setting = f"concurrency {ours['settings']['concurrency']}"
        met = _verdict(rate >= target, f"{target:,}/s")
        rows.append((store, "**FlowFabric**", f"{rate:,.0f}", "", setting, met))
        usual, count = (ours["extra"][f"default_concurrency{end}"] for end in ("_per_s", ""))
        default = f"concurrency {count} (default)"
        rows.append((store, "FlowFabric", f"{usual:,.0f}", "", default, ""))
        rows += [(store, *_peer_row(peer, rate)) for peer in _peers(run, "drain", store)]
    yield _table(("store", "engine", "tasks/s", "ours is", "setting", "target"), rows)


def _peer_row(peer: Run, rate: float) -> tuple[str, ...]:
    name, theirs = peer["name"], peer["throughput_per_s"]
    label = f"{name} {peer['version']}"
    if not theirs:
        return label, "–", "–", peer["note"], ""
    factor, wanted = rate / theirs, PEER_TARGETS[name]
    met = _verdict(factor >= wanted, f"{wanted:g} ×")
    return label, f"{theirs:,.0f}", f"{factor:.2f} ×", peer["setting"], met


def _latency(run: Run) -> Iterable[str]:
    yield "## Latency: submit → result with an idle worker"
    rows = []
    for ours in _of(run, "latency"):
        store, target = ours["store"], LATENCY_TARGETS_MS[ours["store"]]
        met = _verdict(ours["p50_ms"] <= target, f"p50 ≤ {target:g} ms")
        rows.append((store, "**FlowFabric**", *_laps(ours), "default settings", met))
        beside = ours["extra"]["separate_worker_process"]
        rows.append((store, "FlowFabric", *_laps(beside), "worker in its own process", ""))
        for peer in _peers(run, "latency", store):
            p50 = "–" if peer["p50_ms"] is None else f"{peer['p50_ms']:.2f}"
            label = f"{peer['name']} {peer['version']}"
            rows.append((store, label, p50, "", "", peer["setting"] or peer["note"], ""))
    yield _table(("store", "engine", "p50 ms", "p95 ms", "p99 ms", "setting", "target"), rows)


def _single(run: Run) -> Iterable[str]:
    yield "## Single: one claim and one completion at a time, 16 callers"
    rows = [
        (
            each["store"],
            f"{each['n']:,}",
            f"{each['throughput_per_s']:,.0f}",
            f"{each['extra']['cpu_us_per_cycle']:.0f}",
        )
        for each in _of(run, "single")
    ]
    yield _table(("store", "n", "claims and completions/s", "CPU µs"), rows)


def _laps(found: Run) -> tuple[str, ...]:
    return tuple(f"{found[name]:.2f}" for name in ("p50_ms", "p95_ms", "p99_ms"))


def _idle(run: Run) -> Iterable[str]:
    yield "## Idle: what an engine with one worker asks of its database"
    rows = []
    for each in _of(run, "idle"):
        rate = each["extra"]["queries_per_s"]
        brackets = each["extra"]["with_transaction_brackets_per_s"]
        met = _verdict(rate < IDLE_TARGET_PER_S, f"< {IDLE_TARGET_PER_S:g}")
        rows.append((each["store"], f"{rate:.2f}", f"{brackets:.2f}", met))
    yield _table(("store", "queries/s", "with BEGIN, COMMIT, ROLLBACK", "target"), rows)


def _usage(run: Run) -> Iterable[str]:
    yield "## Usage: reports on one hot budget from 64 callers"
    rows = []
    for each in _of(run, "usage"):
        rate, extra = each["throughput_per_s"], each["extra"]
        target = USAGE_TARGETS[each["store"]]
        rows.append(
            (
                each["store"],
                f"{each['n']:,}",
                f"{rate:,.0f}",
                f"{extra['with_dedup_key_per_s']:,.0f}",
                f"{each['floor_per_s']:,.0f}",
                f"{extra['floor_of_single_updates_per_s']:,.0f}",
                f"{each['p50_ms']:.2f}",
                f"{each['p99_ms']:.2f}",
                f"{extra['cpu_us_per_report']:.0f}",
                _verdict(rate >= target, f"{target:,}/s"),
            )
        )
    head = ("store", "n", "reports/s", "with dedup key", "floor/s", "floor, report by report")
    yield _table((*head, "p50 ms", "p99 ms", "CPU µs", "target"), rows)


def _admission(run: Run) -> Iterable[str]:
    yield "## Admission: claims under a budget, a quota and capabilities beside plain claims"
    rows = []
    for each in _of(run, "admission"):
        extra = each["extra"]
        for limit, ratio in extra["claim_ratio"].items():
            figures = (f"{ratio:.0%}", f"{extra['claim_cpu_ratio'][limit]:.0%}")
            met = _verdict(ratio >= ADMISSION_TARGET, "60 %")
            rows.append((each["store"], f"bounded, {limit.replace('_', ' ')}", *figures, met))
        beside = extra["beside_blocked"]
        figures = (f"{beside['claim_ratio']:.0%}", f"{beside['claim_cpu_ratio']:.0%}")
        met = _verdict(beside["claim_ratio"] >= BLOCKED_TARGET, "90 %")
        rows.append((each["store"], f"plain, beside {beside['blocked']:,} blocked", *figures, met))
    yield _table(("store", "claims", "rate of plain ones", "by CPU time", "target"), rows)


def _suspend(run: Run) -> Iterable[str]:
    yield "## Suspend: suspend → signal → resumed and completed"
    rows = []
    for each in _of(run, "suspend"):
        store, rate, extra = each["store"], each["throughput_per_s"], each["extra"]
        latency, waits = WAIT_TARGETS_MS[store], WAITS_TARGETS[store]
        beside = extra["beside_suspended"]
        rows.append(
            (
                store,
                *_laps(each),
                f"{rate:,.0f}",
                f"{beside['p50_ms']:.2f} ms, {beside['throughput_per_s']:,.0f}/s",
                _verdict(
                    each["p50_ms"] <= latency and rate >= waits,
                    f"p50 ≤ {latency:g} ms and {waits:,}/s",
                ),
            )
        )
    head = ("store", "p50 ms", "p95 ms", "p99 ms", "waits/s", "beside 100,000 suspended", "target")
    yield _table(head, rows)


def _flow(run: Run) -> Iterable[str]:
    yield "## Flow: chains of 10, a race of 1,000, one → 10,000 → one"
    rows = []
    for each in _of(run, "flow"):
        store, rate, extra = each["store"], each["throughput_per_s"], each["extra"]
        race, fan, chains = extra["race"], extra["fan_out"], CHAIN_TARGETS[store]
        slowest, ratio = race["last_cancelled_ms"]["max"], fan["ratio_to_plain"]
        chain = f"p50 {each['p50_ms']:.1f} ms, p99 {each['p99_ms']:.1f} ms"
        cancelled = f"p50 {race['last_cancelled_ms']['p50']:.0f} ms, slowest {slowest:.0f} ms"
        wide = f"{fan['members_per_s']:,.0f} of {fan['plain_cycles_per_s']:,.0f}/s, {ratio:.0%}"
        lone = each["p99_ms"] <= CHAIN_P99_TARGET_MS
        rows += [
            (store, "chains/s", f"{rate:,.0f}", _verdict(rate >= chains, f"{chains}/s")),
            (store, "a lone chain", chain, _verdict(lone, f"p99 ≤ {CHAIN_P99_TARGET_MS:g} ms")),
            (
                store,
                "last loser cancelled",
                cancelled,
                _verdict(slowest <= RACE_TARGET_MS, f"≤ {RACE_TARGET_MS:g} ms"),
            ),
            (
                store,
                "fan-out, beside plain cycles",
                wide,
                _verdict(ratio >= FAN_TARGET, "60 %"),
            ),
        ]
    yield _table(("store", "figure", "measured", "target"), rows)


def _backlog(run: Run) -> Iterable[str]:
    found = _of(run, "backlog")
    if not found:
        return
    yield "## Backlog: the same with a past in the store"
    rows = []
    for each in found:
        extra = each["extra"]
        past = f"{each['settings']['finished']:,} finished, {each['settings']['delayed']:,} delayed"
        for name, key in (
            ("cycle", "cycle_per_s"),
            ("worker", "worker_per_s"),
            ("latency", "latency_p50_ms"),
        ):
            empty, full = extra[key]
            slower = extra["slower_percent"][name]
            met = _verdict(slower <= BACKLOG_TARGET_PERCENT, "≤ 20 %")
            unit = "ms" if name == "latency" else "/s"
            figures = (f"{empty:,.1f} {unit}", f"{full:,.1f} {unit}", f"{slower:+.0f} %")
            rows.append((each["store"], past, name, *figures, met))
    yield _table(("store", "past", "scenario", "empty", "full", "slower by", "target"), rows)


def _verdict(met: bool, target: str) -> str:
    return f"{target}: {'met' if met else '**missed**'}"


def _table(head: Sequence[str], rows: Iterable[Iterable[object]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(map(str, line)) + " |" for line in lines)
