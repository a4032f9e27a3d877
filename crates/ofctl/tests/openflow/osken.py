"""Runs os-ken's stock applications: osken.py HOST PORT APPLICATION.

The releases of os-ken that carry them are older than today's eventlet, which has dropped a name
that os-ken's web server imports. None of the applications here serves the web.
"""

import sys

import eventlet.wsgi

eventlet.wsgi.ALREADY_HANDLED = object()

from os_ken.cmd.manager import main  # noqa: E402

main(["--ofp-listen-host", sys.argv[1], "--ofp-tcp-listen-port", sys.argv[2], sys.argv[3]])
