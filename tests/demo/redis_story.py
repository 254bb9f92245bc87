"""The story on Redis: a paused writer's late write, with the fence and with check-then-forward."""

from stage import eventually, unread_bytes
from story import Story, quoted

KEY = "orders:1"
MARK = "fencegate:mark:{orders}"


class RedisStory(Story):
    def call(self, who, connection, *words, right=lambda a: a == "+OK"):
        return self.expect(who, " ".join(map(quoted, words)), connection.call(*words), right)

    def fenced(self, redis_port):
        """Returns what A's late write was answered and what is in Redis afterwards."""
        say, stage = self.page, self.stage
        say.title("With fencegate: two pods, each with its sidecar, one Redis")
        upstream = f"redis://127.0.0.1:{redis_port}"
        sidecar_a, port_a, admin_a = stage.start_sidecar("sidecar A", "redis", upstream)
        _, port_b, admin_b = stage.start_sidecar("sidecar B", "redis", upstream)
        redis, a = stage.connect(redis_port), stage.connect(port_a)

        self.call("A", a, "CLIENT", "SETNAME", "fence:orders=33")
        self.call("A", a, "SET", KEY, "A, token 33")
        self.call("in Redis", redis, "GET", MARK, right=lambda v: v == "33")
        sidecar_a.freeze()
        say.step("A's pod", "is frozen: SIGSTOP to its sidecar", "stopped")
        a.send("SET", KEY, "A, late")
        waiting = eventually("A's write to reach its sidecar's socket", lambda: unread_bytes(port_a, a.socket))
        say.step("A", f"SET {KEY} {quoted('A, late')}", f"{waiting} bytes lie unread in the sidecar's socket")

        b = stage.connect(port_b)
        self.call("B", b, "CLIENT", "SETNAME", "fence:orders=34")
        self.call("in Redis", redis, "GET", MARK, right=lambda v: v == "34")
        self.call("B", b, "SET", KEY, "B, token 34")
        sidecar_a.thaw()
        say.step("A's pod", "goes on: SIGCONT", "running")
        late = self.expect("A", "…reads the answer to its late write", a.read(), is_fenced)
        stored = self.call("in Redis", redis, "GET", KEY, right=lambda v: v == "B, token 34")
        self.call("A", a, "SET", KEY, "A, again", right=is_fenced)
        self.call("A", a, "GET", KEY, right=lambda v: v == "B, token 34")
        self.ports = redis_port, port_a, admin_a, port_b, admin_b
        return late, stored

    def unfenced(self, redis_port):
        """The same with check-then-forward; returns what the late write was answered and what is in Redis afterwards."""
        say, stage = self.page, self.stage
        say.title("The same with check-then-forward: GET the mark, compare, then forward")
        proxy_a, port_a = stage.start_naive("proxy A", redis_port, redis_port, "orders", 33, "freeze")
        redis, a = stage.connect(redis_port), stage.connect(port_a)

        self.call("A", a, "SET", f"naive:{KEY}", "A, token 33")
        a.send("SET", f"naive:{KEY}", "A, late")
        proxy_a.wait_until_frozen()
        say.step("A", f"SET naive:{KEY} {quoted('A, late')}", "checked: 33 is the mark, good")
        say.step("A's pod", "is frozen between check and forward", "stopped")
        _, port_b = stage.start_naive("proxy B", redis_port, redis_port, "orders", 34)
        b = stage.connect(port_b)
        self.call("B", b, "SET", f"naive:{KEY}", "B, token 34")
        self.call("in Redis", redis, "GET", "naive:mark:orders", right=lambda v: v == "34")
        proxy_a.thaw()
        say.step("A's pod", "goes on: SIGCONT", "running")
        late = self.expect("A", "…reads the answer to its late write", a.read(), lambda r: r == "+OK", good=False)
        stored = redis.call("GET", f"naive:{KEY}")
        self.expect("in Redis", f"GET naive:{KEY}", stored, lambda v: v == "A, late", good=False)
        return late, stored

    def tell(self):
        redis_port = self.stage.redis_port = self.stage.start_redis()
        self.page.line(f"A private Redis with an append-only file listens on 127.0.0.1:{redis_port}.")
        late, stored = self.fenced(redis_port)
        naive_late, naive_stored = self.unfenced(redis_port)
        self.page.title("Side by side")
        self.page.line(f"     {'':20} {'fencegate':26} check, then forward")
        self.page.line(f"     {'A’s late write':20} {late.split()[0] + ', not applied':26} {naive_late}, applied")
        self.page.line(f"     {'what Redis holds':20} {quoted(stored):26} {quoted(naive_stored)}")
        self.page.line()
        self.page.line("Both had checked token 33 before they froze. Only fencegate's check is one unit with the write.")

    def explain(self):
        redis_port, port_a, admin_a, port_b, admin_b = self.ports
        self.by_hand(
            (f"redis-cli -p {port_a}", f"sidecar A; sidecar B has port {port_b}"),
            ("  > CLIENT SETNAME fence:orders=35", "a new holder: the mark rises at once"),
            (f"  > SET {KEY} mine", "OK"),
            (f"redis-cli -p {port_b} FENCE CALL orders 34 SET {KEY} x", "FENCED: 34 is below the mark"),
            (f"redis-cli -p {port_b} FENCE MARK orders", "the mark"),
            (f"redis-cli -p {port_a} SET {KEY} x", "FENCEMISSING: a write without a token"),
            (f"redis-cli -p {redis_port} GET '{MARK}'", "the mark as Redis keeps it, no gate between"),
            (f"curl -s http://127.0.0.1:{admin_a}/metrics", f"figures of sidecar A; B's: port {admin_b}"),
        )


def is_fenced(answer):
    return isinstance(answer, str) and answer.startswith("-FENCED ")
