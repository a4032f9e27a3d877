"""redis-py: plain and RESP3 connections, pipelines, transactions, scripts, messages.

Prints what it was told, the same from any server: `with_redis_py.py PORT`.
"""

import sys
import threading

import redis

PORT = int(sys.argv[1])
HOT = 2000


def typed(client, name):
    client.flushall()
    print(name, client.set("text", "one"), client.get("text"), client.get("none"))
    print(client.incr("number"), client.incrby("number", 5), client.append("text", " two"))
    client.hset("hash", mapping={"a": 1, "b": "two"})
    print(sorted(client.hgetall("hash").items()), client.hget("hash", "b"), client.hlen("hash"))
    client.rpush("list", *range(10))
    print(client.lrange("list", 0, -1), client.llen("list"), client.lindex("list", 3))
    client.sadd("set", "x", "y", "z")
    print(sorted(client.smembers("set")), client.sismember("set", "x"), client.scard("set"))
    client.zadd("sorted", {"m": 1.5, "n": 2})
    print(client.zrange("sorted", 0, -1, withscores=True), client.zscore("sorted", "m"))
    print(client.mget("text", "none", "number"), client.exists("text", "none"))
    print(client.type("hash"), client.strlen("text"), client.getrange("text", 0, 2))
    client.set("binary", bytes(range(256)))
    print(client.get("binary"))
    print(sorted(client.scan_iter(count=3)))
    try:
        client.lpush("text", 1)
    except redis.ResponseError as error:
        print(error)


def hot(client):
    client.set("hot", 0)
    seen = {client.get("hot") for _ in range(HOT)}
    print("hot", seen)
    for round in range(20):
        client.set("hot", round)
        assert int(client.get("hot")) == round
    with client.pipeline(transaction=False) as pipeline:
        for _ in range(HOT):
            pipeline.get("hot")
        print("pipeline", set(pipeline.execute()))


def transactions(client):
    client.set("balance", 10)

    def spend(pipeline):
        left = int(pipeline.get("balance"))
        pipeline.multi()
        pipeline.decrby("balance", 3)
        pipeline.get("balance")
        return left

    print("transaction", client.transaction(spend, "balance"), client.get("balance"))
    with client.pipeline() as pipeline:
        pipeline.watch("balance")
        client.incr("balance")
        pipeline.multi()
        pipeline.set("balance", 0)
        try:
            print(pipeline.execute())
        except redis.WatchError:
            print("watched")
    script = client.register_script("return redis.call('incrby', KEYS[1], ARGV[1])")
    print("script", script(keys=["balance"], args=[7]), client.get("balance"))


def messages(client):
    listener = client.pubsub()
    listener.subscribe("news")
    print("message", listener.get_message(timeout=5)["type"])
    print(client.publish("news", "text"), listener.get_message(timeout=5)["data"])
    listener.close()
    later = threading.Timer(0.2, client.rpush, ["queue", "job"])
    later.start()
    print("blocked", client.blpop("queue", timeout=5))
    later.join()
    print(client.blpop("queue", timeout=0.1))


for name, options in [
    ("RESP2", {"protocol": 2}),
    ("RESP3", {"protocol": 3}),
    ("other database", {"protocol": 2, "db": 3}),
]:
    with redis.Redis(port=PORT, **options) as client:
        typed(client, name)
        hot(client)
        transactions(client)
        messages(client)
