"""Who is next: priorities first, then every client its fair share."""

from __future__ import annotations

from bisect import insort
from collections.abc import Iterator, Sequence

from dspark.serving.ticket import Ticket

_Place = tuple[int, float, int, Ticket]


class WaitingRoom:
    """A bounded queue of tickets.

    Within a priority, clients are served by start-time fair queueing (Goyal, Vin, Cheng 1996): a ticket starts, in
    virtual time, when the client's one before it would have ended, or now; the earliest start goes first. So a client
    with a hundred tickets delays one with a single ticket by one ticket.

    Not safe for threads; its owner has a lock.

    Args:
        capacity: most tickets.
    """

    def __init__(self, capacity: int) -> None:
        self.capacity = capacity
        self._places: list[_Place] = []
        self._now = 0.0
        self._ends: dict[str, float] = {}
        self._arrivals = 0

    def __len__(self) -> int:
        return len(self._places)

    def __iter__(self) -> Iterator[Ticket]:
        return iter([place[3] for place in self._places])

    def fits(self, count: int) -> bool:
        """Whether there is room for so many more; an empty room takes any number."""
        return not self._places or len(self._places) + count <= self.capacity

    def add(self, tickets: Sequence[Ticket]) -> None:
        """Line up."""
        for ticket in tickets:
            start = max(self._now, self._ends.get(ticket.client, 0.0))
            self._ends[ticket.client] = start + ticket.cost
            self._arrivals += 1
            insort(self._places, (ticket.priority, start, self._arrivals, ticket))

    def first(self) -> Ticket | None:
        """Who is next; None if nobody waits."""
        return self._places[0][3] if self._places else None

    def pop(self) -> Ticket:
        """Call the next one."""
        _, start, _, ticket = self._places.pop(0)
        self._now = max(self._now, start)
        if not self._places:
            self._ends.clear()
            self._now = 0.0
        elif len(self._ends) > 4 * self.capacity:
            self._ends = {client: end for client, end in self._ends.items() if end > self._now}
        return ticket

    def remove(self, ticket: Ticket) -> bool:
        """Send one away; False if it does not wait here."""
        left = [place for place in self._places if place[3] is not ticket]
        found = len(left) < len(self._places)
        self._places = left
        return found
