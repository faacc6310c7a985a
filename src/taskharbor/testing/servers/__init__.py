"""Real servers that start by themselves, for the tests of this project and of its users.

    with postgres_server(fast=True) as server:
        driver = open_driver(server.create_database())

Each is a context manager with `url`, `create_database()` and, where the server is ours, `stop()`, `start()`,
`restart()` and `kill()`. ServerUnavailable says what is missing and what would help.
"""

from taskharbor.testing.servers.bouncer import Bouncer, pgbouncer
from taskharbor.testing.servers.errors import ServerUnavailable
from taskharbor.testing.servers.given import GivenServer
from taskharbor.testing.servers.local import LocalServer
from taskharbor.testing.servers.mysql import MysqlServer, mysql_server
from taskharbor.testing.servers.postgres import PostgresServer, postgres_server

__all__ = [
    "Bouncer",
    "GivenServer",
    "LocalServer",
    "MysqlServer",
    "PostgresServer",
    "ServerUnavailable",
    "mysql_server",
    "pgbouncer",
    "postgres_server",
]
