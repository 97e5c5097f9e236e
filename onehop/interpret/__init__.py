"""Record every named tensor of one translation, and run it again with parts switched off.

This package records; the explorer draws.
"""
