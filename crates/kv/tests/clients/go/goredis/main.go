// go-redis: `goredis PORT` prints what it was told, the same from any server.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/redis/go-redis/v9"
)

var ctx = context.Background()

func use(port string, protocol int) {
	client := redis.NewClient(&redis.Options{Addr: "127.0.0.1:" + port, Protocol: protocol})
	defer client.Close()
	client.FlushAll(ctx)
	fmt.Println("protocol", protocol, client.Set(ctx, "text", "one", 0).Val(), client.Get(ctx, "text").Val())
	_, none := client.Get(ctx, "none").Result()
	fmt.Println(errors.Is(none, redis.Nil), client.Incr(ctx, "number").Val(), client.MGet(ctx, "text", "none").Val())
	client.HSet(ctx, "hash", "a", 1, "b", "two")
	fmt.Println(client.HGetAll(ctx, "hash").Val(), client.HLen(ctx, "hash").Val())
	client.RPush(ctx, "list", 1, 2, 3)
	fmt.Println(client.LRange(ctx, "list", 0, -1).Val(), client.Type(ctx, "list").Val())
	client.ZAdd(ctx, "sorted", redis.Z{Score: 1.5, Member: "m"}, redis.Z{Score: 2, Member: "n"})
	fmt.Println(client.ZRangeWithScores(ctx, "sorted", 0, -1).Val(), client.ZScore(ctx, "sorted", "m").Val())

	client.Set(ctx, "hot", 0, 0)
	seen := map[string]bool{}
	for range 2000 {
		seen[client.Get(ctx, "hot").Val()] = true
	}
	fmt.Println("hot", seen)
	pipeline := client.Pipeline()
	for at := range 1000 {
		pipeline.Set(ctx, "hot", at, 0)
		pipeline.Get(ctx, "hot")
	}
	replies, err := pipeline.Exec(ctx)
	wrong := 0
	for at := range 1000 {
		if replies[2*at+1].(*redis.StringCmd).Val() != fmt.Sprint(at) {
			wrong++
		}
	}
	fmt.Println("pipeline", len(replies), err, wrong)

	err = client.Watch(ctx, func(tx *redis.Tx) error {
		client.Incr(ctx, "number")
		_, err := tx.TxPipelined(ctx, func(p redis.Pipeliner) error { return p.Set(ctx, "number", 0, 0).Err() })
		return err
	}, "number")
	fmt.Println("watched", errors.Is(err, redis.TxFailedErr), client.Get(ctx, "number").Val())
	script := redis.NewScript("return redis.call('incrby', KEYS[1], ARGV[1])")
	fmt.Println("script", script.Run(ctx, client, []string{"number"}, 7).Val(), client.Get(ctx, "number").Val())

	listener := client.Subscribe(ctx, "news")
	listener.Receive(ctx)
	client.Publish(ctx, "news", "text")
	message, err := listener.ReceiveMessage(ctx)
	fmt.Println("message", message, err)
	listener.Close()
	time.AfterFunc(200*time.Millisecond, func() { client.RPush(ctx, "queue", "job") })
	fmt.Println("blocked", client.BLPop(ctx, 5*time.Second, "queue").Val())
	fmt.Println(client.LPush(ctx, "text", 1).Err())
}

func main() {
	use(os.Args[1], 2)
	use(os.Args[1], 3)
}
