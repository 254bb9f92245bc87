"""Leases in Redis are what they are in PostgreSQL: both are asked the same, at random, and must answer the same.

$FENCEGATE_SEED: the first of the seeds; $FENCEGATE_LEASE_SEEDS: how many.
"""

import os
import random

import test_pg_leases
import test_redis_leases
from live_test import main
from pg_fence import FenceTest
from redis_server import RedisServer

SEEDS = int(os.environ.get("FENCEGATE_LEASE_SEEDS", 3))
STEPS = 60
RESOURCES = ("a", "b")


class Both:
    def __init__(self, base, redis, seed):
        self.random = random.Random(seed)
        self.base = base
        base.sql("TRUNCATE fencegate.leases; DELETE FROM fencegate.marks")
        self.postgres = test_pg_leases.Leases(base)
        self.redis = test_redis_leases.Leases(redis).fresh(mark=None)

    def step(self):
        """What was asked, and the two answers."""
        what = self.random.choice(["grant"] * 5 + ["renew", "release", "mark", "forget", "thaw", "expire", "end_at_least", "restart"])
        resource, grant = self.random.choice(RESOURCES), self.random.choice("123456")
        token = int(self.redis.field("token", resource=resource) or 0) - self.random.choice((0, 0, 0, 1))
        return (what, resource, grant, token), *getattr(self, what)(resource, grant, token)

    def grant(self, _, grant, token):
        pick = self.random.choice
        wanted = {"resources": pick(("a", "b", "a,b", "b,a")), "floor": max(pick((0, 0, 40, 100, token)), 0),
                  "stores": pick((("s",), ("s", "t"), ("s", "t", "u"))), "at_least_ms": pick((0, 0, 60_000)),
                  "lock_delay_ms": pick((0, 0, 60_000)), "by_force": self.random.random() < 0.2, "freeze": False, "stride": pick((1, 1000))}
        if self.random.random() < 0.1:
            wanted |= {"by_force": True, "freeze": True}
        rows, answer = self.postgres.grant(grant, **wanted), self.redis.grant(grant, **wanted)
        names = wanted["resources"].split(",")
        if answer[0] == "granted":
            return {row[0]: str(row[2]) for row in rows}, dict(zip(names, answer[1:]))
        # PostgreSQL answers for each resource, Redis for one of them.
        name, by = names[int(answer[1]) - 1], (answer[2:] or [None])[0]
        return (rows[0][1], True), (answer[0], (name, by) in [(row[0], row[3]) for row in rows])

    def renew(self, resource, grant, token):
        return len(self.postgres.renew(grant, token, resource)), int(int(self.redis.renew(grant, token, resource)[0]) > 0)

    def release(self, resource, grant, token):
        unused = self.random.random() < 0.5
        rows = self.postgres.client.run("SELECT fencegate.lease_release(%s, %s, %s, %s)", [resource], [token], [grant], unused)
        return len(rows), int(self.redis.release(grant, token, resource, unused)[0])

    def mark(self, resource, _, token):
        mark = token + self.random.choice((-1, 0, 1))
        if mark > (self.base.value(f"SELECT max(mark) FROM fencegate.marks WHERE resource = '{resource}'") or 0):
            self.base.sql(f"INSERT INTO fencegate.marks (resource, mark) VALUES ('{resource}', {mark}) "
                          f"ON CONFLICT (resource) DO UPDATE SET mark = {mark}")
            self.redis.mark(mark, resource)
        return None, None

    def forget(self, resource, *_):
        store = self.random.choice("stu")
        ((was_there,),) = self.postgres.client.run("SELECT fencegate.lease_forget_store(%s, %s)", resource, store)
        return was_there, self.redis.forget(store, resource) == b"1"

    def thaw(self, resource, *_):
        ((was_frozen,),) = self.postgres.client.run("SELECT fencegate.lease_thaw(%s)", resource)
        return was_frozen, self.redis.thaw(resource) == b"1"

    # What time and the servers do.

    def expire(self, resource, *_):
        self.base.sql(f"UPDATE fencegate.leases SET expires_at = clock_timestamp() WHERE resource = '{resource}' "
                      "AND expires_at > clock_timestamp()")
        seconds, microseconds = map(int, self.redis.redis.cli.call("TIME"))
        now = seconds * 1_000_000 + microseconds
        if int(self.redis.field("until", resource=resource) or 0) > now:
            self.redis.field("until", now, resource)
        return None, None

    def end_at_least(self, resource, *_):
        self.change(resource, "not_before = '-infinity'", "not_before", "0")
        return None, None

    def restart(self, resource, *_):
        if self.base.value(f"SELECT max(expires_at) <= clock_timestamp() FROM fencegate.leases WHERE resource = '{resource}'"):
            self.change(resource, "incarnation = 'another'", "server", "another")
        return None, None

    def change(self, resource, in_postgres, field, value):
        self.base.sql(f"UPDATE fencegate.leases SET {in_postgres} WHERE resource = '{resource}' AND token > 0")
        if self.redis.field("token", resource=resource) is not None:
            self.redis.field(field, value, resource)


class Differential(FenceTest):
    def test_the_same_answers(self):
        redis, base = self.start(RedisServer()), self.base()
        first = int(os.environ.get("FENCEGATE_SEED") or random.randrange(1 << 30))
        for seed in range(first, first + SEEDS):
            both, asked = Both(base, redis, seed), []
            for _ in range(STEPS):
                *question, in_postgres, in_redis = both.step()
                asked.append((*question, in_redis))
                self.assertEqual(in_postgres, in_redis, f"seed {seed}: {asked[-6:]}")
            both.postgres.client.connection.close()


if __name__ == "__main__":
    main()
