"""Which full pages hold which text: a tree whose edges are the exact tokens of one page."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field


@dataclass(slots=True, eq=False)
class PrefixNode:
    """One indexed page. The tokens on the way from the root to it are all the text its rows depend on.

    Attributes:
        page: page id; -1 for the root.
        parent: node of the page before it; None for the root.
        tokens: the ``page_size`` token ids of this page.
        children: indexed pages that continue this one, by their tokens.
        alive: False once it has left the index.
    """

    page: int = -1
    parent: PrefixNode | None = None
    tokens: tuple[int, ...] = ()
    children: dict[tuple[int, ...], PrefixNode] = field(default_factory=dict)
    alive: bool = True

    def up(self) -> Iterator[PrefixNode]:
        """This node and its ancestors, deepest first, without the root."""
        node = self
        while node.parent is not None:
            yield node
            node = node.parent


class PrefixIndex:
    """Tree of indexed pages. Keys are compared as whole tuples, so different texts never meet in one page."""

    def __init__(self, page_size: int) -> None:
        self.root = PrefixNode()
        self.node_of: dict[int, PrefixNode] = {}
        self._page_size = page_size

    def page_tokens(self, token_ids: Sequence[int], index: int) -> tuple[int, ...]:
        """Token ids of the ``index``-th page of a text; the key of that page under its parent."""
        start = index * self._page_size
        return tuple(token_ids[start : start + self._page_size])

    def match(self, token_ids: Sequence[int], max_pages: int) -> list[PrefixNode]:
        """The longest chain of indexed pages that spells the start of ``token_ids``, at most ``max_pages`` long."""
        chain: list[PrefixNode] = []
        node = self.root
        for index in range(max_pages):
            child = node.children.get(self.page_tokens(token_ids, index))
            if child is None:
                break
            chain.append(child)
            node = child
        return chain

    def insert(self, parent: PrefixNode, tokens: tuple[int, ...], page: int) -> PrefixNode:
        """Index ``page`` under ``parent``; neither the page nor this text may be indexed yet."""
        assert page not in self.node_of, "a page has one text only"
        assert tokens not in parent.children, "a text has one page only"
        node = PrefixNode(page=page, parent=parent, tokens=tokens)
        parent.children[tokens] = self.node_of[page] = node
        return node

    def drop(self, node: PrefixNode) -> list[int]:
        """Take a node and all its descendants out of the index.

        Returns:
            Their pages: without its parent no page can be reached any more.
        """
        assert node.parent is not None, "the root has no page to drop"
        del node.parent.children[node.tokens]
        dropped = [node]
        for gone in dropped:  # grows while it is walked
            dropped.extend(gone.children.values())
            gone.alive = False
            del self.node_of[gone.page]
        return [gone.page for gone in dropped]
