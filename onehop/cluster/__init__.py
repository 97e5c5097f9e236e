"""Bulk translation, sharded stores and training on a Ray cluster.

This package distributes work and recovers from dead nodes. The work itself is in the packages below.
"""
