// redsync as a process of the quorum's benchmark: redsync default|fail-fast NAME WARM_MS HOLD_MS THINK_MS
// PORT... See ../worker.c for what it does and prints.
//
// Everything is as it comes, but for the number of tries: without end, or contenders would give up after
// 32 of them.
package main

import (
	"bufio"
	"fmt"
	"math"
	"os"
	"strconv"
	"time"

	"github.com/go-redsync/redsync/v4"
	"github.com/go-redsync/redsync/v4/redis"
	"github.com/go-redsync/redsync/v4/redis/goredis/v9"
	goredislib "github.com/redis/go-redis/v9"
)

func number(text string) int64 {
	value, err := strconv.ParseInt(text, 10, 64)
	check(err)
	return value
}

func check(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, "redsync:", err)
		os.Exit(1)
	}
}

func pair(mutex *redsync.Mutex, hold time.Duration) [4]int64 {
	began := time.Now().UnixMicro()
	check(mutex.Lock())
	acquired := time.Now().UnixMicro()
	time.Sleep(hold)
	releasing := time.Now().UnixMicro()
	_, err := mutex.Unlock()
	check(err)
	return [4]int64{began, acquired, releasing, time.Now().UnixMicro()}
}

func main() {
	var pools []redis.Pool
	for _, port := range os.Args[6:] {
		client := goredislib.NewClient(&goredislib.Options{Addr: "127.0.0.1:" + port})
		pools = append(pools, goredis.NewPool(client))
	}
	options := []redsync.Option{redsync.WithTries(math.MaxInt)}
	if os.Args[1] == "fail-fast" {
		options = append(options, redsync.WithFailFast(true))
	}
	name := os.Args[2]
	warmUp := time.Duration(number(os.Args[3])) * time.Millisecond
	hold := time.Duration(number(os.Args[4])) * time.Millisecond
	think := time.Duration(number(os.Args[5])) * time.Millisecond
	rs := redsync.New(pools...)

	warm := rs.NewMutex(fmt.Sprintf("%s-warm-%d", name, os.Getpid()), options...)
	for began := time.Now(); time.Since(began) < warmUp; {
		pair(warm, 0)
	}
	mutex := rs.NewMutex(name, options...)
	fmt.Println("ready")
	var startMs, endMs int64
	_, err := fmt.Scan(&startMs, &endMs)
	check(err)
	end := time.UnixMilli(endMs)
	time.Sleep(time.Until(time.UnixMilli(startMs)))
	out := bufio.NewWriterSize(os.Stdout, 1<<20)
	for time.Now().Before(end) {
		at := pair(mutex, hold)
		fmt.Fprintln(out, at[0], at[1], at[2], at[3])
		time.Sleep(think)
	}
	check(out.Flush())
}
