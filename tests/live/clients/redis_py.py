"""redis-py as a client of story.py, with the fence tag in its URL."""

import queue
import threading
import time
import urllib.parse

import redis

BUMP = "return redis.call('INCRBY', KEYS[1], ARGV[1])"


def error_of(action):
    try:
        return {"unexpected": action()}
    except redis.RedisError as error:
        return f"{type(error).__name__}: {error}"


class RedisPy:
    def __init__(self, port, tag):
        url = f"redis://127.0.0.1:{port}/0?client_name={urllib.parse.quote(tag)}&decode_responses=yes&socket_timeout=30"
        self.client = redis.Redis.from_url(url)

    def __enter__(self):
        self.answers = queue.SimpleQueue()
        self.got = []
        self.over = threading.Event()
        self.listeners = []
        return self

    def __exit__(self, *_):
        self.over.set()
        for listener in self.listeners:
            listener.join()
        self.client.connection_pool.disconnect()

    def do(self, action, *args):
        return getattr(self, action)(*args)

    def start(self, action, *args):
        threading.Thread(target=self._run, args=(action, args), daemon=True).start()

    def _run(self, action, args):
        try:
            self.answers.put((self.do(action, *args), None))
        except Exception as error:  # for whoever calls finish()
            self.answers.put((None, error))

    def finish(self, deadline=30):
        value, error = self.answers.get(timeout=deadline)
        if error:
            raise error
        return value

    # -- the actions

    def connect(self):
        return self.client.client_getname()

    def strings(self):
        c = self.client
        return [c.set("s:a", "1"), c.get("s:a"), c.incr("s:a"), c.append("s:a", "0"), c.set("s:a", "no", nx=True),
                c.set("s:a", "x", get=True), c.mset({"s:b": "é", "s:c": ""}), c.mget("s:a", "s:b", "s:c", "s:none"),
                c.setex("s:d", 1000, "v"), c.ttl("s:d"), c.getdel("s:d"), c.delete("s:a", "s:none"), error_of(lambda: c.incr("s:b"))]

    def types(self):
        c = self.client
        return [c.hset("t:h", mapping={"a": 1, "b": "two"}), c.hgetall("t:h"), c.hgetall("t:none"), c.sadd("t:s", "x", "y"),
                c.smembers("t:s"), c.zadd("t:z", {"m": 1.5, "n": float("inf")}), c.zscore("t:z", "m"),
                c.zrange("t:z", 0, -1, withscores=True), c.rpush("t:l", "a", "b"), c.lrange("t:l", 0, -1), c.lpop("t:l", 5), c.lpop("t:l"),
                c.xadd("t:x", {"f": "v"}, id="1-1"), c.xgroup_create("t:x", "g", "0"), c.xreadgroup("g", "c", {"t:x": ">"}, count=5),
                c.xack("t:x", "g", "1-1"), c.setbit("t:b", 7, 1), c.pfadd("t:p", "a"), c.geoadd("t:g", (13.4, 52.5, "berlin")),
                c.geopos("t:g", "berlin", "nowhere")]

    def pipeline(self):
        mixed = self.client.pipeline(transaction=False)
        mixed.set("p:a", "text").get("p:a").incr("p:a").hset("p:h", "f", "1").hgetall("p:h")
        long = self.client.pipeline(transaction=False)
        for _ in range(5000):
            long.incr("p:count").get("p:count")
        replies = long.execute()
        return [list(map(str, mixed.execute(raise_on_error=False))), all(int(value) == i // 2 + 1 for i, value in enumerate(replies))]

    def transaction(self):
        c = self.client
        bad = c.pipeline().set("m:c", "1").execute_command("SET", "only")
        return [c.pipeline().set("m:a", "1").incr("m:a").get("m:a").execute(), error_of(c.pipeline().set("m:b", "text").incr("m:b").execute),
                c.get("m:b"), error_of(bad.execute), c.get("m:c"), error_of(lambda: c.execute_command("EXEC"))]

    def watch(self):
        c = self.client
        told = [c.set("w:a", "1")]
        with c.pipeline() as pipe:
            told += [pipe.watch("w:a"), c.set("w:a", "2")]
            pipe.multi()
            told += [error_of(pipe.set("w:a", "3").execute), c.get("w:a")]
            told.append(pipe.watch("w:a"))
            pipe.multi()
            told += [pipe.set("w:a", "4").execute(), c.get("w:a")]
            told += [pipe.watch("w:a"), c.set("w:a", "5"), pipe.unwatch()]
            told.append(pipe.incr("w:a").execute())
        return told

    def scripts(self):
        c = self.client
        bump = c.register_script(BUMP)
        return [bump(["l:a"], [5]), bump(["l:a"], [5]), c.eval("return {KEYS[1], ARGV[1], 7, false}", 1, "l:a", "x"),
                error_of(lambda: c.evalsha("0" * 40, 0)), error_of(lambda: c.eval("return redis.error_reply('MINE own')", 0))]

    def pubsub(self):
        with self.client.pubsub() as subscriber:
            subscriber.subscribe("ps:a", "ps:b")
            subscriber.psubscribe("ps:*")
            told = [subscriber.get_message(timeout=10) for _ in range(3)]
            told.append(self.client.publish("ps:a", "hello"))
            told += [subscriber.get_message(timeout=10) for _ in range(2)]
            subscriber.unsubscribe("ps:a", "ps:b")  # without names their order is up to the server
            subscriber.punsubscribe("ps:*")
            told += [subscriber.get_message(timeout=10) for _ in range(3)]
        return told

    def blockingPop(self, key):
        return self.client.blpop(key, 0)

    def blockingTimeout(self):
        return self.client.blpop("b:none", 0.1)

    def write(self, key, value):
        return self.client.set(key, value)

    def read(self, key):
        return self.client.get(key)

    def writeMany(self, key, count):
        pipe = self.client.pipeline(transaction=False)
        for i in range(count):
            pipe.set(f"{key}:{i}", "stale")
        return list(map(str, pipe.execute(raise_on_error=False)))

    def writeInTransaction(self, key, value):
        return self.client.pipeline().set(key, value).incr("count").execute()

    def untilWritten(self, key, value):
        end = time.monotonic() + 20
        while True:
            try:
                return self.client.set(key, value)
            except redis.RedisError as error:
                if str(error).startswith("FENCED ") or time.monotonic() > end:
                    raise
            time.sleep(0.05)

    def subscribe(self, channel):
        ready = threading.Event()
        self.listeners.append(threading.Thread(target=self._listen, args=(channel, ready), daemon=True))
        self.listeners[-1].start()
        if not ready.wait(10):
            raise AssertionError("not subscribed")

    def _listen(self, channel, ready):
        while not self.over.is_set():  # redis-py leaves subscribing again to the application
            try:
                with self.client.pubsub() as subscriber:
                    subscriber.subscribe(channel)
                    while not self.over.is_set():
                        message = subscriber.get_message(timeout=0.1)
                        if message and message["type"] == "subscribe":
                            ready.set()
                        elif message:
                            self.got.append(message["data"])
            except (redis.RedisError, OSError):
                self.over.wait(0.05)

    def received(self):
        return self.got
