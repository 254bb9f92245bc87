"""hold at a terminal: `script` is the terminal, and what is typed comes to it by a pipe."""

import os
import shutil
import signal
import subprocess
import unittest

from held import Held, children, name, state
from live_test import LiveTest, main
from processes import eventually

CTRL_C, CTRL_D, CTRL_Z = b"\x03", b"\x04", b"\x1a"


def hold_in(pid):
    """The keeper among the descendants of `pid`."""
    for one in children(pid):
        if name(one) == "hold_probe":
            return one
        if found := hold_in(one):
            return found
    return None


class Terminal(Held):
    """An interactive shell, with job control, in which `hold` stands for the probe with its options and CMD."""

    def __init__(self, *command, **options):
        super().__init__(*command, stdin=subprocess.PIPE, **options)
        words = " ".join(f"'{one}'" for one in super().words())
        self.script = f"hold() {{ {words}; }}; PS1=; set +o history\n"

    def words(self):
        return ["script", "-qec", "bash --norc --noprofile -i", "/dev/null"]

    def __enter__(self):
        super().__enter__()
        with open(self.path("script"), "w", encoding="utf-8") as file:
            file.write(self.script)
        self.type(f". {self.path('script')}; touch {self.path('ready')}\n".encode())
        eventually(lambda: self.has("ready"))
        return self

    def type(self, keys):
        self.child.stdin.write(keys)
        self.child.stdin.flush()

    @property
    def keeper(self):
        return eventually(lambda: hold_in(self.child.pid))

    def command_pid(self):
        (guard,) = children(self.keeper)
        return eventually(lambda: children(guard))[0]

    def wait_for(self, file, text=""):
        eventually(lambda: self.has(file) and text in self.read(file))


