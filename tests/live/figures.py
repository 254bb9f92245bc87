"""What a fencegate says of itself: the answers of its admin listener, its figures and log lines."""

import contextlib
import http.client
import json

from processes import connect


def ask(address, path, method="GET"):
    """(status, text) of the admin listener at `address`: a loopback port, or the path of a unix socket."""
    connection = http.client.HTTPConnection("localhost")
    connection.sock = connect(address)
    try:
        connection.request(method, path)
        answer = connection.getresponse()
        return answer.status, answer.read().decode()
    finally:
        connection.close()


def read(scrape):
    """{name with labels: value}"""
    lines = [line for line in scrape.splitlines() if line and not line.startswith("#")]
    return {name: float(value) for name, value in (line.rsplit(" ", 1) for line in lines)}


def find(known, name, wanted):
    """The first figure of that name with the `wanted` labels, each as it is written; 0 when there is none."""
    for key, value in known.items():
        base, _, rest = key.partition("{")
        if base == "fencegate_" + name and wanted <= set(rest.rstrip("}").split(",")):
            return value
    return 0.0


def log_lines(log):
    lines = []
    for line in log.splitlines():
        with contextlib.suppress(ValueError):
            lines.append(json.loads(line))
    return [line for line in lines if isinstance(line, dict)]
