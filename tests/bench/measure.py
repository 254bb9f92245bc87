"""What is measured about a process: rate and latency by the load generator, processor time, memory, start-up time."""

import contextlib
import glob
import json
import os
import resource
import socket
import statistics
import subprocess
import threading
import time

from contenders import LOOPBACK, TAG, Haproxy, Resp, Twemproxy, FencedGate

IDLE_CONNECTIONS = 1000
VALUE_BYTES = 256 * 1024 * 1024
WARMUP_SECONDS = 0.2


def allow_many_files():
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def run_load(load, contender, mode, connections, pipeline, seconds):
    """One run; its figures, with the processor seconds of the server in front and of Redis per million writes. None: that way cannot."""
    options = contender.options(mode)
    if options is None:
        return None
    server, redis = contender.server, getattr(contender.server, "redis", contender.server)
    before = [cpu_seconds(server.pid), cpu_seconds(redis.pid)]
    checked = contender.counts_writes() if contender.counts_writes else 0
    done = subprocess.run([load, *options, "--connections", str(connections), "--pipeline", str(pipeline),
                           "--seconds", str(seconds), "--warmup", str(WARMUP_SECONDS)], capture_output=True, text=True, timeout=seconds + 60)
    if done.returncode != 0:
        raise RuntimeError(f"{contender.title}, {mode} {connections} x {pipeline}: {done.stderr.strip()}")
    figures = json.loads(done.stdout)
    if contender.counts_writes and contender.counts_writes() == checked:
        raise RuntimeError(f"{contender.title}: not one of {figures['ops']} writes was checked")
    # The generator does not count its warm-up, the processor does.
    millions = figures["ops"] * (figures["seconds"] + WARMUP_SECONDS) / figures["seconds"] / 1e6
    figures["server_cpu"] = (cpu_seconds(server.pid) - before[0]) / millions
    figures["redis_cpu"] = (cpu_seconds(redis.pid) - before[1]) / millions
    return figures


def cpu_seconds(pid):
    """Of all living threads, in the scheduler's nanoseconds."""
    total = 0
    for path in glob.glob(f"/proc/{pid}/task/*/schedstat"):
        with contextlib.suppress(OSError), open(path) as file:
            total += int(file.read().split()[0])
    return total / 1e9


# ------------------------------------------------------------------------------------------------------------ memory


def memory_of(kind, redis, binary):
    """Resident megabytes of a fresh process: idle, with 1,000 idle connections, and above idle during a large value."""
    process = FencedGate(redis, binary) if kind is FencedGate else kind(redis)
    name = TAG if kind is FencedGate else None
    with process:
        idle = process.rss_bytes()
        clients = []
        try:
            for _ in range(IDLE_CONNECTIONS):
                clients.append(Resp(process.port, name=name))
                answer = clients[-1].call("GET", "bench:none")  # so that twemproxy and HAProxy have their backend link too
                if answer is not None:
                    raise RuntimeError(f"{process.title}: {answer}")
            crowded = process.rss_bytes()
        finally:
            for client in clients:
                client.close()
    with process:
        large = largest_during(process, lambda: move_large_value(process.port, name))
    return {"idle": idle / 1e6, "crowded": crowded / 1e6, "large": large / 1e6}


def largest_during(process, action):
    """The most resident bytes above those at the start, sampled every 2 ms while `action` runs."""
    base, largest, over = process.rss_bytes(), [0], threading.Event()

    def sample():
        while not over.wait(0.002):
            largest[0] = max(largest[0], process.rss_bytes())

    sampler = threading.Thread(target=sample)
    sampler.start()
    try:
        action()
    finally:
        over.set()
        sampler.join()
    return largest[0] - base


def move_large_value(port, name):
    """Writes one value of 256 MB and reads it back, both in pieces."""
    piece = b"v" * (1 << 20)
    with Resp(port, name=name, timeout=120) as client:
        client.send(b"*3\r\n$3\r\nSET\r\n$11\r\nbench:large\r\n$%d\r\n" % VALUE_BYTES)
        for _ in range(VALUE_BYTES // len(piece)):
            client.send(piece)
        client.send(b"\r\n")
        answer = client.reply()
        if answer != b"OK":
            raise RuntimeError(f"the large value: {answer}")
        client.send_command("GET", "bench:large")
        left = VALUE_BYTES + len(b"$%d\r\n" % VALUE_BYTES) + 2
        while left > 0:
            data = client.sock.recv(1 << 20)
            if not data:
                raise RuntimeError("closed while the large value was read")
            left -= len(data)
        client.call("DEL", "bench:large")


# ----------------------------------------------------------------------------------------------------------- start-up


def startup_milliseconds(process, times):
    """Median from exec to the first accepted connection."""
    seen = []
    with process:
        for _ in range(times):
            process.kill()
            begin = time.perf_counter()
            with subprocess.Popen(process.command(), stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                                  stderr=subprocess.DEVNULL, cwd=process.folder) as child:
                try:
                    while not accepts(process.port):
                        if child.poll() is not None or time.perf_counter() - begin > 20:
                            raise RuntimeError(f"{process.title} does not start")
                        time.sleep(0.0002)
                    seen.append(time.perf_counter() - begin)
                finally:
                    child.kill()
    return statistics.median(seen) * 1000


def accepts(port):
    with socket.socket() as probe:
        return probe.connect_ex((LOOPBACK, port)) == 0


def footprint(redis, binary, quick):
    """{title: figures} of memory and start-up of the processes that can stand in front of Redis."""
    kinds = [Haproxy, Twemproxy] + ([FencedGate] if binary else [])
    found = {}
    for kind in kinds:
        figures = {} if kind is Twemproxy else memory_of(kind, redis, binary)
        figures["startup"] = startup_milliseconds(FencedGate(redis, binary) if kind is FencedGate else kind(redis), 5 if quick else 20)
        found[kind.title] = figures
    return found
