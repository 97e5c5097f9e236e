"""Runs the tasks of a sharded store in this process."""

from onehop.data.shards import raw_parts


class LocalRunner:
    def map(self, task, items):
        return (task(*item) for item in items)

    def parts_of(self, file, plain, chunks):
        return raw_parts(file, plain, chunks)
