"""redis-py lives with the fence: Debian's package python3-redis, whichever Python runs the tests."""

import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "clients"))
sys.path.append("/usr/lib/python3/dist-packages")

from live_test import LiveTest, main  # noqa: E402
from redis_py import RedisPy  # noqa: E402
from story import ClientStory  # noqa: E402


class RedisPyStory(ClientStory, LiveTest):
    setname_error_is_fatal = True

    def open_client(self, port, tag):
        return RedisPy(port, tag)


if __name__ == "__main__":
    main()
