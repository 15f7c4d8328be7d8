"""A budget's burn-down: what is used, its limits, and where it goes if it goes on."""

from __future__ import annotations

from typing import Final

from markupsafe import Markup

from flowfabric.server.ui.views.budgets import Burn

_WIDE: Final = 600
_TALL: Final = 140
_AHEAD: Final = 0.25  # of the time that is shown: for the projection


def burn_chart(burn: Burn) -> Markup:
    """At most ten elements. The page says the same in words and in a table."""
    span = max(1, burn.now - burn.begins_at)
    ends = burn.now + max(1, round(span * _AHEAD))
    hard = burn.meter.hard + burn.meter.allowed if burn.meter.hard else 0
    top = max(1, hard, burn.meter.soft, *(used for _, used in burn.points)) * 1.08

    def x(instant: float) -> float:
        return round((instant - burn.begins_at) / (ends - burn.begins_at) * _WIDE, 1)

    def y(used: float) -> float:
        return round(_TALL - used / top * _TALL, 1)

    line = "".join(
        f"{'H' + str(x(at)) if index else 'M' + str(x(at))}{'V' if index else ' '}{y(used)}"
        for index, (at, used) in enumerate(burn.points)
    )
    area = f"{line}V{_TALL}H0z"
    parts = [
        Markup('<path class="burn-area" d="{}"/><path class="burn-line" d="{}"/>').format(
            area, line
        ),
        Markup('<path class="burn-now" d="M{} 0V{}"/>').format(x(burn.now), _TALL),
    ]
    if hard:
        parts.append(Markup('<path class="burn-hard" d="M0 {}H{}"/>').format(y(hard), _WIDE))
    if burn.meter.soft:
        soft = y(burn.meter.soft)
        parts.append(Markup('<path class="burn-soft" d="M0 {}H{}"/>').format(soft, _WIDE))
    if burn.empty_at is not None:
        part = min(1.0, (ends - burn.now) / max(1, burn.empty_at - burn.now))
        there = burn.meter.used + (hard - burn.meter.used) * part
        until = min(ends, burn.empty_at)
        parts.append(
            Markup('<path class="burn-ahead" d="M{} {}L{} {}"/>').format(
                x(burn.now), y(burn.meter.used), x(until), y(there)
            )
        )
    title = f"{burn.meter.dimension}: {burn.meter.words}"
    opening = Markup(
        '<svg class="burn" viewBox="0 0 {} {}" preserveAspectRatio="none" role="img"'
        ' aria-label="{}"><title>{}</title>'
    ).format(_WIDE, _TALL, title, title)
    return opening + Markup().join(parts) + Markup("</svg>")
