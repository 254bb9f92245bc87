"""fencegate doctor, as tests run it."""

import json
import os
import subprocess

from live_test import LiveTest
from processes import PATIENCE


class DoctorTest(LiveTest):

    def doctor(self, folder, *arguments, **config):
        """The finished process, with a configuration of these top-level keys in the folder."""
        path = os.path.join(folder, "doctor.yaml")
        with open(path, "w") as file:
            json.dump(config, file)
        return subprocess.run([os.environ["FENCEGATE"], "doctor", "-c", path, *arguments], capture_output=True, text=True,
                              timeout=PATIENCE, check=False)

    def look(self, folder, **config):
        """({id: [what it says]}, [what is not known, and why]); the exit status must fit them."""
        done = self.doctor(folder, "--json", **config)
        self.assertEqual(done.stderr, "")
        said = json.loads(done.stdout)
        hazards = {}
        for one in said["hazards"]:
            self.assertTrue(one["why"] and one["mend"] and one["where"] and one["address"], one)
            hazards.setdefault(one["id"], []).append(one["what"])
        unknown = [f"{one['what']}: {one['why']}" for one in said["unknown"]]
        self.assertEqual(done.returncode, 1 if hazards else 3 if unknown else 0)
        return hazards, unknown
