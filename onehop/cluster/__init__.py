"""Bulk translation, sharded stores and training on a Ray cluster.

This package distributes work and recovers from dead nodes. The work itself is in the packages below.
"""

__all__ = ["joined", "prepare_on_cluster", "translate_on_cluster"]

from onehop.cluster.connection import joined
from onehop.cluster.prepare import prepare_on_cluster
from onehop.cluster.translate import translate_on_cluster
