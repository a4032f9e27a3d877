// rueidis, which caches by itself: `rueidis PORT` prints what it was told, the same from any server.
package main

import (
	"context"
	"fmt"
	"os"
	"time"

	"github.com/redis/rueidis"
)

var ctx = context.Background()

func use(port string, noCache bool) {
	client, err := rueidis.NewClient(rueidis.ClientOption{
		InitAddress: []string{"127.0.0.1:" + port}, DisableCache: noCache, AlwaysRESP2: noCache, ForceSingleClient: true,
	})
	if err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	defer client.Close()
	do := func(words ...string) string {
		reply, err := client.Do(ctx, client.B().Arbitrary(words...).Build()).ToAny()
		return fmt.Sprint(reply, err)
	}
	fmt.Println("without cache", noCache, do("FLUSHALL"), do("SET", "text", "one"), do("GET", "text"), do("GET", "none"))
	fmt.Println(do("INCR", "number"), do("MGET", "text", "none"), do("HSET", "hash", "a", "1", "b", "two"))
	fmt.Println(do("HGETALL", "hash"), do("RPUSH", "list", "1", "2"), do("LRANGE", "list", "0", "-1"), do("LPUSH", "text", "1"))
	do("SET", "hot", "0")
	seen := map[string]bool{}
	for range 2000 {
		seen[do("GET", "hot")] = true
	}
	fmt.Println("hot", seen)
	for at := range 1000 {
		commands := rueidis.Commands{
			client.B().Set().Key("hot").Value(fmt.Sprint(at)).Build(), client.B().Get().Key("hot").Build(),
		}
		if text, _ := client.DoMulti(ctx, commands...)[1].ToString(); text != fmt.Sprint(at) {
			fmt.Println("wrong", at, text)
		}
	}
	if !noCache {
		cached := func() string {
			text, err := client.DoCache(ctx, client.B().Get().Key("own").Cache(), time.Minute).ToString()
			return fmt.Sprint(text, err)
		}
		do("SET", "own", "first")
		fmt.Println("cached", cached(), cached())
		do("SET", "own", "second")
		for start := time.Now(); cached() != "second<nil>" && time.Since(start) < 5*time.Second; {
			time.Sleep(time.Millisecond)
		}
		fmt.Println("cached", cached())
	}
	time.AfterFunc(200*time.Millisecond, func() { do("RPUSH", "queue", "job") })
	popped, err := client.Do(ctx, client.B().Blpop().Key("queue").Timeout(5).Build()).AsStrSlice()
	fmt.Println("blocked", popped, err)
	fmt.Println(do("EVAL", "return redis.call('incrby', KEYS[1], ARGV[1])", "1", "number", "7"), do("GET", "number"))
}

func main() {
	use(os.Args[1], true)
	use(os.Args[1], false)
}
