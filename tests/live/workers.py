"""Threads that work until they are told that it is over."""

import threading


class Workers:
    """`works`: what each of them runs, until `over` is set. `some_more()`, of who derives: waits until they have done some."""

    def __init__(self, *works):
        self.over = threading.Event()
        self.threads = [threading.Thread(target=work) for work in works]

    def __enter__(self):
        for one in self.threads:
            one.start()
        self.some_more()
        return self

    def __exit__(self, *_):
        self.over.set()
        for one in self.threads:
            one.join()
