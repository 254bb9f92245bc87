#!/usr/bin/env python3
"""Plays the story of fencegate with real processes: a paused writer's late write, with the fence and without.
On Redis, then on PostgreSQL, then over HTTP; then a cron job, and a writer in two pods, that nobody changed.

`./dev up` plays it and then keeps serving, so that it can be tried by hand; `./dev up --once` ends after the story.
Exit: 0 all steps went as they should, 1 a step did not, 2 something is missing on this machine.
"""

import argparse
import signal
import sys

import gate_story
import hold_story
import http_story
import postgres_story
import redis_story
from database import find_postgres
from stage import Missing, Page, Stage, Trouble, find_curl, find_fencegate, find_redis_server


# The later ones need the servers of the first two.
STORIES = {"redis": redis_story.RedisStory, "postgres": postgres_story.PostgresStory, "http": http_story.HttpStory,
           "hold": hold_story.HoldStory, "gate": gate_story.GateStory}


def run(once, last):
    page = Page(sys.stdout)
    for find in (find_fencegate, find_redis_server, find_postgres, find_curl):  # what is missing is said at once
        find()
    with Stage() as stage:
        stories = [kind(stage, page) for kind in list(STORIES.values())[:list(STORIES).index(last) + 1]]
        for story in stories:
            story.tell()
        if not once:
            page.title("Try it by hand (Ctrl-C ends everything)")
            for story in stories:
                story.explain()
            signal.pause()


def main():
    parser = argparse.ArgumentParser(prog="./dev up", description=__doc__.splitlines()[0])
    parser.add_argument("--once", action="store_true", help="end after the story")
    parser.add_argument("--until", choices=STORIES, default="gate", help="the last story to tell")
    given = parser.parse_args()
    sys.stdout.reconfigure(errors="replace")

    def end(signum, _):
        for s in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(s, signal.SIG_IGN)  # a second Ctrl-C must not leave processes behind
        raise SystemExit(0 if signum == signal.SIGINT and not given.once else 128 + signum)

    for s in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(s, end)
    try:
        run(given.once, given.until)
    except Trouble as trouble:
        Page(sys.stderr).trouble(f"fencegate demo: {trouble}")
        return 2 if isinstance(trouble, Missing) else 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
