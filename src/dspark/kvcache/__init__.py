"""Pages of key/value memory: who holds which, what can be reused, what is given back."""

from dspark.kvcache.page_pool import PagePool, PoolStats
from dspark.kvcache.page_table import PageTable, pages_for, pages_of, slots

__all__ = ["PagePool", "PageTable", "PoolStats", "pages_for", "pages_of", "slots"]
