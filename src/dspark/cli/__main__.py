"""``python -m dspark.cli``, the same as ``dspark``."""

from dspark.cli import main

main()
