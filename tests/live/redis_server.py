"""Private Redis servers of the live tests."""

import os

from processes import LOOPBACK, Process, free_port
from resp import Resp


class RedisServer(Process):
    """A private redis-server, synced to disk every second. Settings are keyword arguments: `maxmemory="10mb"`,
    `maxmemory_policy="noeviction"`. With `unix=True` it listens on a unix socket only, and `address` is its path."""

    title = "redis"

    def __init__(self, unix=False, **conf):
        super().__init__()
        self.unix = unix
        self.conf = {"appendonly": "yes", "appendfsync": "everysec", "save": "", "databases": "16"}
        self.conf.update({key.replace("_", "-"): value for key, value in conf.items()})
        self._cli = None

    def prepare(self):
        self.port = 0 if self.unix else free_port()
        self.address = os.path.join(self.folder, "redis.sock") if self.unix else self.port
        self.conf.update({"port": self.port, "bind": LOOPBACK, "dir": self.folder})
        if self.unix:
            self.conf["unixsocket"] = self.address
        with open(os.path.join(self.folder, "redis.conf"), "w") as file:
            for key, value in self.conf.items():
                file.write(f"{key} {value}\n" if value != "" else f'{key} ""\n')

    def command(self):
        return ["redis-server", os.path.join(self.folder, "redis.conf")]

    def up(self):
        self._drop_cli()
        return self.cli.call("PING") == b"PONG"

    @property
    def cli(self):
        """A connection of the default user."""
        if self._cli is None:
            self._cli = Resp(self.address, password=self.conf.get("requirepass"))
        return self._cli

    def _drop_cli(self):
        if self._cli is not None:
            self._cli.close()
            self._cli = None

    def kill(self):
        self._drop_cli()
        super().kill()

    def info(self, section="everything"):
        lines = self.cli.call("INFO", section).decode().splitlines()
        return dict(line.split(":", 1) for line in lines if ":" in line)

    def calls(self, command):
        """How often it has run the command."""
        return int(self.info("commandstats").get(f"cmdstat_{command}", "calls=0,").split(",")[0].removeprefix("calls="))
