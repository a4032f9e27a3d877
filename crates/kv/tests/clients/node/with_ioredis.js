// ioredis: `node with_ioredis.js PORT` prints what it was told, the same from any server.

import Redis from "ioredis";

const port = Number(process.argv[2]);
const open = (more = {}) => new Redis({ port, host: "127.0.0.1", ...more });
const say = (...all) => console.log(JSON.stringify(all));

for (const more of [{}, { db: 2 }, { enableAutoPipelining: true }]) {
  const client = open(more);
  await client.flushall();
  say(more, await client.set("text", "one"), await client.get("text"), await client.get("none"));
  say(await client.incr("number"), await client.mget("text", "none", "number"));
  await client.hset("hash", { a: 1, b: "two" });
  say(await client.hgetall("hash"), await client.hmget("hash", "a", "c"));
  await client.rpush("list", 1, 2, 3);
  say(await client.lrange("list", 0, -1), await client.type("list"));
  await client.zadd("sorted", 1.5, "m", 2, "n");
  say(await client.zrange("sorted", 0, -1, "WITHSCORES"), await client.zscore("sorted", "m"));

  await client.set("hot", 0);
  const seen = new Set();
  for (let at = 0; at < 2000; at++) seen.add(await client.get("hot"));
  say("hot", [...seen]);
  const together = await Promise.all(Array.from({ length: 2000 }, () => client.get("hot")));
  say([...new Set(together)]);
  const pipeline = client.pipeline();
  for (let at = 0; at < 1000; at++) pipeline.set("hot", at).get("hot");
  const replies = await pipeline.exec();
  say(replies.every(([error, reply], at) => !error && (at % 2 ? reply == (at - 1) / 2 : reply == "OK")));

  say(await client.multi().set("k", 1).incr("k").get("k").exec());
  await client.watch("k");
  const other = open(more);
  await other.incr("k");
  say(await client.multi().set("k", 0).exec(), await client.get("k"));
  client.defineCommand("add", { numberOfKeys: 1, lua: "return redis.call('incrby', KEYS[1], ARGV[1])" });
  say(await client.add("k", 7), await client.get("k"));
  await client.del("k2");
  say(await client.call("OBJECT", "ENCODING", "k"), await client.lpush("k", 1).catch((e) => e.message));

  const listener = open(more);
  say(await listener.subscribe("news"));
  const message = new Promise((resolve) => listener.on("message", (...all) => resolve(all)));
  say(await other.publish("news", "text"), await message);
  setTimeout(() => other.rpush("queue", "job"), 200);
  say(await client.blpop("queue", 5), await client.blpop("queue", 0.1));
  const keys = [];
  for await (const some of client.scanStream({ count: 3 })) keys.push(...some);
  say([...new Set(keys)].sort());
  say((await client.getBuffer("text")).toString("hex"));
  for (const one of [client, other, listener]) one.disconnect();
}
