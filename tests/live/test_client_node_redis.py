"""node-redis lives with the fence, with both versions of the protocol."""

import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "clients"))

from live_test import LiveTest, main  # noqa: E402
from node_client import NodeClient, install_packages  # noqa: E402
from story import ClientStory  # noqa: E402

setUpModule = install_packages


class NodeRedisResp2(ClientStory, LiveTest):
    setname_error_is_fatal = True

    def open_client(self, port, tag):
        return NodeClient("node_redis.mjs", port, tag, 2)


class NodeRedisResp3(ClientStory, LiveTest):
    setname_error_is_fatal = True

    def open_client(self, port, tag):
        return NodeClient("node_redis.mjs", port, tag, 3)


if __name__ == "__main__":
    main()
