"""pymemcache: `with_pymemcache.py PORT` prints what it was told, the same from any server."""

import sys

from pymemcache.client.base import Client, PooledClient

PORT = int(sys.argv[1])

for kind in Client, PooledClient:
    client = kind(("127.0.0.1", PORT), default_noreply=False)
    client.flush_all()
    print(kind.__name__, client.set("a", b"one"), client.get("a"), client.get("none"))
    print(client.add("a", b"two"), client.replace("a", b"two"), client.append("a", b"!"))
    print(client.get("a"), client.prepend("a", b"<"), client.get("a"))
    print(client.set_many({f"k{at}": str(at) for at in range(9)}))
    print(sorted(client.get_many([f"k{at}" for at in range(12)]).items()))
    value, unique = client.gets("a")
    print(value, client.cas("a", b"three", unique), client.cas("a", b"four", unique))
    client.set("number", b"10")
    print(client.incr("number", 5), client.decr("number", 3), client.incr("none", 1))
    print(client.touch("a", 100), client.delete("a"), client.delete("a"), client.get("a"))
    client.set("hot", b"0", noreply=True)
    print("hot", {client.get("hot") for _ in range(2000)})
    for round in range(50):
        client.set("hot", str(round), noreply=bool(round % 2))
        assert int(client.get("hot")) == round
    client.set("long", b"x" * 500_000)
    print(len(client.get("long")), client.set("b", b"1", expire=-1), client.get("b"))
    client.close()
