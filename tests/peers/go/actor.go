// Locks of Go's libraries under remote control: ../README.md lists the commands. One command runs at a time.
package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/bsm/redislock"
	"github.com/go-redsync/redsync/v4"
	"github.com/go-redsync/redsync/v4/redis"
	"github.com/go-redsync/redsync/v4/redis/goredis/v9"
	goredislib "github.com/redis/go-redis/v9"
)

// As long as `take` waits.
const takeFor = time.Minute

var background = context.Background()

// A handle's answers: taken or not; there or lost.
type handle interface {
	try() (bool, error)
	take() (bool, error)
	extend() (bool, error)
	release() (bool, error)
	locked() (bool, error)
}

func connect(port string) *goredislib.Client {
	return goredislib.NewClient(&goredislib.Options{Addr: "127.0.0.1:" + port, ReadTimeout: 5 * time.Second, MaxRetries: -1})
}

// ---- redsync -------------------------------------------------------------------------------------

type redsyncHandle struct {
	mutex *redsync.Mutex
}

func newRedsync(name string, lease time.Duration, ports []string, options ...redsync.Option) handle {
	var pools []redis.Pool
	for _, port := range ports {
		pools = append(pools, goredis.NewPool(connect(port)))
	}
	// By default an answer has a twentieth of the lease, too little on a busy machine for the short leases of the tests.
	options = append(options, redsync.WithExpiry(lease), redsync.WithTimeoutFactor(0.5), redsync.WithTries(1<<30))
	return redsyncHandle{redsync.New(pools...).NewMutex(name, options...)}
}

// Whether an error says that the lock is somebody else's or gone, and no more.
func isRefusal(err error) bool {
	var taken *redsync.ErrTaken
	var nodeTaken *redsync.ErrNodeTaken
	return errors.Is(err, redsync.ErrFailed) || errors.Is(err, redsync.ErrExtendFailed) ||
		errors.Is(err, redsync.ErrLockAlreadyExpired) || errors.As(err, &taken) || errors.As(err, &nodeTaken)
}

func answer(ok bool, err error) (bool, error) {
	if err != nil && isRefusal(err) {
		return false, nil
	}
	return ok, err
}

func (h redsyncHandle) try() (bool, error) {
	err := h.mutex.TryLock()
	return answer(err == nil, err)
}

func (h redsyncHandle) take() (bool, error) {
	ctx, cancel := context.WithTimeout(background, takeFor)
	defer cancel()
	err := h.mutex.LockContext(ctx)
	return answer(err == nil, err)
}

func (h redsyncHandle) extend() (bool, error)  { return answer(h.mutex.Extend()) }
func (h redsyncHandle) release() (bool, error) { return answer(h.mutex.Unlock()) }
func (h redsyncHandle) locked() (bool, error)  { return answer(h.mutex.Valid()) }

// ---- bsm/redislock -------------------------------------------------------------------------------

type redislockHandle struct {
	client *redislock.Client
	name   string
	lease  time.Duration
	lock   *redislock.Lock
}

func (h *redislockHandle) obtain(ctx context.Context, options *redislock.Options) (bool, error) {
	lock, err := h.client.Obtain(ctx, h.name, h.lease, options)
	if errors.Is(err, redislock.ErrNotObtained) || errors.Is(err, context.DeadlineExceeded) {
		return false, nil
	}
	if err == nil {
		h.lock = lock
	}
	return err == nil, err
}

func (h *redislockHandle) try() (bool, error) { return h.obtain(background, nil) }

func (h *redislockHandle) take() (bool, error) {
	ctx, cancel := context.WithTimeout(background, takeFor)
	defer cancel()
	return h.obtain(ctx, &redislock.Options{RetryStrategy: redislock.LinearBackoff(100 * time.Millisecond)})
}

func (h *redislockHandle) extend() (bool, error) {
	err := h.lock.Refresh(background, h.lease, nil)
	if errors.Is(err, redislock.ErrNotObtained) {
		return false, nil
	}
	return err == nil, err
}

func (h *redislockHandle) release() (bool, error) {
	err := h.lock.Release(background)
	if errors.Is(err, redislock.ErrLockNotHeld) {
		return false, nil
	}
	return err == nil, err
}

func (h *redislockHandle) locked() (bool, error) {
	left, err := h.lock.TTL(background)
	return left > 0, err
}

// ---- Commands ------------------------------------------------------------------------------------

var handles = map[string]handle{}

func open(words []string) (string, error) {
	name, peer, lock, ports := words[0], words[1], words[2], words[4:]
	leaseMs, err := strconv.Atoi(words[3])
	if err != nil {
		return "", err
	}
	lease := time.Duration(leaseMs) * time.Millisecond
	switch peer {
	case "redsync":
		handles[name] = newRedsync(lock, lease, ports)
	case "redsync-recreating":
		handles[name] = newRedsync(lock, lease, ports, redsync.WithSetNXOnExtend())
	case "redislock":
		handles[name] = &redislockHandle{client: redislock.New(connect(ports[0])), name: lock, lease: lease}
	default:
		return "", errors.New("no such peer")
	}
	return "ok", nil
}

// Steps in a book that only an exclusive owner may take: what was read is what is written over.
func work(h handle, rounds int, port string) (string, error) {
	book := connect(port)
	defer book.Close()
	for i := 0; i < rounds; i++ {
		for taken := false; !taken; {
			var err error
			if taken, err = h.take(); err != nil {
				return "", err
			}
		}
		page, err := book.Get(background, "book").Int()
		if err != nil && err != goredislib.Nil {
			return "", err
		}
		time.Sleep(2 * time.Millisecond) // its work, in which it must be alone
		if err := book.Set(background, "book", page+1, 0).Err(); err != nil {
			return "", err
		}
		if _, err := h.release(); err != nil {
			return "", err
		}
	}
	return "ok", nil
}

func obey(verb string, words []string) (string, error) {
	if verb == "ping" {
		return "ok", nil
	}
	if verb == "open" {
		return open(words)
	}
	h, found := handles[words[0]]
	if !found {
		return "", errors.New("no such handle")
	}
	if verb == "ready" { // A connection that has ended is replaced when it is wanted.
		return "ok", nil
	}
	if verb == "work" {
		rounds, err := strconv.Atoi(words[1])
		if err != nil {
			return "", err
		}
		return work(h, rounds, words[2])
	}
	if mutex, is := h.(redsyncHandle); is && verb == "owned" { // By its own clock.
		if time.Now().Before(mutex.mutex.Until()) {
			return "ok", nil
		}
		return "lost", nil
	}
	verbs := map[string]struct {
		call    func() (bool, error)
		yes, no string
	}{
		"try":     {h.try, "ok", "busy"},
		"take":    {h.take, "ok", "busy"},
		"extend":  {h.extend, "ok", "lost"},
		"release": {h.release, "ok", "lost"},
		"locked":  {h.locked, "yes", "no"},
	}
	chosen, found := verbs[verb]
	if !found {
		return "", errors.New("no such command")
	}
	done, err := chosen.call()
	if err != nil {
		return "", err
	}
	if done {
		return chosen.yes, nil
	}
	return chosen.no, nil
}

// A server that is away is part of the tests.
type silence struct{}

func (silence) Printf(context.Context, string, ...any) {}

func main() {
	goredislib.SetLogger(silence{})
	lines := bufio.NewScanner(os.Stdin)
	for lines.Scan() {
		words := strings.Fields(lines.Text())
		said, err := obey(words[1], words[2:])
		if err != nil {
			said = "err " + strings.ReplaceAll(err.Error(), "\n", " ")
		}
		fmt.Println(words[0], said)
	}
}