@unittest.skipUnless(shutil.which("script"), "needs script (bsdutils)")
class AtTheTerminal(LiveTest):
    def terminal(self, text, **options):
        """`text`: of a shell that is CMD; no single quotes."""
        return self.start(Terminal("bash", "-c", text, **options))

    def test_ctrl_c_comes_once(self):
        at = self.terminal('trap "echo INT >> $F/got" INT; touch $F/up; until [ -e $F/go ]; do sleep 0.01; done; exit 3')
        at.type(b"hold; echo $? > $F/status\n")
        at.wait_for("up")
        self.assertEqual(os.getpgid(at.command_pid()), os.getpgid(at.keeper))
        at.type(CTRL_C)
        eventually(lambda: ["signal", "2", "heard"] in at.said())
        at.wait_for("got", "INT")
        os.kill(at.keeper, signal.SIGINT)  # this one, the terminal did not send
        eventually(lambda: ["signal", "2", "passed"] in at.said())
        eventually(lambda: at.read("got").count("INT") == 2)
        with open(at.path("go"), "w", encoding="utf-8"):
            pass
        eventually(lambda: at.said("ended"))
        self.assertEqual(at.read("got").count("INT"), 2)
        self.assertEqual(at.end()[:2], ("exited", 3))

    def test_ctrl_c_ends_a_job(self):
        at = self.terminal("touch $F/up; exec sleep 300")
        at.type(b"hold\n")
        at.wait_for("up")
        eventually(lambda: name(at.command_pid()) == "sleep")
        at.type(CTRL_C)
        eventually(lambda: at.said("ended"))
        self.assertEqual(at.end()[:2], ("signaled", 2))

    def test_reading_ctrl_z_and_fg(self):
        at = self.terminal("touch $F/up; exec cat > $F/read")
        at.type(b"hold; echo $? > $F/status\n")
        at.wait_for("up")
        at.type(b"one\n")
        at.wait_for("read", "one")
        at.type(CTRL_Z)
        keeper, command = at.keeper, at.command_pid()
        eventually(lambda: state(keeper) == "T" and state(command) == "T")
        at.type(b"fg\n")
        eventually(lambda: state(keeper) != "T" and state(command) != "T")
        at.type(b"two\n")
        at.wait_for("read", "two")
        at.type(CTRL_D)
        eventually(lambda: at.said("ended"))
        self.assertEqual(at.end()[:2], ("exited", 0))

    def test_a_job_that_ctrl_z_stopped_ends_at_its_deadline(self):
        at = self.terminal('trap "" TERM; touch $F/up; while :; do sleep 0.05; done', ttl=2_000, grace=100, renew=600_000)
        at.type(b"hold\n")
        at.wait_for("up")
        keeper, command = at.keeper, at.command_pid()
        at.type(CTRL_Z)
        eventually(lambda: state(keeper) == "T")
        eventually(lambda: state(command) == "")
        self.assertEqual(state(keeper), "T")  # and nobody else has ended it
        at.type(b"fg\n")
        eventually(lambda: at.said("ended"))
        self.assertEqual(at.end()[0], "overdue")

    def test_stop_at_is_for_cmd_not_for_who_shares_its_group(self):
        at = self.terminal('trap "echo TERM >> $F/got; exit 4" TERM; (trap "echo TERM >> $F/got; exit 5" TERM; touch $F/in;'
                           ' while :; do sleep 0.01; done) & touch $F/up; while :; do sleep 0.01; done', grace=60_000)
        at.type(b"hold | (trap 'touch $F/hit' TERM; cat; echo > $F/piped)\n")
        at.wait_for("up")
        at.wait_for("in")
        at.stop_now()
        at.wait_for("piped")
        self.assertEqual(at.end()[:2], ("exited", 4))
        # What CMD leaves behind is told once more.
        self.assertIn(at.read("got").split(), (["TERM"] * 2, ["TERM"] * 3))
        self.assertFalse(at.has("hit"))

    def test_a_job_in_the_background_reads_when_it_comes_to_the_foreground(self):
        at = self.terminal("touch $F/up; until [ -e $F/go ]; do sleep 0.01; done; exec cat > $F/read")
        at.type(b"hold &\n")
        at.wait_for("up")
        keeper, command = at.keeper, at.command_pid()
        self.assertEqual(os.getpgid(command), os.getpgid(keeper))
        at.type(b"fg\n")
        eventually(lambda: self.foreground(keeper) == os.getpgid(keeper))
        with open(at.path("go"), "w", encoding="utf-8"):
            pass
        at.type(b"one\n")
        at.wait_for("read", "one")
        at.type(CTRL_C)
        eventually(lambda: at.said("ended"))
        self.assertEqual(at.end()[:2], ("signaled", 2))

    def test_one_that_reads_in_the_background_goes_on_in_the_foreground(self):
        at = self.terminal("touch $F/up; exec cat > $F/read")
        at.type(b"hold &\n")
        at.wait_for("up")
        keeper, command = at.keeper, at.command_pid()
        eventually(lambda: state(command) == "T")  # SIGTTIN
        at.type(b"fg\n")
        eventually(lambda: state(command) != "T" and self.foreground(keeper) == os.getpgid(keeper))
        at.type(b"one\n")
        at.wait_for("read", "one")
        at.type(CTRL_D)
        eventually(lambda: at.said("ended"))
        self.assertEqual(at.end()[:2], ("exited", 0))

    @staticmethod
    def foreground(pid):
        """The group in the foreground of its terminal."""
        with open(f"/proc/{pid}/stat", encoding="utf-8") as file:
            return int(file.read().rpartition(") ")[2].split()[5])


class WithoutOne(LiveTest):
    """What comes to the keeper is passed on to CMD."""

    def test_each_signal(self):
        held = self.start(Held("bash", "-c", "for one in INT HUP QUIT USR1 TERM; do trap \"echo $one >> $F/got\" $one; done; "
                               "touch $F/up; until [ -e $F/go ]; do sleep 0.01; done"))
        eventually(lambda: held.has("up") and held.said("runs") is not None)
        for word in ("INT", "HUP", "QUIT", "USR1", "TERM"):  # all at once are too much for bash
            os.kill(held.keeper, signal.Signals[f"SIG{word}"])
            eventually(lambda: held.has("got") and held.read("got").split()[-1] == word)
        with open(held.path("go"), "w", encoding="utf-8"):
            pass
        self.assertEqual(held.wait(), 0)

    def test_it_is_cmd_that_gets_it_and_what_it_leaves_is_ended(self):
        held = self.start(Held("bash", "-c", "sleep 300 & : > $F/up; wait"))
        eventually(lambda: held.has("up") and held.said("runs") is not None)
        os.kill(held.keeper, signal.SIGTERM)
        self.assertEqual(held.wait(), 143)
        self.assertEqual(held.end()[:3], ("signaled", 15, 1))
        self.assertTrue(held.gone())


if __name__ == "__main__":
    main()
