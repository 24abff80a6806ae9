import time

from dspark.kvcache import PagePool, slots


def test_bookkeeping_of_64_sequences_is_under_a_millisecond_per_step() -> None:
    """Best of 20 steps (typically 0.3 ms), so that a busy machine does not fail it."""
    pool = PagePool(4096, 16)
    texts = [[number, *range(500)] for number in range(64)]
    tables = [pool.match_prefix(text) for text in texts]
    best = float("inf")
    for _ in range(20):
        start = time.perf_counter()
        for table, text in zip(tables, texts, strict=True):
            assert pool.reserve(table, len(text) + 7)
            slots(table, len(text) - 1, len(text) + 7, 16)
            text.extend((1, 2, 3))
            pool.publish(table, text, len(text) - 1)
            pool.rollback(table, len(text) - 1)
        best = min(best, time.perf_counter() - start)
    assert best < 1e-3
