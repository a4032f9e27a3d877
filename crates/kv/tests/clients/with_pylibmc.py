"""pylibmc: `with_pylibmc.py PORT` prints what it was told, the same from any server."""

import sys

import pylibmc

for binary in False, True:
    client = pylibmc.Client([f"127.0.0.1:{sys.argv[1]}"], binary=binary, behaviors={"cas": True})
    client.flush_all()
    print("binary" if binary else "text", client.set("a", "one"), client.get("a"), client.get("b"))
    print(client.add("a", "two"), client.replace("a", "two"), client.get("a"))
    print(client.set_multi({f"k{at}": at for at in range(9)}))
    print(sorted(client.get_multi([f"k{at}" for at in range(12)]).items()))
    value, unique = client.gets("a")
    print(value, client.cas("a", "three", unique), client.get("a"))
    client.set("number", 10)
    print(client.incr("number", 5), client.decr("number", 3), client.get("number"))
    print(client.delete("a"), client.delete("a"), client.get("a"))
    client.set("hot", 0)
    print("hot", {client.get("hot") for _ in range(2000)})
    for round in range(50):
        client.set("hot", round)
        assert client.get("hot") == round
    client.set("long", "x" * 500_000)
    print(len(client.get("long")))
