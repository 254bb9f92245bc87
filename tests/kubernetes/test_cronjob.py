"""docker/k8s/cronjob.yaml on a cluster: a batch that nobody changed, under `fencegate-hold hold`."""

import re
import unittest

import cluster
from cluster import WAIT, command, eventually

PAGE = "docs/leases.md"
# Beside each invoice: the token under which it was booked, and in which order.
INVOICES = """
    CREATE TABLE invoices(id int, booked bool DEFAULT false, tag text, place bigserial);
    GRANT ALL ON invoices TO orders; GRANT ALL ON SEQUENCE invoices_place_seq TO orders;
    CREATE FUNCTION note() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
      NEW.tag := current_setting('fencing.tokens', true); NEW.place := nextval('invoices_place_seq'); RETURN NEW; END $$;
    CREATE TRIGGER note BEFORE UPDATE ON invoices FOR EACH ROW EXECUTE FUNCTION note()"""
MANY = 100_000  # more than a batch can book here


class CronJobs(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.rig = cluster.rig
        assert cls.rig.deployed
        cls.rig.sql(INVOICES)
        cls.rig.run_page(command(PAGE, "kubectl apply -f docker/k8s/cronjob.yaml"))

    def setUp(self):
        self.addCleanup(self.rig.sql, "DELETE FROM invoices")

    def invoices(self, count):
        self.rig.sql(f"INSERT INTO invoices(id) SELECT * FROM generate_series(1, {count})")

    def run_now(self, name):
        self.addCleanup(self.rig.kubectl, "delete", "job", name, "--cascade=foreground", "--wait=false", "--ignore-not-found")
        line = command(PAGE, "kubectl create job --from=cronjob/book-invoices")
        self.rig.shell(line.replace("book-invoices-now", name))

    def pods_of(self, name):
        return self.rig.get("pods", selector=f"batch.kubernetes.io/job-name={name}")

    def outcome(self, name):
        """The condition that the Job ended with, and the pod that ended it: where it completed, one before may have found no sidecar in
        time, and have booked nothing."""
        def ended():
            return [one for one in self.rig.get("jobs", name)["status"].get("conditions", ())
                    if one["type"] in ("Complete", "Failed") and one["status"] == "True"]
        (condition,) = eventually(ended, WAIT, every=0.2)
        (pod,) = [one for one in self.pods_of(name) if condition["type"] == "Failed" or one["status"]["phase"] == "Succeeded"]
        return condition, pod

    def booked(self):
        """The token of each invoice that was booked, in the order of the bookings."""
        tags = self.rig.sql("SELECT tag FROM invoices WHERE booked ORDER BY place")
        return [int(re.fullmatch(r"invoices=(\d+)", tag)[1]) for (tag,) in tags]

    def await_booking(self, above=0):
        """The token under which one is at work."""
        return eventually(lambda: max([one for one in self.booked() if one > above], default=None), WAIT, every=0.2)

    def has_expired(self):
        return self.rig.sql("SELECT 1 FROM fencegate.leases WHERE resource = 'invoices' AND expires_at <= clock_timestamp()")

    @staticmethod
    def status_of(pod, container="job"):
        """Its exit status; None while it runs."""
        states = pod["status"].get("containerStatuses", []) + pod["status"].get("initContainerStatuses", [])
        (state,) = [one["state"] for one in states if one["name"] == container]
        return state.get("terminated", {}).get("exitCode")

    def test_the_batch_books_all_under_its_token_and_the_sidecar_ends_with_it(self):
        self.invoices(5)
        self.run_now("alone")
        condition, pod = self.outcome("alone")
        self.assertEqual(condition["type"], "Complete")
        booked = self.booked()
        self.assertEqual((len(booked), len(set(booked))), (5, 1))
        self.assertEqual((self.status_of(pod), self.status_of(pod, "fencegate")), (0, 0))
        self.assertTrue(self.has_expired(), "it was released")

    def test_a_second_one_fails_and_a_frozen_one_is_refused_behind_its_lease(self):
        self.rig.need_freezing()
        self.invoices(MANY)
        self.run_now("first")
        token = self.await_booking()
        (frozen,) = [one["metadata"]["name"] for one in self.pods_of("first")]

        self.run_now("second")
        condition, pod = self.outcome("second")  # one pod: none replaced it
        self.assertEqual((condition["type"], condition["reason"], self.status_of(pod)), ("Failed", "PodFailurePolicy", 75))
        self.assertIn("held by", self.rig.kubectl("logs", pod["metadata"]["name"], "-c", "job"))

        blocked = cluster.Blocked(self.rig, "invoices")
        self.addCleanup(blocked.close)
        late = blocked.await_waiting()
        for container in ("fencegate", "job"):
            self.rig.freeze(self, frozen, container)
        eventually(self.has_expired, WAIT, every=0.2)
        with cluster.timed("the third takes over from a frozen one"):
            self.run_now("third")
            blocked.await_waiting(other_than=late)
            blocked.close()
            newer = self.await_booking(above=token)
        before = len(self.booked())

        for container in ("fencegate", "job"):
            self.rig.cluster.thaw(frozen, container)
        self.assertEqual(eventually(lambda: self.status_of(self.rig.get("pods", frozen)), WAIT, every=0.2), 79)
        self.assertRegex(self.rig.kubectl("logs", frozen, "-c", "job"), "the lease was lost")
        eventually(lambda: len(self.booked()) > before, WAIT, every=0.2)
        booked = self.booked()
        self.assertEqual(booked, sorted(booked))
        self.assertEqual(set(booked), {token, newer})

    def test_the_namespace_takes_restricted_pods_only(self):
        with self.assertRaisesRegex(AssertionError, "violates PodSecurity"):
            self.rig.kubectl("create", "-f", "-", text="""
                {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "bare"},
                 "spec": {"containers": [{"name": "bare", "image": "redis:7.0"}]}}""")


if __name__ == "__main__":
    raise SystemExit("./dev test --kubernetes runs this")
