"""The cost curve that the policy plans with, for Prometheus."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

from dspark.scheduling import StepCosts


class ProfileMetrics(Collector):
    """Shows the curve as it is when somebody looks.

    Args:
        costs: what the policy plans with.
        max_rows: most rows of a step.
        context: gives the mean number of keys that a row sees at present.
        namespace: first part of the name.
    """

    def __init__(self, costs: StepCosts, max_rows: int, context: Callable[[], float], namespace: str) -> None:
        self._costs, self._max_rows, self._context = costs, max_rows, context
        self._name = f"{namespace}_profile_step_seconds"

    def collect(self) -> Iterator[GaugeMetricFamily]:
        """One value per row count that doubles, and for the largest step."""
        family = GaugeMetricFamily(
            self._name,
            "Seconds of a step without drafting, as the policy expects them, by target rows.",
            labels=["rows"],
        )
        curve = self._costs.verify_curve(self._max_rows, self._context())
        for rows in sorted({*(1 << power for power in range(self._max_rows.bit_length())), self._max_rows}):
            family.add_metric([str(rows)], float(curve[rows]))
        yield family
