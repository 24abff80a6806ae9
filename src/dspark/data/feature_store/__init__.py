"""Target features of conversations on disk: a folder with a manifest and shards, written once, read by memory maps.

``manifest.json`` says what the store holds and lists its finished shards with sizes and checksums. Each shard is one
safetensors file with whole sequences: ``lengths, temperatures, domains, complete`` per sequence, ``ids, mask, log_z,
hidden, features`` per token, and ``scale`` per feature dimension where features have eight bits.
"""

from dspark.data.feature_store.coding import FeatureCoding
from dspark.data.feature_store.manifest import StoreManifest
from dspark.data.feature_store.shard import shard_bytes, token_bytes
from dspark.data.feature_store.store import FeatureStore, read_manifest, verify_store
from dspark.data.feature_store.writer import SHARD_BYTES, FeatureStoreWriter, begun, shard_tokens

__all__ = [
    "SHARD_BYTES",
    "FeatureCoding",
    "FeatureStore",
    "FeatureStoreWriter",
    "StoreManifest",
    "begun",
    "read_manifest",
    "shard_bytes",
    "shard_tokens",
    "token_bytes",
    "verify_store",
]
